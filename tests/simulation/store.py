"""The simulated store: the reference record behind a network that loses, delays and fails over."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple, Protocol, TypeVar

from ackd.core.bitmap import CHUNK_OFFSETS
from ackd.core.ids import LedgerKey
from ackd.core.outbox import EnqueueRequest, EnqueueResult
from ackd.core.record.protocol import Open, RecordCall, RecordReply, Snapshot
from ackd.store.memory import Data, MemoryStore
from tests.simulation.process import Process
from tests.simulation.world import MS, World

T = TypeVar("T")
Work = Callable[[MemoryStore], Coroutine[Any, Any, T]]


class Observer(Protocol):
    """Sees what the store decides, at the moment when it does."""

    def applied(self, by: Process, call: RecordCall, reply: RecordReply) -> None:
        """A call was decided."""

    def opened(self, by: Process, request: Open, snapshot: Snapshot) -> None:
        """A record was taken or read again."""

    def value_set(self, name: str, value: bytes) -> None:
        """A small value was written."""

    def enqueued(
        self, requests: Sequence[EnqueueRequest], answers: Sequence[EnqueueResult]
    ) -> None:
        """An outbox has accepted, or not."""


class Breakable(Protocol):
    """A call that is under way on a connection."""

    def reset(self) -> None:
        """The connection broke."""


@dataclass(slots=True)
class NetFaults:
    """How often, while `active`, something happens to a call. Latency in us.

    `late_us`: what is late comes so long after nobody waits for it any more, or a little.
    """

    active: bool = False
    request_lost: float = 0.0
    request_late: float = 0.0
    answer_lost: float = 0.0
    slow: float = 0.0
    late_us: int = 0
    latency_us: tuple[int, int] = (100, 900)
    slow_us: tuple[int, int] = (10_000, 900_000)


class _Write(NamedTuple):
    """A decided call: real time, the server's time, its run, and what was done."""

    real_us: int
    at_us: int
    run: str
    work: Work[object]


class StoreServer:
    """One server and its data. Writes are logged, so that a lagging replica can be promoted."""

    def __init__(
        self, world: World, observer: Observer, memory: type[MemoryStore], *, replicated: bool
    ) -> None:
        self.world = world
        self.observer = observer
        self.replicated = replicated
        self.up = True
        self.generation = 1
        self.clock_us = 0
        self.frozen_until_us = 0
        self.faults = NetFaults()
        self.confirmed = 0
        self.waiting: dict[Breakable, None] = {}
        self._log: list[_Write] = []
        self._made = memory
        self.memory = self._memory(Data(), "run-1")
        self._replay_us = 0

    @property
    def data(self) -> Data:
        """What the primary holds."""
        return self.memory.data

    @property
    def run(self) -> str:
        """The name of this run of the server."""
        return self.memory.run

    def _memory(self, data: Data, run: str) -> MemoryStore:
        return self._made(data, run, self._now_us)

    def _now_us(self) -> int:
        return self._replay_us or self.world.now_us + self.clock_us

    def execute(self, work: Work[T]) -> tuple[T, int]:
        """Decide something now; also its number in the log."""
        self._log.append(_Write(self.world.now_us, self._now_us(), self.run, work))
        return finish(work(self.memory)), len(self._log)

    @property
    def writes(self) -> int:
        """How many calls were decided since the data began."""
        return len(self._log)

    # --- faults

    def restart(self) -> None:
        """Go down now (`up` False until `start`); connections break."""
        self.world.note("store", "down")
        self.up = False
        self._reset()

    def _reset(self) -> None:
        """Every connection breaks; who waits hears of it a little later."""
        self.generation += 1
        waiting, self.waiting = list(self.waiting), {}
        for number, trip in enumerate(waiting):
            self.world.after(MS + number, trip.reset)

    def start(self, lost: int, *, silent: bool = False) -> int | None:
        """Come up (or fail over) without the last `lost` writes; `silent`: nobody can notice.

        With `replicated` what was confirmed is never lost. Returns when the first lost write was,
        None if there is none.
        """
        confirmed = min(self.confirmed, len(self._log)) if self.replicated else 0
        keep = max(len(self._log) - lost, confirmed, 0)
        lost = len(self._log) - keep
        self.confirmed = min(self.confirmed, keep)
        self.up = True
        if not silent:
            self._reset()
        run = self.run if silent else f"run-{self.generation}"
        from_us = self._log[keep].real_us if lost else None
        if lost:
            del self._log[keep:]
            self._replay(run)
        self.memory = self._memory(self.data, run)
        self.world.note("store", "up", run, f"without the last {lost} writes")
        return from_us

    def _replay(self, run: str) -> None:
        data = Data()
        for write in self._log:
            self._replay_us = write.at_us
            finish(write.work(self._memory(data, write.run)))
        self._replay_us = 0
        self.memory = self._memory(data, run)

    def flush(self) -> None:
        """All data is gone; the server run is the same."""
        self.world.note("store", "flushed")
        self._log.clear()
        self.confirmed = 0
        self.memory = self._memory(Data(), self.run)

    def evict(self, random: Random) -> tuple[LedgerKey, int] | None:
        """One bitmap chunk is gone. None if there is none."""
        chunks = [
            (key, index)
            for key, record in self.data.records.items()
            for index, chunk in sorted(record.finished.chunks.items())
            if any(chunk)
        ]
        if not chunks:
            return None
        key, index = random.choice(chunks)

        async def work(store: MemoryStore) -> None:
            store.data.records[key].finished.chunks.pop(index, None)

        self.execute(work)
        self.world.note("store", "evicted", key.partition, index * CHUNK_OFFSETS)
        return key, index

    def lose_values(self, beginning: str) -> None:
        """The small values of these names are gone."""

        async def work(store: MemoryStore) -> None:
            for name in [each for each in store.data.values if each.startswith(beginning)]:
                del store.data.values[name]

        self.execute(work)
        self.world.note("store", "lost values", beginning)

    def step_clock(self, step_us: int) -> None:
        """The server's wall clock jumps."""
        self.world.note("store", "clock", step_us // MS, "ms")
        self.clock_us += step_us

    def freeze(self, for_us: int) -> None:
        """The server stands still: what arrives is decided when it wakes."""
        self.world.note("store", "frozen for", for_us // MS, "ms")
        self.frozen_until_us = self.world.now_us + for_us


def finish(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration as stop:
        value: T = stop.value
        return value
    message = "the memory store waits for nothing"
    raise AssertionError(message)
