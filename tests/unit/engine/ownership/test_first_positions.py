"""The note of where the broker was before anybody drew."""

from __future__ import annotations

import pytest

from ackd.core.ids import LedgerKey, TopicPartition
from ackd.engine.ownership.first_positions import NO_RECORD, FirstPositions, note_name
from tests.unit.engine.ownership.test_lost_messages import KEEP_MS, TP, Log
from tests.unit.engine.world import NAME, TOPIC_ID, World


@pytest.fixture
def log(world: World) -> Log:
    log = Log()
    world.consumer.broker_positions = log  # type: ignore[attr-defined]
    return log


async def first(world: World) -> FirstPositions:
    await world.topics.read()
    return FirstPositions(world.state, world.context, world.topics, lambda _: 0, KEEP_MS)


async def note(world: World, tp: TopicPartition) -> bytes | None:
    key = LedgerKey(world.state.cluster, NAME, TOPIC_ID, tp.partition)
    return await world.context.store.get(note_name(key))


async def test_i1_it_is_in_the_store_before_anybody_draws(world: World, log: Log) -> None:
    log.given = 7
    mine = await first(world)
    await mine.begins([TP])
    assert mine.of(TP) == 7
    assert await note(world, TP) == b"7 0 7 " + NO_RECORD


async def test_i1_the_first_one_counts(world: World, log: Log) -> None:
    """Another sidecar draws on: what it had and lost is below where the broker is now."""
    log.given = 7
    mine = await first(world)
    await mine.begins([TP])
    log.given = 20
    await mine.begins([TP])
    assert mine.of(TP) == 7
    other = await first(world)
    await other.begins([TP])
    assert other.of(TP) == 20
    assert await note(world, TP) == b"7 0 7 " + NO_RECORD


async def test_a_new_group_begins_with_the_last_message(world: World, log: Log) -> None:
    """Or earlier; the broker has given it nothing."""
    log.end = 5
    mine = await first(world)
    await mine.begins([TP])
    assert mine.of(TP) == 4


async def test_without_an_answer_drawing_begins_all_the_same(world: World, log: Log) -> None:
    log.away = True
    mine = await first(world)
    await mine.begins([TP])
    assert (mine.of(TP), await note(world, TP)) == (None, None)
    log.away, log.given = False, 3
    world.topics.known.clear()
    world.consumer.known = []
    await mine.begins([TP])
    assert (mine.of(TP), await note(world, TP)) == (3, None)


async def test_nothing_is_asked_where_nothing_can_be_asked(world: World, log: Log) -> None:
    log.on = False
    mine = await first(world)
    await mine.begins([TP])
    assert (mine.of(TP), await note(world, TP)) == (None, None)
