"""One sidecar's way to the simulated store: one connection at a time, calls in its order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Generic, TypeVar

from ackd.core.ids import LedgerKey
from ackd.core.rate_bucket import TokensTaken
from ackd.core.record.protocol import MessageTexts, Open, RecordCall, RecordReply, Snapshot
from ackd.errors import StoreError, StoreUnknownError
from ackd.ports import NOTHING_READY, Condition, Members, ReadyReport
from tests.simulation.process import Process
from tests.simulation.store import StoreServer, Work
from tests.simulation.store_more import SimDedupKeys, SimOutboxes, SimPlaces
from tests.simulation.world import MS

T = TypeVar("T")
LEASE_KEY = "lease-key"


class Trip(Generic[T]):
    """One call on its way to the server and back, on a connection to one run of it."""

    def __init__(
        self,
        server: StoreServer,
        process: Process,
        work: Work[T],
        seen: Callable[[T], None] | None,
        fate: str,
        latencies_us: tuple[int, int],
    ) -> None:
        self.future: asyncio.Future[Any] = process.loop.create_future()
        self._server = server
        self._generation = server.generation
        self._process = process
        self._work = work
        self._seen = seen
        self._fate = fate
        self._latency_us, self._replica_us = latencies_us

    def arrives(self) -> None:
        """At the server: decided now, or when it wakes, or never."""
        server, world = self._server, self._server.world
        if server.frozen_until_us > world.now_us:
            world.at(server.frozen_until_us, self.arrives)
            return
        if not server.up or server.generation != self._generation or self._fate == "lost":
            return
        result, number = server.execute(self._work)
        if self._seen is not None:
            self._seen(result)
        if self._fate == "unanswered":
            return
        delay_us = self._latency_us + self._replica_us
        if server.replicated:
            world.after(delay_us, self._confirmed, number)
        world.after(delay_us, self._answered, result)

    def _confirmed(self, number: int) -> None:
        """A replica has it; only then it is answered."""
        if self._server.generation == self._generation:
            self._server.confirmed = max(self._server.confirmed, number)

    def _answered(self, result: T) -> None:
        if self._server.generation == self._generation and self._server.up:
            self._process.resolve(self.future, result, None)

    def reset(self) -> None:
        """The connection broke."""
        self._process.resolve(self.future, None, StoreUnknownError("connection reset"))


class SimStore:
    """`ackd.ports.Store` of one process."""

    OUTBOXES: ClassVar[type[SimOutboxes]] = SimOutboxes

    def __init__(self, server: StoreServer, process: Process, timeout_ms: int) -> None:
        self.server = server
        self._process = process
        self._timeout_us = timeout_ms * MS
        self._random = server.world.random(f"net/{process.name}/{process.boot}")
        self._generation = 0
        self._arrival_us = 0
        self._run = ""
        self._has_key = False
        self.cut = False
        self.outboxes = self.OUTBOXES(self._call, server.observer)
        self.dedup_keys = SimDedupKeys(self._call)
        self.places = SimPlaces(self._call)

    @property
    def run(self) -> str:
        """The run that the connection was made to."""
        return self._run if self._generation else ""

    # --- one call through the network

    async def _call(self, work: Work[T], seen: Callable[[T], None] | None = None) -> T:
        if self._process.loop.dead:
            raise StoreError("dead")
        if self._generation != self.server.generation:
            self._break()  # the other end has closed it
            await self._connect()
        server, world = self.server, self.server.world
        latency_us, fate = self._draw()
        arrival_us = max(world.now_us + latency_us, self._arrival_us)
        if fate == "late":
            late_us = self._random.randint(0, server.faults.late_us) if server.faults.late_us else 0
            arrival_us = world.now_us + self._timeout_us + latency_us * 20 + late_us
        else:
            self._arrival_us = arrival_us
        back_us = self._draw()[0] if server.replicated else 0
        trip = Trip(server, self._process, work, seen, fate, (latency_us, back_us))
        if not self.cut:
            world.at(arrival_us, trip.arrives)
        server.waiting[trip] = None
        try:
            async with asyncio.timeout(self._timeout_us / 1_000_000):
                result: T = await trip.future
        except TimeoutError:
            self._break()
            raise StoreUnknownError("no answer in time") from None
        except (asyncio.CancelledError, StoreUnknownError):
            self._break()
            raise
        finally:
            server.waiting.pop(trip, None)
        return result

    async def _connect(self) -> None:
        await asyncio.sleep(self._draw()[0] / 1_000_000)
        server = self.server
        frozen = server.frozen_until_us > server.world.now_us
        if not server.up or self.cut or frozen:
            if frozen or self.cut:
                await asyncio.sleep(self._timeout_us / 1_000_000)
            raise StoreError("connection refused")
        self._generation, self._run = server.generation, server.run
        self._arrival_us = 0

    def _break(self) -> None:
        self._generation = 0

    def _draw(self) -> tuple[int, str]:
        faults, random = self.server.faults, self._random
        latency_us = random.randint(*faults.latency_us)
        if not faults.active:
            return latency_us, ""
        chance = random.random()
        for rate, fate in (
            (faults.request_lost, "lost"),
            (faults.request_late, "late"),
            (faults.answer_lost, "unanswered"),
            (faults.slow, "slow"),
        ):
            if chance < rate:
                if fate == "slow":
                    return random.randint(*faults.slow_us), ""
                return latency_us, fate
            chance -= rate
        return latency_us, ""

    # --- ackd.ports.Store

    async def start(self) -> None:
        """Connect."""
        if not self._generation:
            await self._connect()

    async def apply(self, calls: Sequence[RecordCall]) -> list[RecordReply]:
        """One flush."""
        sent = [_copy(call) for call in calls]

        def seen(replies: list[RecordReply]) -> None:
            for call, reply in zip(sent, replies, strict=True):
                self.server.observer.applied(self._process, call, reply)

        return await self._call(lambda store: store.apply(sent), seen)

    async def open(self, request: Open) -> Snapshot:
        """Take or read again."""

        def seen(snapshot: Snapshot) -> None:
            self.server.observer.opened(self._process, request, snapshot)

        return await self._call(lambda store: store.open(request), seen)

    async def register(self, subscription: str, name: str) -> int:
        """A boot number."""
        return await self._call(lambda store: store.register(subscription, name))

    async def heartbeat(
        self,
        subscription: str,
        name: str,
        boot: int,
        owned: Sequence[str],
        note: str,
        ready: ReadyReport = NOTHING_READY,
    ) -> Members:
        """Live."""
        return await self._call(
            lambda store: store.heartbeat(subscription, name, boot, tuple(owned), note, ready)
        )

    async def forget(self, subscription: str, name: str, boot: int) -> None:
        """Remove a member."""
        await self._call(lambda store: store.forget(subscription, name, boot))

    async def set_live(self, subscription: str, expected: bytes, value: bytes) -> bytes:
        """Compare and set the live value."""
        return await self._call(lambda store: store.set_live(subscription, expected, value))

    async def take(
        self, subscription: str, wanted: int, rate_per_s: float, burst: int
    ) -> TokensTaken:
        """Take tokens."""
        return await self._call(lambda store: store.take(subscription, wanted, rate_per_s, burst))

    async def texts(self, key: LedgerKey, offsets: Sequence[int]) -> list[MessageTexts | None]:
        """Read texts."""
        return await self._call(lambda store: store.texts(key, tuple(offsets)))

    async def get(self, name: str) -> bytes | None:
        """A value."""
        return await self._call(lambda store: store.get(name))

    async def put(self, name: str, value: bytes, ttl_ms: int | None = None) -> None:
        """Set a value."""
        await self._call(
            lambda store: store.put(name, value, ttl_ms),
            lambda _: self.server.observer.value_set(name, value),
        )

    async def put_new(self, name: str, value: bytes, ttl_ms: int | None = None) -> bytes | None:
        """Set a value once. The secret of the leases is made from the seed, not from the system."""
        fresh = name == LEASE_KEY and not self._has_key
        if fresh:
            value = self._random.randbytes(len(value))

        def seen(there: bytes | None) -> None:
            self.server.observer.value_set(name, value if there is None else there)

        there = await self._call(lambda store: store.put_new(name, value, ttl_ms), seen)
        self._has_key |= fresh
        return value if fresh and there is None else there

    async def swap(self, name: str, expected: bytes | None, value: bytes) -> bytes | None:
        """Compare and set a value."""
        return await self._call(lambda store: store.swap(name, expected, value))

    async def delete(self, name: str) -> None:
        """Remove a value."""
        await self._call(lambda store: store.delete(name))

    def conditions(self) -> list[Condition]:
        """None."""
        return []

    async def close(self) -> None:
        """Nothing to free."""
        self._break()


def _copy(call: RecordCall) -> RecordCall:
    """What was sent does not change any more."""
    return replace(call, ops=list(call.ops), texts=call.texts.shifted(0))
