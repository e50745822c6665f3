"""Which dead letters are gone: a bit in a record, whatever the store has lost (R2, R29)."""

from __future__ import annotations

import pytest

from ackd.core.dead_letter_key import dead_key
from ackd.core.record.operations import Gap
from ackd.core.record.protocol import Finish
from ackd.core.record.transitions import State
from ackd.engine.operations.dead_letter_records import DeadLetterRecords
from ackd.errors import StoreDataError, StoreError
from tests.unit.engine.world import NAME, TOPIC_ID, World

KEY = dead_key("cluster", NAME, TOPIC_ID, 0)
DEAD, GONE = State.READY, State.FINISHED


@pytest.fixture
async def records(world: World) -> DeadLetterRecords:
    return DeadLetterRecords(world.context)


async def gone(records: DeadLetterRecords, *offsets: int, first: int = 0) -> None:
    """As a purge does it."""
    taken = await records.take(KEY, first)
    ops = [Gap(each, each + 1, Finish.SKIPPED) for each in offsets]
    await records.decide(taken.handle, ops)


async def test_without_a_record_all_are_there(records: DeadLetterRecords, world: World) -> None:
    assert await records.states(KEY, [0, 5]) == [DEAD, DEAD]
    assert world.data.records == {}, "a look changes nothing"
    assert await records.states(KEY, []) == []
    with pytest.raises(StoreDataError):
        await records.take(KEY, None)


async def test_what_was_removed_is_gone_and_nothing_else(records: DeadLetterRecords) -> None:
    await gone(records, 1, 3)
    assert await records.states(KEY, [0, 1, 2, 3, 4]) == [DEAD, GONE, DEAD, GONE, DEAD]
    assert await records.states(KEY._replace(partition=1), [1]) == [DEAD]


async def test_what_retention_took_is_gone(records: DeadLetterRecords) -> None:
    await gone(records, 1)
    await records.take(KEY, 3)
    assert await records.states(KEY, [0, 2, 3]) == [GONE, GONE, DEAD]


async def test_who_takes_the_record_fences_who_had_it(records: DeadLetterRecords) -> None:
    """Of two sidecars that both think that they run an operation, one writes."""
    before = await records.take(KEY, 0)
    after = await records.take(KEY, 0)
    with pytest.raises(StoreError):
        await records.decide(before.handle, [Gap(1, 2, Finish.SKIPPED)])
    await records.decide(after.handle, [Gap(2, 3, Finish.SKIPPED)])
    assert await records.states(KEY, [1, 2]) == [DEAD, GONE]


async def test_another_server_run_is_joined_before_it_is_asked(
    records: DeadLetterRecords, world: World
) -> None:
    await gone(records, 1)
    world.store._run = "run-2"
    assert await records.states(KEY, [0, 1]) == [DEAD, GONE]


async def test_what_the_store_has_lost_counts_as_dead(
    records: DeadLetterRecords, world: World
) -> None:
    """It can be redriven once more; it must not be lost. The loss is counted."""
    await gone(records, 1, 3)
    world.data.records[KEY].finished.chunks.clear()
    assert await records.states(KEY, [0, 1]) == [DEAD, DEAD]
    taken = await records.take(KEY, 0)
    assert world.count("ackd_store_data_lost_total") == 1
    await records.decide(taken.handle, [Gap(3, 4, Finish.SKIPPED)])
    assert await records.states(KEY, [1, 3]) == [DEAD, GONE]


async def test_without_the_store_nobody_knows(records: DeadLetterRecords, world: World) -> None:
    await gone(records, 1)
    world.store.away = True
    with pytest.raises(StoreError):
        await records.states(KEY, [1])
