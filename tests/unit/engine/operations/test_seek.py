"""Progress of all subscriptions: exports, dry runs and seeks, and how many look at once (R8)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from ackd.api.dead_letters import OperationView
from ackd.api.progress import Position, SeekPlan, SeekRequest, SeekTo
from ackd.core.ids import TopicPartition
from ackd.engine.operations import subscription_seeks
from ackd.engine.operations.archive import AnyDocument, KeepRight, OperationJob
from ackd.engine.operations.operation_runner import Operations
from ackd.engine.operations.seek import LOOKS_MAX, Seeks
from ackd.engine.operations.subscription_seeks import SeekPlace, SubscriptionSeeks
from ackd.engine.parts_by_name import ByName
from ackd.errors import (
    BrokerError,
    NotPausedError,
    NotSupportedError,
    OperationRunningError,
    PressureError,
    UnknownSubscriptionError,
)
from ackd.ports import AssignedPlace, Source, TopicInfo
from tests.unit.engine.operation_stage import OperationStage
from tests.unit.engine.retry_stage import RETRY_TOPIC
from tests.unit.engine.world import NAME, TOPIC, TOPIC_ID, TestConsumer, World

EARLIEST = SeekRequest(SeekTo.EARLIEST)
DRY = SeekRequest(SeekTo.POSITIONS, positions=(Position(TOPIC, 0, 7),), dry_run=True)


class AckingConsumer(TestConsumer):
    """Of a broker that keeps an ack for each message."""

    hold_ms = 30_000

    def placed(self, topic: str, message: bytes, place: AssignedPlace) -> None: ...

    def unwanted(self, topic: str, message: bytes) -> None: ...

    def finished(self, partition: TopicPartition, offsets: Sequence[int]) -> None: ...

    def kept(self, topic: str) -> list[tuple[bytes, AssignedPlace]]:
        return []

    def source(self, partition: TopicPartition) -> Source:
        return Source(partition.topic, "broker", partition.partition, gone=False)


def no_work(document: AnyDocument, keep_right: KeepRight) -> OperationJob:
    raise NotImplementedError(document, keep_right)


class Scene(OperationStage):
    """One partition of ten messages that nobody has read. `go`: looks wait for it."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        world.state.health.joined = True
        world.consumer.known = [TopicInfo(TOPIC, TOPIC_ID, 1)]
        world.consumer.logs[TopicPartition(TOPIC, 0)] = (0, 10)
        operations = Operations(
            world.state, world.context, self.control.end_halt, self.marks, no_work
        )
        self.part = SubscriptionSeeks(
            world.state, world.context, self.control, self.records, RETRY_TOPIC, operations
        )
        self.seeks = Seeks(ByName({NAME: self.part}))
        self.go = asyncio.Event()
        self.go.set()
        self.looking = 0

    async def holds(self, request: SeekRequest) -> Sequence[SeekPlace]:
        """Look only when `go` is set."""
        self.looking += 1
        await self.go.wait()
        return await subscription_seeks.SubscriptionSeeks.places(self.part, request)


@pytest.fixture
async def scene(world: World, monkeypatch: pytest.MonkeyPatch) -> Scene:
    scene = Scene(world)
    monkeypatch.setattr(scene.part, "places", scene.holds)
    return scene


async def test_a_dry_run_needs_no_pause_and_changes_nothing(world: World, scene: Scene) -> None:
    found = await scene.seeks.seek(NAME, DRY)
    assert isinstance(found, SeekPlan)
    (there,) = found.partitions
    assert (there.topic, there.to_offset) == (TOPIC, 7)
    assert world.data.records == {}


async def test_a_seek_of_a_group_that_works_is_refused_before_anything_is_read(
    scene: Scene,
) -> None:
    with pytest.raises(NotPausedError):
        await scene.seeks.seek(NAME, EARLIEST)
    assert scene.looking == 0


async def test_a_seek_of_a_paused_group_becomes_an_operation(scene: Scene) -> None:
    await scene.control.pause("group", "", None)
    view = await scene.seeks.seek(NAME, EARLIEST)
    assert isinstance(view, OperationView)
    assert (view.subscription, view.state) == (NAME, "running")
    with pytest.raises(OperationRunningError):
        await scene.seeks.seek(NAME, EARLIEST)


async def test_an_export_has_what_was_read_and_needs_no_pause(world: World, scene: Scene) -> None:
    assert (await scene.seeks.export(NAME)).partitions == []
    await world.owns(0)
    export = await scene.seeks.export(NAME)
    assert [(each.topic, each.partition, each.offset) for each in export.partitions] == [
        (TOPIC, 0, 0)
    ]


async def test_a_subscription_that_is_not_here_is_named(scene: Scene) -> None:
    with pytest.raises(UnknownSubscriptionError, match="'orders'"):
        await scene.seeks.export("orders")
    with pytest.raises(UnknownSubscriptionError, match="'orders'"):
        await scene.seeks.seek("orders", DRY)


async def test_i8_only_so_many_look_at_once(scene: Scene) -> None:
    """Each reads the progress of a whole group. One more is refused, and none waits."""
    await scene.control.pause("group", "", None)
    scene.go.clear()
    async with asyncio.TaskGroup() as group:
        for _ in range(LOOKS_MAX):
            group.create_task(scene.seeks.export(NAME))
        await asyncio.sleep(0)
        assert scene.looking == LOOKS_MAX
        for refused in (scene.seeks.export(NAME), scene.seeks.seek(NAME, EARLIEST)):
            with pytest.raises(PressureError):
                await refused
        scene.go.set()
    await scene.seeks.export(NAME)


async def test_a_look_that_fails_or_is_cancelled_makes_room(world: World, scene: Scene) -> None:
    world.consumer.away = True
    for _ in range(LOOKS_MAX + 1):
        with pytest.raises(BrokerError):
            await scene.seeks.export(NAME)
    world.consumer.away = False
    scene.go.clear()
    for _ in range(LOOKS_MAX + 1):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await scene.seeks.export(NAME)
    scene.go.set()
    await scene.seeks.export(NAME)


async def test_a_broker_without_positions_refuses(scene: Scene) -> None:
    """Before it asks for a pause, which would be in vain."""
    scene.world.state.consumer = AckingConsumer()
    for request in (DRY, EARLIEST):
        with pytest.raises(NotSupportedError, match="no position"):
            await scene.seeks.seek(NAME, request)
    with pytest.raises(NotSupportedError, match="no position"):
        await scene.seeks.export(NAME)
