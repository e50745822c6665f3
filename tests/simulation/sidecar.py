"""A simulated sidecar: the production runtime in a process that can be killed and started again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ackd.config.schema import Settings
from ackd.engine.runtime import Runtime
from ackd.push.push_manager import PushManager
from tests.simulation.broker import BrokerFaults, SimBroker
from tests.simulation.group import Group
from tests.simulation.log import Cluster
from tests.simulation.parts import METRICS, Parts
from tests.simulation.peers import Wires
from tests.simulation.process import Process
from tests.simulation.pushed import PushWires, SimPushClient
from tests.simulation.store import StoreServer
from tests.simulation.store_client import SimStore
from tests.simulation.world import MS, World

Answer = Callable[[object, Exception | None], None]


@dataclass(frozen=True, slots=True)
class Place:
    """What all sidecars of a run share. `reached` gets each result that a request has; `wires`
    connects the sidecars, if anything does; `pushing` leads from each to its application.
    """

    world: World
    server: StoreServer
    cluster: Cluster
    group: Group
    broker_faults: BrokerFaults
    parts: Parts
    wires: Wires | None = None
    reached: Callable[[str, object], None] | None = None
    pushing: PushWires | None = None


class Request:
    """One HTTP request on its way. `cancel`: the client's connection is gone."""

    def __init__(self, sidecar: Sidecar, answer: Answer) -> None:
        self.answer = answer
        self.gone = False
        self._sidecar = sidecar
        self._stop: Callable[[], object] | None = None

    def start(self, work: Callable[[Runtime], Awaitable[object]]) -> None:
        """It has arrived; runs in the sidecar's loop."""
        sidecar = self._sidecar
        if not self.gone and sidecar.runtime is not None:
            self._stop = sidecar.process.loop.spawn(self._serve(sidecar.runtime, work), "http")

    async def _serve(self, runtime: Runtime, work: Callable[[Runtime], Awaitable[object]]) -> None:
        result: object = None
        failure: Exception | None = None
        try:
            result = await work(runtime)
        except Exception as error:  # noqa: BLE001 - what HTTP would answer, the client judges it
            failure = error
        reached = self._sidecar.place.reached
        if reached is not None:
            reached(self._sidecar.name, result)
        if self.gone:
            await self._sidecar.unsent(runtime, result)
            return
        self._sidecar.reply(self, result, failure)

    def cancel(self) -> None:
        """The client has gone; the handler is cancelled, as aiohttp does."""
        self.gone = True
        if self._stop is not None:
            self._stop()


class Sidecar:
    """One sidecar over all its restarts."""

    def __init__(self, place: Place, name: str, settings: Settings, store_timeout_ms: int) -> None:
        self.place = place
        self.name = name
        self.settings = settings
        self.process = Process(place.world, name)
        self.process.loop.kill()
        self.runtime: Runtime | None = None
        self.push: PushManager | None = None
        self.past: list[Process] = []
        self.store: SimStore | None = None
        self.broker: SimBroker | None = None
        self._store_timeout_ms = store_timeout_ms
        self._requests: dict[Request, None] = {}
        self._random = place.world.random(f"http/{name}")

    # --- life

    def boot(self) -> None:
        """Start a new process."""
        if self.process.alive:
            return
        self.past.append(self.process)
        self.push = None
        place = self.place
        process = self.process = Process(place.world, self.name, self.process.boot + 1)
        process.loop.on_fuse = self.kill
        random = place.world.random(f"bits/{self.name}/{process.boot}")
        parts = place.parts
        self.store = parts.store(place.server, process, self._store_timeout_ms)
        broker = self.broker = parts.broker(
            place.cluster, place.group, process, place.broker_faults, parts.consumer
        )
        self.runtime = parts.runtime(
            self.settings,
            store=self.store,
            brokers={"broker": broker},
            clock=process,
            bits=random.getrandbits,
            peers=None if place.wires is None else parts.peers(place.wires, process),
        )
        place.world.note(self.name, "boot", process.boot)
        process.loop.spawn(self._start(self.runtime, process), "start")

    async def _start(self, runtime: Runtime, process: Process) -> None:
        """As `ackd serve` does."""
        await runtime.start()
        pushing = self.place.pushing
        if pushing is not None:
            self.push = PushManager(
                runtime,
                self.settings.subscriptions,
                METRICS,
                runtime.vitals,
                lambda url: SimPushClient(url, pushing, process),
            )
            await self.push.start()

    def kill(self) -> None:
        """The signal KILL: clients see their connections break."""
        self.process.kill()
        requests, self._requests = list(self._requests), {}
        for request in requests:
            self._later(request, None, ConnectionError("reset"))

    def stop(self, drain_ms: int = 0) -> None:
        """A clean stop: it waits so long for leases to be settled, tells progress, and ends."""
        runtime, process, push = self.runtime, self.process, self.push
        if runtime is None or not process.running:
            return

        async def stop() -> None:
            if push is not None:
                push.drain()
            if drain_ms:
                with suppress(TimeoutError):
                    async with asyncio.timeout(drain_ms / 1000):
                        await runtime.drain()
            if push is not None:
                await push.stop()
            await runtime.stop()
            self.kill()

        self.place.world.note(self.name, "stops")
        process.loop.spawn(stop(), "stop")

    # --- requests

    def request(self, work: Callable[[Runtime], Awaitable[object]], answer: Answer) -> Request:
        """Send a request; `answer` is called in the world, at most once."""
        request = Request(self, answer)
        world, process = self.place.world, self.process
        latency_us = self._random.randint(50, 2_000)
        if not process.alive:
            self._later(request, None, ConnectionError("refused"))
            return request
        self._requests[request] = None

        def arrives() -> None:
            process.post(request.start, work)

        world.after(latency_us, arrives)
        return request

    def reply(self, request: Request, result: object, error: Exception | None) -> None:
        """The handler is done; from here on the bytes are in the network."""
        if self._requests.pop(request, 0) is None:
            self._later(request, result, error)

    def forget(self, request: Request) -> None:
        """The client does not wait any more."""
        self._requests.pop(request, None)
        process = self.process
        latency_us = self._random.randint(50, 5_000)
        self.place.world.after(latency_us, process.post, request.cancel)

    async def unsent(self, runtime: Runtime, result: object) -> None:
        """Nobody got this answer. The HTTP side gives leases back if not a byte was sent (R21)."""
        if self._random.random() < 0.7 and hasattr(result, "messages"):
            await runtime.abandon(result)  # type: ignore[arg-type]

    def _later(self, request: Request, result: object, error: Exception | None) -> None:
        latency_us = self._random.randint(50, 2_000)
        self.place.world.after(latency_us, request.answer, result, error)

    def clean_up(self) -> None:
        """The run is over."""
        for process in (*self.past, self.process):
            process.loop.clean_up()


async def ask(
    process: Process,
    sidecar: Sidecar,
    work: Callable[[Runtime], Awaitable[object]],
    timeout_ms: int,
) -> object:
    """One HTTP request of an application. Raises ConnectionError, TimeoutError, AckdError."""
    future: asyncio.Future[Any] = process.loop.create_future()

    def answer(result: object, error: Exception | None) -> None:
        process.resolve(future, result, error)

    request = sidecar.request(work, answer)
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            return await future
    except (TimeoutError, asyncio.CancelledError):
        sidecar.forget(request)
        raise


def settle_down(place: Place) -> None:
    """No more faults in store and broker."""
    place.server.faults.active = False
    place.broker_faults.active = False
    place.server.faults.latency_us = (100, 1 * MS)
