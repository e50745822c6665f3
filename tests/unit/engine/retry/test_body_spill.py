"""Bodies of messages that wait long lie on the disk, and are back before the message is due."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from ackd.core.ledger.effects import Restore
from ackd.core.ledger.send_back import Rules
from ackd.core.record.operations import Settle
from ackd.core.record.transitions import Verb
from ackd.engine.base.spill_file import Stub
from ackd.engine.base.tasks import Tasks
from ackd.engine.partition.partition import Partition, Policy
from ackd.engine.retry import body_spill as body_spill_module
from ackd.engine.retry.body_spill import AHEAD_MS, FULL_MS, WAIT_MIN_MS, BodySpill
from ackd.ports import Record
from tests.unit.engine.world import World

LONG_MS = 60_000


class TestDisk:
    """Implements `Spill` in memory. `room`: None = it takes all. `broken`: each call fails."""

    __test__ = False

    def __init__(self) -> None:
        self.kept: dict[Stub, Record] = {}
        self.freed: list[Stub] = []
        self.room = True
        self.broken = False
        self.calls: list[tuple[str, int]] = []
        self.goes = asyncio.Event()
        self.goes.set()

    @property
    def taken(self) -> int:
        return len(self.kept)

    async def write(self, records: Sequence[Record]) -> list[Stub] | None:
        self.calls.append(("write", len(records)))
        await self.goes.wait()
        self._check()
        if not self.room:
            return None
        stubs = [Stub(each) for each in records]
        for stub, body in zip(stubs, records, strict=True):
            stub.length = body.size()
            self.kept[stub] = body
        return stubs

    async def read(self, stubs: Sequence[Stub]) -> list[Record]:
        self.calls.append(("read", len(stubs)))
        self._check()
        return [self.kept[each] for each in stubs]

    def _check(self) -> None:
        if self.broken:
            raise OSError("the disk is broken")

    def free(self, stub: Stub) -> None:
        self.freed.append(stub)
        self.kept.pop(stub, None)

    async def close(self) -> None:
        self.kept.clear()


class Scene:
    """A partition of messages of 100 bytes, of which a test delays some."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.disk = TestDisk()
        self.bodies = BodySpill(world.state, world.context, world.partitions, self.disk)
        self.tasks = Tasks("bodies")
        self.partition: Partition

    async def delays(self, *offsets: int, for_ms: int = LONG_MS) -> None:
        """A worker leases these and gives them back with a delay."""
        await self.world.leases(self.partition, len(offsets))
        slots = self.world.data.records[self.partition.key].slots
        for offset in offsets:
            slot = slots[offset]
            op = Settle(Verb.RETRY, offset, slot.fence, slot.rollback_epoch, slot.attempt, for_ms)
            await self.world.flusher.submit(self.partition.handle, [op])
        self.look()

    def look(self) -> None:
        self.bodies.look(self.partition, self.world.clock.monotonic_ms())

    def due_now(self, offset: int) -> None:
        """Its delay is over early, as when an operator ends it."""
        entry = self.partition.ledger.entry(offset)
        assert entry is not None
        entry.due_ms = self.world.clock.monotonic_ms()
        self.bodies.restore(self.partition, offset)

    def held(self, offset: int) -> Record | Stub | None:
        """What memory has of it."""
        entry = self.partition.ledger.entry(offset)
        assert entry is not None
        return entry.body


@pytest.fixture
async def scene(world: World) -> AsyncIterator[Scene]:
    scene = Scene(world)
    scene.partition = await world.owns(0, range(6), size=100)
    scene.tasks.start(scene.bodies.run(), "bodies")
    yield scene
    await scene.tasks.stop()


# --- which bodies


async def test_i8_a_body_that_waits_long_leaves_memory_until_shortly_before_it_is_due(
    scene: Scene,
) -> None:
    before = scene.partition.ledger.bytes
    await scene.delays(0)
    body = scene.held(0)
    await asyncio.sleep(0.01)
    assert isinstance(scene.held(0), Stub)
    assert scene.partition.ledger.bytes < before
    await asyncio.sleep((LONG_MS - AHEAD_MS) / 1000 - 0.5)
    assert isinstance(scene.held(0), Stub)
    await asyncio.sleep(0.5)
    assert scene.held(0) == body
    assert scene.partition.ledger.bytes == before
    assert scene.disk.taken == 0


@pytest.mark.parametrize(("for_ms", "kind"), [(WAIT_MIN_MS, Record), (WAIT_MIN_MS + 5, Stub)])
async def test_what_is_due_soon_stays_in_memory(scene: Scene, for_ms: int, kind: type) -> None:
    await scene.delays(0, for_ms=for_ms)
    await asyncio.sleep(0.001)
    assert isinstance(scene.held(0), kind)


async def test_what_moves_to_the_retry_topic_at_once_is_not_written(scene: Scene) -> None:
    rules = Rules(LONG_MS, LONG_MS, 1_000)
    scene.partition.go_by(Policy(rules, 0, retry_copies=False))
    await scene.delays(0, 1, for_ms=LONG_MS + 10)
    await scene.delays(2, for_ms=LONG_MS // 2)
    await asyncio.sleep(0.01)
    kinds = [isinstance(scene.held(offset), Stub) for offset in range(3)]
    assert kinds == [False, False, True]


async def test_a_body_can_be_read_wherever_it_is(scene: Scene) -> None:
    await scene.delays(0)
    there = await scene.bodies.body(scene.partition, 0)
    await asyncio.sleep(0.01)
    assert isinstance(scene.held(0), Stub)
    assert await scene.bodies.body(scene.partition, 0) == there
    assert isinstance(scene.held(0), Stub)
    assert await scene.bodies.body(scene.partition, 99) is None


async def test_what_is_finished_frees_its_place_at_once(scene: Scene) -> None:
    await scene.delays(0, 1)
    await asyncio.sleep(0.01)
    scene.bodies.free(scene.partition, 0)
    scene.bodies.free(scene.partition, 2)  # its body is in memory
    assert [each.offset for each in scene.disk.freed] == [0]


async def test_a_message_that_is_ready_early_gets_its_body_back_at_once(scene: Scene) -> None:
    await scene.delays(0)
    await asyncio.sleep(0.01)
    scene.due_now(0)
    scene.bodies.restore(scene.partition, 1)
    await asyncio.sleep(0.01)
    assert isinstance(scene.held(0), Record)
    assert scene.disk.calls == [("write", 1), ("read", 1)]


async def test_a_later_due_time_keeps_the_body_on_the_disk(scene: Scene) -> None:
    await scene.delays(0)
    await asyncio.sleep(0.01)
    entry = scene.partition.ledger.entry(0)
    assert entry is not None
    entry.due_ms += LONG_MS
    await asyncio.sleep(LONG_MS / 1000)
    assert isinstance(scene.held(0), Stub)
    await asyncio.sleep((LONG_MS - AHEAD_MS) / 1000)
    assert isinstance(scene.held(0), Record)


# --- what changes while the disk works


async def test_what_changed_during_the_write_leaves_no_bytes_behind(scene: Scene) -> None:
    """One became due, one was finished; the third is written."""
    scene.disk.goes.clear()
    await scene.delays(0, 1, 2)
    await asyncio.sleep(0.01)
    entry = scene.partition.ledger.entry(0)
    assert entry is not None
    entry.due_ms = scene.world.clock.monotonic_ms() + AHEAD_MS
    scene.partition.ledger.finish(1)
    scene.disk.goes.set()
    await asyncio.sleep(0.01)
    assert isinstance(scene.held(0), Record)
    assert sorted(each.offset for each in scene.disk.freed) == [0, 1]
    assert isinstance(scene.held(2), Stub)


async def test_a_partition_that_was_given_up_leaves_no_bytes_behind(scene: Scene) -> None:
    scene.disk.goes.clear()
    await scene.delays(0)
    await asyncio.sleep(0.01)
    scene.partition.closed = True
    scene.disk.goes.set()
    await asyncio.sleep(0.01)
    assert [each.offset for each in scene.disk.freed] == [0]


async def test_bytes_of_a_partition_that_was_given_up_later_are_freed_when_they_were_due(
    scene: Scene,
) -> None:
    await scene.delays(0)
    await asyncio.sleep(0.01)
    scene.partition.closed = True
    await asyncio.sleep(LONG_MS / 1000)
    assert scene.disk.taken == 0
    assert scene.disk.calls == [("write", 1)]


# --- the disk fails


@pytest.mark.parametrize("fault", ["room", "broken"])
async def test_i8_without_a_disk_bodies_stay_and_count(scene: Scene, fault: str) -> None:
    """They hold back fetching instead."""
    before = scene.partition.ledger.bytes
    if fault == "room":
        scene.disk.room = False
    else:
        scene.disk.broken = True
    await scene.delays(0)
    await asyncio.sleep(0.01)
    assert isinstance(scene.held(0), Record)
    assert scene.partition.ledger.bytes == before
    scene.disk.room, scene.disk.broken = True, False
    await scene.delays(1)
    await asyncio.sleep(0.01)
    assert isinstance(scene.held(1), Stub)


async def test_i1_a_body_that_cannot_be_read_back_is_fetched_again(scene: Scene) -> None:
    await scene.delays(0, 1)
    await asyncio.sleep(0.01)
    scene.disk.broken = True
    fetches = len(scene.world.consumer.fetched_from)
    await asyncio.sleep(LONG_MS / 1000)
    assert scene.held(0) is None
    assert [at for _, at in scene.world.consumer.fetched_from[fetches:]] == [0]
    assert sorted(each.offset for each in scene.disk.freed) == [0, 1]
    scene.world.fetches(scene.partition, range(2), size=100)
    assert isinstance(scene.held(0), Record)


async def test_i1_a_reader_that_meets_a_broken_disk_is_told_to_wait(scene: Scene) -> None:
    await scene.delays(0)
    await asyncio.sleep(0.01)
    scene.disk.broken = True
    assert await scene.bodies.body(scene.partition, 0) is None
    assert scene.world.consumer.fetched_from[-1][1] == 0


# --- bounds


async def test_i8_bodies_come_back_only_where_there_is_room(scene: Scene) -> None:
    await scene.delays(0)
    await asyncio.sleep(0.01)
    scene.world.sets(window_bytes_max=500)
    scene.due_now(0)
    await asyncio.sleep(1)
    assert isinstance(scene.held(0), Stub)
    scene.world.sets(window_bytes_max=600)
    await asyncio.sleep(FULL_MS / 1000 + 0.01)
    assert isinstance(scene.held(0), Record)


async def test_i5_with_nothing_ready_a_full_window_holds_no_body_back(scene: Scene) -> None:
    """Else nobody would ever make room."""
    await scene.delays(0, 1, 2, 3, 4, 5)
    await asyncio.sleep(0.01)
    scene.world.sets(window_bytes_max=1)
    scene.due_now(0)
    await asyncio.sleep(0.01)
    assert isinstance(scene.held(0), Record)


async def test_i8_batches_have_a_bound_in_messages_and_one_in_bytes(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(body_spill_module, "BATCH_MAX", 2)
    await scene.delays(0, 1, 2)
    await asyncio.sleep(0.01)
    assert scene.disk.calls == [("write", 2), ("write", 1)]
    await asyncio.sleep(LONG_MS / 1000)
    assert scene.disk.calls[2:] == [("read", 2), ("read", 1)]
    monkeypatch.setattr(body_spill_module, "BATCH_MAX", 500)
    monkeypatch.setattr(body_spill_module, "BATCH_BYTES_MAX", 150)
    await scene.delays(*range(3, 6), for_ms=2 * LONG_MS)
    await asyncio.sleep(0.01)
    assert scene.disk.calls[4:] == [("write", 2), ("write", 1)]


async def test_a_stub_of_a_copy_keeps_its_name(scene: Scene) -> None:
    """Operators see the name of a message whose body is on the disk; a plain one needs none."""
    await scene.delays(0)
    await asyncio.sleep(0.01)
    held = scene.held(0)
    assert isinstance(held, Stub)
    assert held.name == ""
    assert scene.partition.copies.name_of(0) == "orders/0/0"
    effects = [each for each in scene.world.events.effects if isinstance(each, Restore)]
    assert effects == []
    await scene.bodies.close()
    assert scene.disk.taken == 0
