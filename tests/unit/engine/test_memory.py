"""What a sidecar repeats after a rollback: its acks, and what a fenced owner knew (R10)."""

from __future__ import annotations

import asyncio

from ackd.core.bitmap import ChunkedBitmap
from ackd.core.ids import LedgerKey
from ackd.core.sent import LeftOpen, SentBack
from ackd.core.states import Verb
from ackd.core.wire import Call, Op, Open
from ackd.engine.memory import KEEP_MS, LEDGERS_MAX, Memory
from ackd.store.flusher import Flusher, LedgerHandle
from ackd.store.memory import Data, MemoryStore

KEY = LedgerKey("cluster", "orders", b"\1" * 16, 0)


class _Clock:
    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms


class _World:
    """A store whose record was made anew, at offset 10 and with nothing finished."""

    def __init__(self) -> None:
        self.clock, self.data = _Clock(), Data()
        self.store = MemoryStore(self.data)
        self.flusher = Flusher(self.store)
        self.memory = Memory(self.flusher, self.clock, lambda: self.run)
        self.run = "run-1"

    def lets_go(self, *ranges: tuple[int, int], epoch: int = 0, key: LedgerKey = KEY) -> None:
        finished = ChunkedBitmap()
        for start, end in ranges:
            finished.add_range(start, end)
        self.memory.let_go(LedgerHandle(key), epoch, finished, LeftOpen(SentBack(), []))

    def replays(self, *before: Op) -> list[tuple[int, int]]:
        """The ranges that the record has finished after it."""
        return asyncio.run(self._replay(before))

    async def _replay(self, before: tuple[Op, ...]) -> list[tuple[int, int]]:
        await self.store.open(Open(KEY, "b#1", 1, 2, 0, create_at=10))
        await self.store.apply([Call(KEY, list(before))])
        self.flusher = self.memory._flusher = Flusher(self.store)  # queues belong to one loop
        async with asyncio.TaskGroup() as group:
            running = group.create_task(self.flusher.run())
            await self.memory.replay("another")
            await self.memory.replay(KEY.subscription)
            running.cancel()
        return list(self.data.records[KEY].finished.ranges(0))


def test_a_fenced_owner_repeats_what_it_knew() -> None:
    world = _World()
    world.lets_go((4, 12), (20, 5_000))
    world.memory.acked(KEY, 0, [13, 15])
    assert world.replays() == [(10, 12), (13, 14), (15, 16), (20, 5_000)]


def test_an_epoch_of_before_is_not_repeated() -> None:
    """R8: an operator has reset the group since."""
    world = _World()
    world.lets_go((11, 14))
    world.lets_go((20, 21), epoch=1)
    world.memory.acked(KEY, 0, [16])
    world.memory.acked(KEY, 1, [23])
    assert world.replays(Op(Verb.RESET, 10)) == [(20, 21), (23, 24)]


def test_what_is_remembered_is_bounded_in_time() -> None:
    """I8."""
    world = _World()
    world.lets_go((11, 14))
    world.clock.now_ms += KEEP_MS + 1
    world.memory.purge()
    assert world.replays() == []


def test_what_is_remembered_is_bounded_in_number() -> None:
    """I8."""
    world = _World()
    world.lets_go((11, 14))
    for _ in range(LEDGERS_MAX):
        world.lets_go((11, 14), key=KEY._replace(subscription="third"))
    assert world.replays() == []


def test_it_is_repeated_once_for_each_run_of_the_server() -> None:
    """R10: a second failover may forget what was repeated after the first."""
    world = _World()
    world.lets_go((11, 14))
    assert world.replays() == [(11, 14)]
    world.data.records.clear()
    assert world.replays() == []
    world.run = "run-2"
    world.data.records.clear()
    assert world.replays() == [(11, 14)]


def test_homes_are_repeated_only_to_the_record_that_had_them() -> None:
    """R2: no copy belongs to a record that was made anew."""
    world = _World()
    world.memory.acked_at_home(KEY, 2, 0, [(11, 7)])
    world.memory.acked_at_home(KEY, 3, 0, [(12, 7)])
    assert world.replays() == [(11, 12)]
    assert list(world.data.records[KEY].homes) == [11]
