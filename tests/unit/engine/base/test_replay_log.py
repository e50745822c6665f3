"""What a sidecar repeats after a rollback: its acks, and what a fenced owner knew (R10)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from ackd.core.bitmap import ChunkedBitmap
from ackd.core.ids import LedgerKey
from ackd.core.ledger.sent_back import Lease, LeftOpen, SentBack
from ackd.core.record.operations import Op, Reset
from ackd.core.record.protocol import CallStatus, Open, RecordCall, RecordReply
from ackd.core.record.transitions import State
from ackd.engine.base.replay_log import (
    KEEP_MS,
    LEDGERS_MAX,
    REPLAY_WAIT_MS,
    UNOPENED_WAIT_MS,
    ReplayLog,
)
from ackd.errors import StoreError
from ackd.store.flusher import Flusher, LedgerHandle
from ackd.store.memory import Data, MemoryStore
from tests.support.wait import wait_until_async

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
        self.replay_log = ReplayLog(self.flusher, self.clock, lambda: self.run)
        self.run = "run-1"

    def lets_go(self, *ranges: tuple[int, int], epoch: int = 0, key: LedgerKey = KEY) -> None:
        finished = ChunkedBitmap()
        for start, end in ranges:
            finished.add_range(start, end)
        self.replay_log.released(LedgerHandle(key), epoch, finished, LeftOpen(SentBack(), []))

    def replays(self, *before: Op) -> list[tuple[int, int]]:
        """The ranges that the record has finished after it."""
        return asyncio.run(self._replay(before))

    async def _replay(self, before: tuple[Op, ...]) -> list[tuple[int, int]]:
        await self.store.open(Open(KEY, "b#1", 1, 2, 0, create_at=10))
        await self.store.apply([RecordCall(KEY, list(before))])
        self.flusher = self.replay_log._flusher = Flusher(self.store)  # queues belong to one loop
        async with asyncio.TaskGroup() as group:
            running = group.create_task(self.flusher.run())
            await self.replay_log.replay("another")
            await self.replay_log.replay(KEY.subscription)
            running.cancel()
        return list(self.data.records[KEY].finished.ranges(0))


def test_a_fenced_owner_repeats_what_it_knew() -> None:
    world = _World()
    world.lets_go((4, 12), (20, 5_000))
    world.replay_log.acked(KEY, 0, [13, 15])
    assert world.replays() == [(10, 12), (13, 14), (15, 16), (20, 5_000)]


def test_an_epoch_of_before_is_not_repeated() -> None:
    """R8: an operator has reset the group since."""
    world = _World()
    world.lets_go((11, 14))
    world.lets_go((20, 21), epoch=1)
    world.replay_log.acked(KEY, 0, [16])
    world.replay_log.acked(KEY, 1, [23])
    assert world.replays(Reset(10)) == [(20, 21), (23, 24)]


def test_what_is_remembered_is_bounded_in_time() -> None:
    """I8."""
    world = _World()
    world.lets_go((11, 14))
    world.clock.now_ms += KEEP_MS + 1
    world.replay_log.purge()
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


def test_origin_records_are_repeated_only_to_the_record_that_had_them() -> None:
    """R2: no copy belongs to a record that was made anew."""
    world = _World()
    world.replay_log.acked_in_origin(KEY, 2, 0, [(11, 7)])
    world.replay_log.acked_in_origin(KEY, 3, 0, [(12, 7)])
    assert world.replays() == [(11, 12)]
    assert list(world.data.records[KEY].origins) == [11]


def test_i3_an_extension_that_was_forgotten_is_repeated_as_it_was_last() -> None:
    """R10: the owner may never have heard of it."""
    world = _World()
    now_ms = world.clock.now_ms
    early, late = (Lease(11, 7, 3, 2, now_ms + more_ms) for more_ms in (5_000, 60_000))
    world.replay_log.extended(KEY, [early, Lease(12, 7, 3, 2, now_ms - 1)])
    world.replay_log.extended(KEY, [late])
    assert world.replays() == []
    slots, record = world.data.records[KEY].slots, world.data.records[KEY]
    assert list(slots) == [11]
    assert (slots[11].state, slots[11].fence, slots[11].attempt) == (State.LEASED, 7, 2)
    assert slots[11].when_ms == record.clock_ms + 60_000


def test_extensions_are_remembered_for_a_while() -> None:
    """I8."""
    world = _World()
    world.replay_log.extended(KEY, [Lease(11, 7, 3, 2, world.clock.now_ms + 600_000)])
    world.clock.now_ms += KEEP_MS + 1
    assert world.replays() == []
    assert not world.data.records[KEY].slots


def test_i2_a_record_may_have_no_owner_for_long() -> None:
    """R10: its repair begins when it is re-opened, and leases end when they were told to."""
    world = _World()
    now_ms = world.clock.now_ms
    world.replay_log.acked(KEY, 0, [13])
    world.replay_log.extended(
        KEY, [Lease(11, 7, 3, 2, now_ms + 5_000), Lease(12, 7, 3, 2, now_ms + 90_000)]
    )
    store = _Refusing(world.data, run="run-2")
    asyncio.run(_reopened_after(world, store, REPLAY_WAIT_MS + 1_000))
    record = world.data.records[KEY]
    assert list(record.finished.ranges(0)) == [(13, 14)]
    assert list(record.slots) == [12]
    assert record.slots[12].when_ms <= record.clock_ms + 90_000 - REPLAY_WAIT_MS - 1_000


def test_i8_a_record_that_nobody_opens_again_is_given_up() -> None:
    world = _World()
    world.replay_log.acked(KEY, 0, [13])
    store = _Refusing(world.data, run="run-2")
    asyncio.run(_reopened_after(world, store, UNOPENED_WAIT_MS + 1))
    assert not list(world.data.records[KEY].finished.ranges(0))


def test_i8_a_replay_ends_when_the_server_changes_again() -> None:
    """The next one repeats all of it: there are never many side by side."""
    world = _World()
    world.replay_log.acked(KEY, 0, [13])
    asyncio.run(_changes_again(world, _Refusing(world.data, run="run-2")))
    assert not list(world.data.records[KEY].finished.ranges(0))


async def _changes_again(world: _World, store: _Refusing) -> None:
    async with _replaying(world, store) as replay:
        world.run = ""
        await _more(store, replay)
        assert not replay.done()
        world.run = "run-3"


def test_i2_a_replay_goes_on_when_the_store_was_away_before_it() -> None:
    """R10: the same run is back, to which nobody replays again."""
    world = _World()
    world.run = ""
    world.replay_log.acked(KEY, 0, [13])
    asyncio.run(_is_back(world, _Refusing(world.data, run="run-2")))
    assert list(world.data.records[KEY].finished.ranges(0)) == [(13, 14)]


async def _is_back(world: _World, store: _Refusing) -> None:
    async with _replaying(world, store) as replay:
        world.run = "run-1"
        await _more(store, replay)
        await store.open(Open(KEY, "b#2", 4, 2, 0))


def test_i2_a_replay_goes_on_when_the_store_was_away_in_its_middle() -> None:
    """R10: between what is about origin records and the acks."""
    world = _World()
    world.store = _AwayOnce(world)
    world.replay_log.acked_in_origin(KEY, 2, 0, [(11, 7)])
    world.replay_log.acked(KEY, 0, [13])
    assert world.replays() == [(11, 12), (13, 14)]


class _AwayOnce(MemoryStore):
    """Cut off behind the first replay; back, as the same run, behind one that failed."""

    def __init__(self, world: _World) -> None:
        super().__init__(world.data)
        self._world = world

    async def apply(self, calls: Sequence[RecordCall]) -> list[RecordReply]:
        if not self._world.run:
            self._world.run = "run-1"
            raise StoreError
        if any(call.ops for call in calls):
            self._world.run = ""
        return await super().apply(calls)


class _Refusing(MemoryStore):
    """Counts calls that a record of another run has refused."""

    refused = 0

    async def apply(self, calls: Sequence[RecordCall]) -> list[RecordReply]:
        replies = await super().apply(calls)
        self.refused += sum(each.verdict is CallStatus.MOVED for each in replies)
        return replies


async def _reopened_after(world: _World, store: _Refusing, wait_ms: int) -> None:
    """Replays meet a record of another run until it is re-opened."""
    async with _replaying(world, store) as replay:
        world.clock.now_ms += wait_ms
        await _more(store, replay)
        await store.open(Open(KEY, "b#2", 4, 2, 0))


@asynccontextmanager
async def _replaying(world: _World, store: _Refusing) -> AsyncIterator[asyncio.Task[None]]:
    """A replay whose first calls were refused; its end is waited for on the way out."""
    await world.store.open(Open(KEY, "b#1", 1, 2, 0, create_at=10))
    flusher = world.replay_log._flusher = Flusher(store)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(flusher.run())
        replay = group.create_task(world.replay_log.replay(KEY.subscription))
        await _more(store, replay)
        yield replay
        await replay
        running.cancel()


async def _more(store: _Refusing, replay: asyncio.Task[None]) -> None:
    seen = store.refused

    async def refused() -> bool:
        return store.refused > seen or replay.done()

    await wait_until_async(refused, "another call is refused")
