"""Simulated applications: they outlive sidecars with their leases, and misbehave as people do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ackd.api.messages import (
    Delivery,
    Received,
    ReceiveRequest,
    SettleItem,
    SettleResult,
    SettleVerb,
    Status,
)
from ackd.engine.runtime import Runtime
from ackd.errors import AckdError
from tests.simulation.process import Process
from tests.simulation.sidecar import Sidecar, ask
from tests.simulation.world import MS, World

SETTLE_TRIES = 6
SETTLE_TIMEOUT_MS = 4_000
LOSES = 0.4
"""How likely an application that loses answers asks again for one that it got."""
LONG_MS = 60_000
"""For so long somebody asks who needs much less."""
PATIENCE = 0.8
"""How likely a settle that was unavailable goes with the next joined call, too."""


class Told(Protocol):
    """Hears what applications were told, at the moment when they read it."""

    def delivered(self, by: Process, delivery: Delivery, asked_us: int) -> None:
        """A message under a lease."""

    def asked(self, item: SettleItem) -> None:
        """A settle is on its way."""

    def settled(
        self, by: Process, item: SettleItem, result: SettleResult, asked_us: int
    ) -> None:  # fmt: skip
        """An answer to a settle."""


@dataclass(frozen=True, slots=True)
class Habits:
    """How an application works; the styles' weights are drawn per run."""

    lease_ms: int
    receive_max: int
    wait_ms: int
    weights: dict[str, int]
    lease_given: bool
    attempt_ids: bool
    joined: bool
    loses_answers: bool = False
    answers_kept: bool = True


class App:
    """One application. `calm`: from now on it does what it should, at once."""

    def __init__(
        self, world: World, name: str, sidecars: Sequence[Sidecar], habits: Habits, told: Told
    ) -> None:
        self.world = world
        self.name = name
        self.calm = False
        self._sidecars = sidecars
        self._habits = habits
        self._told = told
        self._random = world.random(f"app/{name}")
        self._attempts = 0
        self._to_join: list[SettleItem] = []
        self.process = Process(world, name)
        self._past: list[Process] = []
        self.process.loop.spawn(self._live(), "live")

    def restart(self) -> None:
        """The application dies and comes back; it has forgotten its leases."""
        self.process.kill()
        self._to_join = []
        self._past.append(self.process)
        self.process = Process(self.world, self.name, self.process.boot + 1)
        self.process.loop.spawn(self._live(), "live")

    def clean_up(self) -> None:
        """The run is over."""
        for process in (*self._past, self.process):
            process.loop.clean_up()

    # --- calls

    async def _call(
        self, sidecar: Sidecar, work: Callable[[Runtime], Awaitable[object]], timeout_ms: int
    ) -> object:
        """One HTTP request. Raises ConnectionError, TimeoutError, AckdError."""
        return await ask(self.process, sidecar, work, timeout_ms)

    async def _live(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                sidecar = self._random.choice(self._sidecars)
                try:
                    received, asked_us = await self._receive(sidecar)
                except (AckdError, ConnectionError, TimeoutError):
                    await asyncio.sleep(self._random.uniform(0.01, 0.3))
                    continue
                for delivery in received.messages:
                    self._told.delivered(sidecar.process, delivery, asked_us)
                    group.create_task(self._work(sidecar, delivery))
                if not received.messages:
                    await asyncio.sleep(self._random.uniform(0.0, 0.05))

    async def _receive(self, sidecar: Sidecar) -> tuple[Received, int]:
        habits, random = self._habits, self._random
        wait_ms = random.randint(0, 50 if self.calm else habits.wait_ms)
        self._attempts += 1
        attempt_id = f"{self.name}-{self._attempts}" if habits.attempt_ids else None
        request = ReceiveRequest(
            max=random.randint(1, habits.receive_max),
            wait_ms=wait_ms,
            lease_ms=habits.lease_ms if habits.lease_given else None,
            attempt_id=attempt_id,
            holder=self.name,
        )
        asked_us = self.world.now_us
        if self._to_join:
            return await self._receive_joined(sidecar, request), asked_us
        tries = 3 if attempt_id is not None else 1
        lost: Received | None = None
        while True:
            tries -= 1
            try:
                result = await self._call(
                    sidecar, lambda engine: engine.receive("orders", request), wait_ms + 1_500
                )
            except (ConnectionError, TimeoutError):
                if not tries:
                    raise
                await asyncio.sleep(random.uniform(0.05, 1.0))
                continue
            assert isinstance(result, Received)
            if len(result.messages) > request.max:
                self.world.fail(f"I8: {self.name} asked for {request.max} and got more")
            if lost is not None and habits.answers_kept:
                self._same(lost, result)
            if result.messages and tries and habits.loses_answers and random.random() < LOSES:
                lost = result
                await asyncio.sleep(random.uniform(0.05, 0.5))
                continue
            return result, asked_us

    def _same(self, lost: Received, result: Received) -> None:
        """R21: the answer that was lost comes again, as long as its leases last."""
        before, now = ({each.lease for each in answer.messages} for answer in (lost, result))
        now_ms = self.world.now_us // MS
        live = min(each.deadline_ms for each in lost.messages) > now_ms + self._habits.lease_ms // 4
        if live and before != now:
            self.world.fail(f"R21: a repeat of {self.name} got others than the lost answer had")

    async def _receive_joined(self, sidecar: Sidecar, request: ReceiveRequest) -> Received:
        """Settle what is finished and receive in one request; what fails is settled next time."""
        items, self._to_join = self._to_join, []
        asked_us, by = self.world.now_us, sidecar.process
        for item in items:
            self._told.asked(item)
        try:
            answer = await self._call(
                sidecar,
                lambda engine: engine.settle_and_receive(items, "orders", request),
                request.wait_ms + 1_500,
            )
        except BaseException:
            self._to_join += [item for item in items if self._random.random() < PATIENCE]
            raise
        assert isinstance(answer, tuple)
        results, received = answer
        for item, result in zip(items, results, strict=True):
            self._told.settled(by, item, result, asked_us)
            if result.status is Status.UNAVAILABLE and self._random.random() < PATIENCE:
                self._to_join.append(item)
        if isinstance(received, AckdError):
            raise received
        assert isinstance(received, Received)
        return received

    # --- work

    async def _work(self, sidecar: Sidecar, delivery: Delivery) -> None:
        await self._do(self._style(), sidecar, delivery)

    def _style(self) -> str:
        weights = self._habits.weights
        style = self._random.choices(list(weights), list(weights.values()))[0]
        return "ack" if self.calm else style

    async def _do(self, style: str, sidecar: Sidecar, delivery: Delivery) -> None:
        """Work on a message as the style says, and settle it."""
        random, lease_s = self._random, self._habits.lease_ms / 1000
        lease = delivery.lease
        match style:
            case "ack":
                await asyncio.sleep(random.uniform(0, 0.2))
                if self._habits.joined:
                    self._to_join.append(SettleItem(lease, SettleVerb.ACK))
                    return
                await self._settle(sidecar, SettleItem(lease, SettleVerb.ACK))
            case "slow" | "stale":
                leases = (0.7, 2.5) if style == "slow" else (3, 12)
                await asyncio.sleep(random.uniform(*leases) * lease_s)
                await self._settle(sidecar, SettleItem(lease, SettleVerb.ACK))
            case "twice":
                await self._settle(sidecar, SettleItem(lease, SettleVerb.ACK))
                await asyncio.sleep(random.uniform(0, 3) * lease_s)
                await self._settle(sidecar, SettleItem(lease, SettleVerb.ACK))
            case "extend" | "again" | "shorten" | "note":
                longer = {"extend": self._extend, "again": self._again, "shorten": self._shorten}
                await longer.get(style, self._note)(sidecar, lease)
            case "retry":
                await asyncio.sleep(random.uniform(0, 0.5) * lease_s)
                delay_ms = random.choice([0, 50, 500, 2_000])
                item = SettleItem(
                    lease, SettleVerb.RETRY, delay_ms=delay_ms, count=random.random() < 0.8
                )
                await self._fail(sidecar, item)
            case "dead":
                await self._fail(sidecar, SettleItem(lease, SettleVerb.DEAD, reason="poison"))
            case "release":
                await self._settle(sidecar, SettleItem(lease, SettleVerb.RELEASE))
            case _:
                await asyncio.sleep(0)

    async def _fail(self, sidecar: Sidecar, item: SettleItem) -> None:
        """Give up on a message; every now and then another thread acks it nevertheless."""
        await self._settle(sidecar, item)
        if self._random.random() < 0.4:
            await asyncio.sleep(self._random.uniform(0, 2) * self._habits.lease_ms / 1000)
            await self._settle(sidecar, SettleItem(item.lease, SettleVerb.ACK))

    async def _extend(self, sidecar: Sidecar, lease: str) -> None:
        """A heartbeat while it works; stops when it is told that the lease is lost."""
        random, lease_ms = self._random, self._habits.lease_ms
        for _ in range(random.randint(1, 6)):
            await asyncio.sleep(random.uniform(0.3, 0.8) * lease_ms / 1000)
            item = SettleItem(lease, SettleVerb.EXTEND, lease_ms=lease_ms)
            if await self._settle(sidecar, item) is Status.LOST:
                return
            if self.calm:
                break
        await self._settle(sidecar, SettleItem(lease, SettleVerb.ACK))

    async def _again(self, sidecar: Sidecar, lease: str) -> None:
        """The same twice, as who lost the first answer does; perhaps when the lease has ended."""
        random, lease_s = self._random, self._habits.lease_ms / 1000
        do = random.choice([SettleVerb.RETRY, SettleVerb.RELEASE, SettleVerb.DEAD, SettleVerb.ACK])
        delay_ms = random.choice([500, 2_000]) if do is SettleVerb.RETRY else None
        await asyncio.sleep(random.choice([0, 0, 1.2]) * lease_s)
        for _ in range(2):
            await self._settle(sidecar, SettleItem(lease, do, delay_ms=delay_ms))
            await asyncio.sleep(random.choice([0, 0.1]))
            sidecar = random.choice(self._sidecars)

    async def _shorten(self, sidecar: Sidecar, lease: str) -> None:
        """Asks for long, then gives it back soon, by an extension at another sidecar perhaps."""
        random, lease_ms = self._random, self._habits.lease_ms
        if await self._settle(sidecar, _extension(lease, LONG_MS)) is Status.LOST:
            return
        await asyncio.sleep(random.uniform(0.05, 0.6) * lease_ms / 1000)
        sidecar = random.choice(self._sidecars)
        await self._settle(sidecar, _extension(lease, random.choice([100, 400, 1_500])))
        if random.random() < 0.2:
            await asyncio.sleep(random.uniform(0, 1) * lease_ms / 1000)
            await self._settle(sidecar, SettleItem(lease, SettleVerb.ACK))

    async def _note(self, sidecar: Sidecar, lease: str) -> None:
        """Says how far it is, and never comes to the end; now and then it gives up in time."""
        random, lease_ms = self._random, self._habits.lease_ms
        for step in range(random.randint(1, 4)):
            item = SettleItem(
                lease, SettleVerb.EXTEND, lease_ms=lease_ms, note=f"{lease[-8:]} {step}"
            )
            if await self._settle(sidecar, item) is Status.LOST:
                return
            await asyncio.sleep(random.uniform(0.1, 0.6) * lease_ms / 1000)
        if random.random() < 0.4:
            await self._settle(sidecar, SettleItem(lease, SettleVerb.RETRY, delay_ms=50))

    async def _settle(self, sidecar: Sidecar, item: SettleItem) -> Status | None:
        """Settle until there is an answer; every now and then at another sidecar."""
        for _ in range(SETTLE_TRIES):
            if self._random.random() < 0.35 or not sidecar.process.alive:
                sidecar = self._random.choice(self._sidecars)
            asked_us, by = self.world.now_us, sidecar.process
            self._told.asked(item)
            try:
                results = await self._call(
                    sidecar, lambda engine: engine.settle([item]), SETTLE_TIMEOUT_MS
                )
            except (AckdError, ConnectionError, TimeoutError):
                await asyncio.sleep(self._random.uniform(0.02, 0.5))
                continue
            assert isinstance(results, list)
            (result,) = results
            self._told.settled(by, item, result, asked_us)
            if result.status is not Status.UNAVAILABLE:
                return Status(result.status)
            await asyncio.sleep(self._random.uniform(0.02, 0.5))
        return None


def _extension(lease: str, lease_ms: int) -> SettleItem:
    return SettleItem(lease, SettleVerb.EXTEND, lease_ms=lease_ms)
