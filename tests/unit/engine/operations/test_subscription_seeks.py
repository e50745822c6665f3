"""Where a seek would put each partition, and what that would bring again or pass over (R8)."""

from __future__ import annotations

import pytest

from ackd.api.progress import PartitionPlan, Position, SeekRequest, SeekTo
from ackd.core.ids import LedgerKey, TopicPartition
from ackd.core.record.operations import Gap, Grant, Op
from ackd.core.record.protocol import Open
from ackd.engine.operations.archive import AnyDocument, KeepRight, OperationJob
from ackd.engine.operations.operation_runner import Operations
from ackd.engine.operations.seek_document import SeekDocument
from ackd.engine.operations.subscription_seeks import SubscriptionSeeks, plan
from ackd.engine.ownership import undo
from ackd.errors import BadParameterError, BrokerError, NothingToUndoError, NotPausedError
from ackd.ports import TopicInfo
from ackd.store.flusher import LedgerHandle
from tests.unit.engine.operation_stage import OperationStage
from tests.unit.engine.retry_stage import RETRY_ID, RETRY_TOPIC
from tests.unit.engine.world import LEASE_MS, NAME, TOPIC, TOPIC_ID, World

KEY = LedgerKey("cluster", NAME, TOPIC_ID, 0)
TP = TopicPartition(TOPIC, 0)


def no_work(document: AnyDocument, keep_right: KeepRight) -> OperationJob:
    raise NotImplementedError(document, keep_right)


class Scene(OperationStage):
    """One partition, its log from 5 to 50, of which 0 to 19 and 30 to 39 are finished; 45 is under
    lease.
    """

    def __init__(self, world: World) -> None:
        super().__init__(world)
        world.state.health.joined = True
        world.consumer.known = [
            TopicInfo(TOPIC, TOPIC_ID, 1),
            TopicInfo(RETRY_TOPIC, RETRY_ID, 1),
        ]
        world.consumer.logs[TP] = (5, 50)
        operations = Operations(
            world.state, world.context, self.control.end_halt, self.marks, no_work
        )
        self.seeks = SubscriptionSeeks(
            world.state, world.context, self.control, self.records, RETRY_TOPIC, operations
        )

    async def has(self, *ops: Op) -> None:
        handle = LedgerHandle(KEY)
        await self.world.flusher.open(Open(KEY, "pod-9", 1, 1, 0, create_at=0), handle)
        await self.world.flusher.submit(handle, ops)

    async def goes(self, to: SeekTo, **more: object) -> Position:
        (place,) = await self.seeks.places(SeekRequest(to, **more))  # type: ignore[arg-type]
        assert place.to is not None
        return place.to

    async def would(self, offset: int, *finished: tuple[int, int], **more: bool) -> PartitionPlan:
        positions = (Position(TOPIC, 0, offset, finished),)
        request = SeekRequest(SeekTo.POSITIONS, positions=positions, **more)
        (found,) = plan(await self.seeks.places(request), request).partitions
        return found


@pytest.fixture
async def scene(world: World) -> Scene:
    scene = Scene(world)
    await scene.has(Gap(0, 20), Gap(30, 40), Grant.of(45, 10 * LEASE_MS, 1))
    return scene


# --- where to


async def test_each_way_of_naming_a_place(scene: Scene) -> None:
    assert (await scene.goes(SeekTo.EARLIEST)).offset == 5
    assert (await scene.goes(SeekTo.LATEST)).offset == 50
    assert (await scene.goes(SeekTo.TIME, time_ms=33)).offset == 33
    here = (Position(TOPIC, 0, 7),)
    assert (await scene.goes(SeekTo.POSITIONS, positions=here)).offset == 7


@pytest.mark.parametrize(("offset", "inside"), [(0, 5), (4, 5), (51, 50), (50, 50)])
async def test_a_place_is_within_the_log(scene: Scene, offset: int, inside: int) -> None:
    found = await scene.goes(SeekTo.POSITIONS, positions=(Position(TOPIC, 0, offset),))
    assert found.offset == inside


async def test_ranges_that_stay_finished_are_cut_to_the_log(scene: Scene) -> None:
    finished = ((0, 8), (9, 9), (20, 25), (48, 99), (60, 70))
    found = await scene.goes(SeekTo.POSITIONS, positions=(Position(TOPIC, 0, 6, finished),))
    assert found.finished == ((6, 8), (20, 25), (48, 50))


async def test_r8_before_the_last_reset_is_where_it_was(scene: Scene) -> None:
    with pytest.raises(NothingToUndoError):
        await scene.seeks.places(SeekRequest(SeekTo.BEFORE_RESET))
    snapshot = await scene.records.peek(KEY)
    assert snapshot is not None
    await undo.keep(scene.world.store, KEY, snapshot)
    await scene.has(Gap(20, 30))
    found = await scene.goes(SeekTo.BEFORE_RESET)
    assert (found.offset, found.finished) == (20, ((30, 40),))


async def test_the_retry_topic_is_no_place_to_go(scene: Scene) -> None:
    assert len(await scene.seeks.places(SeekRequest(SeekTo.EARLIEST))) == 1
    with pytest.raises(BadParameterError):
        await scene.goes(SeekTo.POSITIONS, positions=(Position(RETRY_TOPIC, 0, 1),))


async def test_r1_positions_of_another_topic_of_that_name_are_refused(scene: Scene) -> None:
    """An export may be older than the topic."""
    mine = Position(TOPIC, 0, 7, topic_id=TOPIC_ID.hex())
    assert (await scene.goes(SeekTo.POSITIONS, positions=(mine,))).offset == 7
    for other in (Position(TOPIC, 0, 7, topic_id=bytes(16).hex()), Position(TOPIC, 1, 7)):
        with pytest.raises(BadParameterError):
            await scene.goes(SeekTo.POSITIONS, positions=(other,))


async def test_before_the_group_is_joined_nobody_knows(scene: Scene) -> None:
    scene.world.state.health.joined = False
    with pytest.raises(BrokerError):
        await scene.seeks.places(SeekRequest(SeekTo.EARLIEST))


# --- what it would do


async def test_back_brings_what_was_finished_and_keeps_who_works(scene: Scene) -> None:
    found = await scene.would(10)
    assert (found.again, found.skipped, found.leases_kept) == (10 + 10, 0, 1)


async def test_ahead_passes_over_what_was_unfinished(scene: Scene) -> None:
    found = await scene.would(46)
    assert (found.again, found.skipped, found.leases_kept) == (0, 10 + 6, 0)


async def test_ranges_that_stay_finished_come_again_in_neither_way(scene: Scene) -> None:
    found = await scene.would(10, (12, 15), (25, 35))
    assert (found.again, found.skipped) == (20 - 3 - 5, 5)


async def test_increase_only_brings_nothing_again(scene: Scene) -> None:
    found = await scene.would(10, increase_only=True)
    assert (found.again, found.skipped, found.to_offset) == (0, 0, 20)
    found = await scene.would(25, increase_only=True)
    assert (found.again, found.skipped) == (0, 5)


async def test_of_a_partition_without_a_record_nothing_is_known(scene: Scene) -> None:
    del scene.world.data.records[KEY]
    found = await scene.would(10)
    assert (found.again, found.skipped, found.leases_kept) == (0, 0, 0)


async def test_an_export_has_the_form_that_an_import_takes(scene: Scene) -> None:
    places = await scene.seeks.places(SeekRequest(SeekTo.EARLIEST))
    (found,) = scene.seeks.export(places).partitions
    assert (found.topic, found.topic_id, found.partition) == (TOPIC, TOPIC_ID.hex(), 0)
    assert (found.offset, list(found.finished)) == (20, [(30, 40)])


# --- beginning


async def test_a_seek_begins_only_while_the_group_is_paused(scene: Scene) -> None:
    with pytest.raises(NotPausedError):
        await scene.seeks.check_paused()
    await scene.control.pause("pod", "", None)
    with pytest.raises(NotPausedError):
        await scene.seeks.check_paused()
    await scene.control.pause("group", "", None)
    await scene.seeks.check_paused()


async def test_what_begins_is_what_was_looked_at(scene: Scene) -> None:
    request = SeekRequest(
        SeekTo.POSITIONS, positions=(Position(TOPIC, 0, 7, ((9, 12),)),), imported=True
    )
    view = await scene.seeks.start(request, await scene.seeks.places(request))
    document = await scene.archive.read(view.id)
    assert isinstance(document, SeekDocument)
    assert (document.kind, document.to, document.increase_only) == ("import", "positions", False)
    (target,) = document.targets
    assert (target.offset, target.finished, target.epoch) == (7, [(9, 12)], None)
