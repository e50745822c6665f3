"""Where a message is whose lease was lost, also when it moved on in the retry topic."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from ackd.core.record.operations import Gap
from ackd.core.record.transitions import State
from ackd.engine.settlement.whereabouts import Whereabout, Whereabouts
from ackd.errors import StoreError
from ackd.ports import TopicInfo
from tests.unit.engine.retry_stage import RETRY_ID, RETRY_TOPIC, RetryStage
from tests.unit.engine.world import TOPIC, TOPIC_ID, World


class Scene(RetryStage):
    """`finds` asks as a sidecar that owns nothing does."""

    async def finds(self, *offsets: int, partition: int = 0) -> list[Whereabout | None]:
        world = self.world
        whereabouts = Whereabouts(world.state, world.context, world.topics, RETRY_TOPIC)
        return await whereabouts.of(TOPIC_ID, partition, offsets)

    async def moves_on(self, at: int) -> None:
        """Message 0 moves, and its copy at this offset is ready to be delivered."""
        self.arrives(at, await self.moves_and_ends())
        await asyncio.sleep(0.1)


@pytest.fixture
async def scene(world: World) -> AsyncIterator[Scene]:
    scene = Scene(world)
    await scene.begin()
    scene.start(scene.claims)
    yield scene
    await scene.tasks.stop()


async def test_messages_of_its_own_partition_are_told_in_the_order_asked(scene: Scene) -> None:
    await scene.world.leases(scene.origin, 2)
    await scene.world.flusher.submit(scene.origin.handle, [Gap(5, 6)])
    found = await scene.finds(5, 1, 7, 0)
    assert found == [
        Whereabout(State.FINISHED, 0),
        Whereabout(State.LEASED, 1),
        Whereabout(State.READY, 0),
        Whereabout(State.LEASED, 1),
    ]


async def test_a_message_that_moved_is_followed_to_its_copy(scene: Scene) -> None:
    await scene.moves_on(at=3)
    (waits,) = await scene.finds(0)
    assert waits is not None
    assert waits.state is not State.MOVING
    await scene.world.leases(scene.copies)
    assert await scene.finds(1, 0) == [Whereabout(State.READY, 0), Whereabout(State.LEASED, 2)]


async def test_a_message_that_moved_under_its_lease_is_still_leased(scene: Scene) -> None:
    await scene.moves()
    assert await scene.finds(0, 1) == [Whereabout(State.LEASED, 1), Whereabout(State.READY, 0)]


async def test_while_the_retry_topic_is_not_known_the_message_is_moving(scene: Scene) -> None:
    await scene.moves_on(at=3)
    await scene.world.leases(scene.copies)
    topics, consumer = scene.world.topics, scene.world.consumer
    topics.forget(RETRY_TOPIC)
    consumer.known = [TopicInfo(TOPIC, TOPIC_ID, 1)]
    (found,) = await scene.finds(0)
    assert found is not None
    assert found.state is State.MOVING
    consumer.known = [TopicInfo(RETRY_TOPIC, RETRY_ID, 2)]  # another sidecar made it
    assert await scene.finds(0) == [Whereabout(State.LEASED, 2)]


async def test_i7_what_the_store_does_not_say_is_not_made_up(scene: Scene) -> None:
    assert await scene.finds(0, 1, partition=3) == [None, None]  # it has no such record
    scene.world.store.lost = True
    assert await scene.finds(0, 1) == [None, None]


async def test_a_trail_has_each_record_of_a_message(scene: Scene) -> None:
    """The last one says what counts; where there is no record, there is no trail."""
    whereabouts = Whereabouts(
        scene.world.state, scene.world.context, scene.world.topics, RETRY_TOPIC
    )
    await scene.moves_on(at=3)
    await scene.world.leases(scene.copies)
    first, last = await whereabouts.trail(scene.origin.key, 0)
    assert (first.there.state, last.there.state) == (State.MOVING, State.LEASED)
    assert (last.key, last.offset, last.there.attempt) == (scene.copies.key, 3, 2)
    assert last.lease.when_ms > last.now_ms
    assert await whereabouts.trail(scene.origin.key._replace(partition=3), 0) == []
    scene.world.store.away = True
    with pytest.raises(StoreError):
        await whereabouts.trail(scene.origin.key, 0)
