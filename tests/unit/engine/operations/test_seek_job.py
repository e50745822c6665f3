"""A seek moves each partition once, whenever it is stopped, and spares who works (R8, I3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from ackd.api.dead_letters import Progress
from ackd.core.ids import LedgerKey
from ackd.core.origin import Origin
from ackd.core.record.operations import Advance, Gap, Grant, MarkDead, Op, PlaceCopy, Reset
from ackd.core.record.protocol import Open, RecordReply
from ackd.core.record.state import PartitionRecord
from ackd.core.record.transitions import State
from ackd.engine.cluster.members import MemberNote, write_note
from ackd.engine.operations.archive import NoRightError
from ackd.engine.operations.seek_document import SeekDocument, SeekTarget, Stage
from ackd.engine.operations.seek_job import SPREAD_MS, SeekJob
from ackd.engine.ownership import undo
from ackd.engine.partition.copy_headers import RetryCopy
from ackd.errors import BrokerError, StoreError
from ackd.ports import Member, Members
from ackd.store.flusher import LedgerHandle
from tests.unit.engine.operation_stage import OperationStage
from tests.unit.engine.retry_stage import RETRY_ID, RETRY_TOPIC
from tests.unit.engine.world import LEASE_MS, NAME, TOPIC, TOPIC_ID, World

COPIES = LedgerKey("cluster", NAME, RETRY_ID, 0)
HELD = 10 * LEASE_MS


def key(number: int) -> LedgerKey:
    return LedgerKey("cluster", NAME, TOPIC_ID, number)


def copy_of(offset: int, number: int = 0) -> RetryCopy:
    origin = Origin("cluster", TOPIC_ID, TOPIC, number, offset)
    return RetryCopy(origin, NAME, *(9, 7, 5, 4, 0, 900, 800))


class Scene(OperationStage):
    """Two partitions, of which 0 to 9 are finished and 12 to 13."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.document: SeekDocument

    async def has(self, at: LedgerKey, *ops: Op, start: int = 0) -> None:
        """The record of a former owner, after these."""
        handle = LedgerHandle(at)
        asked = Open(at, "pod-9", 1, 1, 0, create_at=start)
        await self.world.flusher.open(asked, handle)
        if ops:
            await self.world.flusher.submit(handle, ops)

    async def begin(self) -> None:
        for number in range(2):
            await self.has(key(number), Gap(0, 10), Gap(12, 14))

    def asks(self, offset: int, *, increase_only: bool = False, **more: object) -> None:
        targets = [
            SeekTarget(TOPIC, TOPIC_ID.hex(), number, offset, **more)  # type: ignore[arg-type]
            for number in range(2)
        ]
        self.document = SeekDocument(
            kind="seek",
            id="op",
            subscription=NAME,
            to="positions",
            increase_only=increase_only,
            targets=targets,
            created_ms=1,
        )

    async def runs(self, *, anew: bool = False) -> None:
        """One attempt. `anew`: of another process, which knows what the store has."""
        if anew:
            found = await self.archive.read("op")
            assert isinstance(found, SeekDocument)
            self.document = found
        world = self.world
        job = SeekJob(
            world.state,
            world.context,
            world.membership,
            self.control,
            self.records,
            RETRY_TOPIC,
            lambda *_: None,
            self.keep_right,
            self.document,
        )
        await job.run()

    def record(self, at: LedgerKey) -> PartitionRecord:
        return self.world.data.records[at]

    def position(self, number: int = 0) -> tuple[int, int]:
        """(reset epoch, watermark) of a partition."""
        record = self.record(key(number))
        return record.epoch, record.finished.first_clear(record.watermark)


@pytest.fixture
async def scene(world: World) -> Scene:
    scene = Scene(world)
    await scene.begin()
    return scene


# --- the partitions


async def test_r8_each_partition_begins_a_new_epoch_at_its_target(scene: Scene) -> None:
    scene.asks(4)
    await scene.runs()
    document = scene.document
    assert (document.state, document.moved, document.skipped) == (Progress.DONE, 2, 0)
    assert [scene.position(number) for number in range(2)] == [(1, 4), (1, 4)]
    assert 12 not in scene.record(key(0)).finished
    assert scene.world.state.live.halt is None


async def test_ranges_that_stay_finished_are_written(scene: Scene) -> None:
    scene.asks(4, finished=[(4, 6), (8, 9)])
    await scene.runs()
    record = scene.record(key(0))
    assert scene.position() == (1, 6)
    assert 8 in record.finished
    assert 7 not in record.finished


async def test_r8_the_window_of_before_is_kept_for_an_undo(scene: Scene) -> None:
    scene.asks(4)
    await scene.runs()
    kept = await undo.kept(scene.world.store, key(0))
    assert kept is not None
    assert (kept.offset, kept.finished, kept.epoch) == (10, [(12, 14)], 0)


async def test_r8_a_reset_that_was_done_is_not_done_again(scene: Scene) -> None:
    """Stopped after the call and before its document: acks since then are kept."""
    scene.asks(4)
    scene.document.stage = Stage.RESET
    scene.document.targets[0].epoch = 0
    await scene.has(key(0), Reset(4))
    await scene.has(key(0), Gap(4, 5))
    await scene.runs()
    assert [scene.position(number) for number in range(2)] == [(1, 5), (1, 4)]
    assert await undo.kept(scene.world.store, key(0)) is None


async def test_r8_stopped_at_any_moment_it_ends_in_the_same_place(world: World) -> None:
    """Whoever goes on reads only the document."""
    rights = 0
    while True:
        scene = Scene(world)
        world.data.records.clear()
        world.data.values.clear()
        await scene.begin()
        scene.asks(4)
        await scene.archive.write(scene.document)
        scene.rights = rights
        try:
            await scene.runs(anew=True)
            break
        except NoRightError:
            scene.rights = None
            await scene.runs(anew=True)
        assert [scene.position(number) for number in range(2)] == [(1, 4), (1, 4)], rights
        assert scene.document.moved == 2
        rights += 1
    assert rights > 5


async def test_r8_killed_right_after_a_reset_it_is_not_done_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The epoch of before is in the document first; the window for an undo stays that of before."""
    decide = scene.records.decide

    async def killed(handle: LedgerHandle, ops: Sequence[Op]) -> RecordReply:
        await decide(handle, ops)
        raise StoreError("killed")

    scene.asks(4)
    with monkeypatch.context() as patch:
        patch.setattr(scene.records, "decide", killed)
        with pytest.raises(StoreError):
            await scene.runs()
    assert scene.position() == (1, 4)
    await scene.runs(anew=True)
    assert [scene.position(number) for number in range(2)] == [(1, 4), (1, 4)]
    kept = await undo.kept(scene.world.store, key(0))
    assert kept is not None
    assert (kept.offset, kept.epoch) == (10, 0)


async def test_a_partition_without_a_record_gets_one_at_its_target(scene: Scene) -> None:
    del scene.world.data.records[key(1)]
    scene.asks(4)
    await scene.runs()
    assert scene.position(1)[1] == 4
    assert await undo.kept(scene.world.store, key(1)) is None


# --- who works is spared


async def test_i3_a_message_under_lease_keeps_its_holder(scene: Scene) -> None:
    await scene.has(key(0), Grant.of(11, HELD, 1))
    fence = scene.record(key(0)).slots[11].fence
    scene.asks(4)
    await scene.runs()
    slot = scene.record(key(0)).slots[11]
    assert (slot.state, slot.fence) == (State.LEASED, fence)


async def test_i3_a_message_whose_copy_is_under_lease_does_not_come_twice(scene: Scene) -> None:
    """The copy goes on, its original is passed over; other copies of what comes again end."""
    for offset in (5, 6, 2):
        scene.broker.writes(RETRY_TOPIC, copy_of(offset))
    await scene.has(COPIES, *(PlaceCopy(at) for at in range(3)), Grant.of(0, HELD, 1))
    scene.asks(4)
    await scene.runs()
    copies = scene.record(COPIES)
    assert copies.slots[0].state is State.LEASED
    assert [copies.over(at) for at in range(3)] == [False, True, False]
    record = scene.record(key(0))
    assert (5 in record.finished, 6 in record.finished) == (True, False)
    assert scene.document.copies == 1


async def test_a_copy_on_its_way_to_the_dead_letters_ends_with_the_seek(scene: Scene) -> None:
    scene.broker.writes(RETRY_TOPIC, copy_of(6))
    await scene.has(COPIES, PlaceCopy(0), MarkDead(0))
    scene.asks(4)
    await scene.runs()
    assert scene.document.state is Progress.DONE
    assert 6 not in scene.record(key(0)).finished


async def test_copies_of_other_messages_are_left_alone(scene: Scene) -> None:
    far = replace(copy_of(6), origin=replace(copy_of(6).origin, cluster="far"))
    for retry_copy in (copy_of(3), copy_of(6, number=7), far, None):
        scene.broker.writes(RETRY_TOPIC, retry_copy)
    await scene.has(COPIES)
    scene.asks(4)
    await scene.runs()
    assert scene.document.copies == 0
    assert not any(scene.record(COPIES).over(at) for at in range(4))


# --- forward only


async def test_r8_increase_only_makes_nothing_unfinished(scene: Scene) -> None:
    await scene.has(key(1), Gap(10, 30), Advance(30))
    scene.asks(20, increase_only=True)
    await scene.runs()
    assert (scene.document.moved, scene.document.skipped) == (1, 1)
    assert [scene.position(number) for number in range(2)] == [(0, 20), (0, 30)]


async def test_increase_only_stops_before_who_works(scene: Scene) -> None:
    await scene.has(key(0), Grant.of(15, HELD, 1))
    scene.asks(20, increase_only=True)
    await scene.runs()
    record = scene.record(key(0))
    assert scene.position() == (0, 15)
    assert record.slots[15].state is State.LEASED
    assert all(offset in record.finished for offset in range(16, 20))


# --- nobody else works on the records


def sees(scene: Scene, note: MemberNote) -> None:
    """Another sidecar lives and says this."""
    member = Member("pod-2", 1, 0, "", (), write_note(note))
    found = Members(scene.world.clock.wall_ms(), (member,), superseded=False)
    scene.world.membership.view.update(found, [], beating_ms=60_000)


@pytest.mark.parametrize(
    ("halted", "waits_ms"), [("op", range(500)), ("", range(SPREAD_MS, SPREAD_MS + 200))]
)
async def test_i3_it_waits_until_nobody_grants(scene: Scene, halted: str, waits_ms: range) -> None:
    """Until each sidecar says so, or by now it has lost the right to grant."""
    sees(scene, MemberNote(halted=halted))
    scene.asks(4)
    began_ms = scene.world.clock.monotonic_ms()
    await scene.runs()
    assert scene.world.clock.monotonic_ms() - began_ms in waits_ms


async def test_a_halt_that_the_store_forgot_is_made_again(scene: Scene) -> None:
    scene.asks(4)
    scene.document.stage = Stage.RESET
    await scene.control.halt("another")
    await scene.runs()
    assert scene.document.state is Progress.DONE
    assert scene.world.state.live.halt is None


# --- faults


async def test_a_cancel_ends_it_before_the_next_partition(scene: Scene) -> None:
    scene.asks(4)
    await scene.archive.write(scene.document)
    await scene.archive.cancel("op")
    await scene.runs()
    assert (scene.document.state, scene.document.moved) == (Progress.CANCELLED, 0)
    assert [scene.position(number) for number in range(2)] == [(0, 10), (0, 10)]
    assert scene.world.state.live.halt is None


async def test_r10_a_reset_that_the_store_forgot_is_done_again(scene: Scene) -> None:
    scene.asks(4)
    scene.document.stage = Stage.CHECK
    for target in scene.document.targets:
        target.epoch, target.done = 0, True
    scene.document.moved = 2
    await scene.has(key(1), Reset(4))
    await scene.runs()
    assert [scene.position(number) for number in range(2)] == [(1, 4), (1, 4)]
    assert (scene.document.state, scene.document.moved) == (Progress.DONE, 2)


async def test_without_the_store_nothing_is_said_to_be_done(scene: Scene) -> None:
    scene.asks(4)
    scene.world.store.away = True
    with pytest.raises(StoreError):
        await scene.runs()
    assert scene.document.moved == 0
    scene.world.store.away = False
    await scene.runs()
    assert scene.document.state is Progress.DONE


async def test_without_the_broker_no_partition_moves(scene: Scene) -> None:
    """Nobody knows which copies are under lease."""
    scene.broker.away = True
    scene.asks(4)
    with pytest.raises(BrokerError):
        await scene.runs()
    assert scene.position() == (0, 10)
    assert scene.document.state is Progress.RUNNING
