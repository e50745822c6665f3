"""A reset by another client: copies of messages that come again end first, and no others (R8)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from ackd.core.ids import LedgerKey
from ackd.core.record.operations import Gap
from ackd.core.record.protocol import Finish
from ackd.engine.ownership.external_reset import ExternalResets
from ackd.engine.partition.copy_headers import RetryCopy
from ackd.errors import BrokerError
from ackd.ports import Consumer, ConsumerSpec
from tests.unit.engine.operation_stage import LogBroker, OperationStage
from tests.unit.engine.retry_stage import RETRY_TOPIC, RetryStage
from tests.unit.engine.world import World


class CountedBroker(LogBroker):
    """`readers`: how often somebody read its topics."""

    readers = 0

    def consumer(self, spec: ConsumerSpec) -> Consumer:
        self.readers += 1
        return super().consumer(spec)


class Scene:
    """Messages 0, 1 and 2 have moved: their copies are at the same offsets of the retry topic."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.stage = RetryStage(world)
        operation = OperationStage(world)
        self.broker = world.state.broker = CountedBroker()
        self.resets = ExternalResets(world.state, world.context, operation.records, RETRY_TOPIC)
        self.copies: list[RetryCopy] = []

    async def begin(self) -> None:
        await self.stage.begin()
        self.stage.start(self.stage.claims)
        for offset in range(3):
            copy = await self.stage.moves_and_ends(offset)
            self.copies.append(copy)
            self.stage.arrives(self.broker.writes(RETRY_TOPIC, copy), copy)
        await self.world.flusher.idle()
        await asyncio.sleep(1)

    @property
    def key(self) -> LedgerKey:
        return self.stage.origin.key

    async def resets_to(self, offset: int, epoch: int = 1) -> list[int]:
        """The offsets of the origin that are skipped as well."""
        await self.resets.begin(self.key, epoch, offset)
        return await self.finishes(epoch)

    async def finishes(self, epoch: int = 1) -> list[int]:
        found = await self.resets.finish(self.key, epoch)
        for each in found:
            assert isinstance(each, Gap)
            assert (each.end, each.reason) == (each.start + 1, Finish.SKIPPED)
        return [each.start for each in found if isinstance(each, Gap)]

    def ended(self) -> list[int]:
        """The copies that the store has as finished."""
        record = self.stage.record(self.stage.copies)
        return [each for each in range(3) if each in record.finished]


@pytest.fixture
async def scene(world: World) -> AsyncIterator[Scene]:
    scene = Scene(world)
    await scene.begin()
    yield scene
    await scene.stage.tasks.stop()


async def test_copies_of_messages_that_come_again_end(scene: Scene) -> None:
    assert await scene.resets_to(1) == []
    assert scene.ended() == [1, 2]


async def test_i3_a_message_whose_copy_is_under_lease_does_not_come_again(scene: Scene) -> None:
    (lease,) = await scene.world.leases(scene.stage.copies)
    assert lease.record.offset == 0
    assert await scene.resets_to(0) == [0]
    assert scene.ended() == [1, 2]


async def test_without_a_note_of_a_reset_no_copy_ends(scene: Scene) -> None:
    assert await scene.finishes() == []
    await scene.resets.begin(scene.key, 2, 0)
    assert await scene.finishes(1) == []  # that reset was not made
    assert (scene.ended(), scene.broker.readers) == ([], 0)


async def test_of_several_resets_the_furthest_back_counts(scene: Scene) -> None:
    """The sidecar that made the first one died before it had ended the copies."""
    await scene.resets.begin(scene.key, 1, 1)
    assert await scene.resets_to(9, 2) == []
    assert scene.ended() == [1, 2]


async def test_a_reset_that_was_never_made_is_replaced(scene: Scene) -> None:
    await scene.resets.begin(scene.key, 1, 0)
    assert await scene.resets_to(2, 1) == []
    assert scene.ended() == [2]


async def test_when_the_record_is_changed_the_notes_go(scene: Scene) -> None:
    await scene.resets.begin(scene.key, 1, 0)
    await scene.resets.finished(scene.key)
    assert await scene.finishes() == []
    assert scene.ended() == []


async def test_copies_of_other_partitions_stay(scene: Scene) -> None:
    other = scene.key._replace(partition=1)
    await scene.resets.begin(other, 1, 0)
    assert await scene.resets.finish(other, 1) == []
    assert (scene.ended(), scene.broker.readers) == ([], 1)


async def test_a_copy_that_is_finished_is_left_alone(scene: Scene) -> None:
    await scene.resets_to(1)
    scene.world.store.asked.clear()
    assert await scene.finishes() == []
    assert not [call for call in scene.world.store.asked if call.key == scene.stage.copies.key]


async def test_resets_at_once_share_a_reading(scene: Scene) -> None:
    """The first one reads for itself; those that come meanwhile read once for all of them."""
    others = [scene.key._replace(partition=each) for each in range(1, 4)]
    for key in (scene.key, *others):
        await scene.resets.begin(key, 1, 1)
    await asyncio.gather(*(scene.resets.finish(key, 1) for key in (scene.key, *others)))
    assert scene.broker.readers == 2
    assert scene.ended() == [1, 2]


async def test_a_reading_that_failed_is_repeated_by_the_others(scene: Scene) -> None:
    other = scene.key._replace(partition=1)
    for key in (scene.key, other):
        await scene.resets.begin(key, 1, 1)
    scene.broker.away = True
    found = await asyncio.gather(
        scene.resets.finish(other, 1), scene.resets.finish(scene.key, 1), return_exceptions=True
    )
    assert [type(each) for each in found] == [BrokerError, BrokerError]
    scene.broker.away = False
    assert await scene.finishes() == []
    assert scene.ended() == [1, 2]


async def test_without_a_record_of_copies_there_is_nothing_to_end(scene: Scene) -> None:
    """None of them has claimed its origin."""
    del scene.world.data.records[scene.stage.copies.key]
    assert await scene.resets_to(0) == []
