"""What ackd's own seek lets a broker bring again: awaited until it has come (R8), so that nothing
of it is lost (I1) or taken for somebody else's reset.
"""

from __future__ import annotations

import pytest

from ackd.core.record.operations import Reset
from ackd.engine.ownership.awaited_seeks import ASK_MS, PAUSE_MS
from ackd.engine.ownership.expected import NOT_MOVED, Expectation, Expected
from tests.unit.engine.ownership.queue_of_broker import TP, GivenQueue
from tests.unit.engine.world import World

COUNT = 300
CALM_MS = 60_000


@pytest.fixture
async def queue(world: World) -> GivenQueue:
    await world.topics.read()
    return GivenQueue(world)


async def sought(queue: GivenQueue, expectation: Expectation, *, to: int | None) -> Expected:
    """All have been acked, and a seek moved the record; a sidecar takes it anew."""
    await queue.all_acked(COUNT, CALM_MS)
    partition = await queue.partition()
    if to is not None:
        await queue.world.flusher.submit(partition.handle, [Reset(to)])
    expected = Expected(queue.world.context.store)
    await expected.note(partition.key, expectation)
    queue.fresh()
    assert queue.awaited.waits(await queue.partition())
    await queue.passes()
    return expected


async def test_r8_a_seek_that_the_operator_has_to_complete_is_named_until_it_is(
    queue: GivenQueue,
) -> None:
    """However long it takes, and whatever comes meanwhile; another sidecar knows of it, too."""
    wanted = Expectation(0, COUNT, brings=True, by_hand="mqadmin this")
    expected = await sought(queue, wanted, to=0)
    assert "has to go back to offset 0, too: run mqadmin this" in queue.told("seek")
    await queue.gives(COUNT, COUNT + 5)  # a new message does not complete it
    await queue.passes(10 * PAUSE_MS)
    queue.fresh()
    await queue.passes()
    assert queue.told("seek")
    queue.delivered.clear()
    await queue.gives(0, 32)
    await queue.passes(2 * ASK_MS)
    assert queue.told("seek") == ""
    queue.fresh()
    await queue.passes(10 * PAUSE_MS)
    partition = await queue.partition()
    assert (queue.told("seek"), queue.awaited.waits(partition)) == ("", True)
    await queue.gives(32, COUNT + 6)
    assert queue.delivered == [*range(COUNT), COUNT + 5]
    await queue.passes(PAUSE_MS + ASK_MS)
    assert await expected.of(partition.key) is None
    assert not queue.awaited.waits(partition)
    assert queue.told("came-again") == ""


@pytest.mark.parametrize("came", [0, 32])
async def test_i1_a_broker_that_forgot_the_seek_in_a_crash_is_moved_again(
    queue: GivenQueue, came: int
) -> None:
    """To what has not come, though it gives new messages; and no sooner than needed."""
    positions = queue.asks()
    wanted = Expectation(0, COUNT, brings=True, boot_ms=positions.boot_ms)
    expected = await sought(queue, wanted, to=0)
    await queue.gives(0, came)
    await queue.passes(2 * ASK_MS)
    assert positions.moved == []
    queue.breaks()
    positions.boot_ms += 1
    positions.given = COUNT + 5  # as before the seek
    await queue.gives(COUNT, COUNT + 5)
    await queue.passes(2 * ASK_MS)
    assert positions.moved == [{TP: came}]
    partition = await queue.partition()
    await queue.passes(10 * PAUSE_MS)
    assert queue.awaited.waits(partition)
    await queue.gives(came, COUNT + 5)
    assert sorted(queue.delivered) == [*range(COUNT + 5)]
    positions.given = COUNT + 5
    await queue.passes(PAUSE_MS + 2 * ASK_MS)
    assert await expected.of(partition.key) is None
    assert len(positions.moved) == 1


async def test_i1_a_broker_that_forgets_the_seek_just_before_it_is_over(queue: GivenQueue) -> None:
    """It has handed all out, not yet written that down, and what it handed out is lost."""
    positions = queue.asks()
    await sought(queue, Expectation(0, COUNT, brings=True, boot_ms=positions.boot_ms), to=0)
    await queue.gives(0, 64)
    positions.given = COUNT
    await queue.passes(PAUSE_MS // 2)
    positions.boot_ms += 1
    await queue.passes(2 * ASK_MS)
    assert positions.moved == [{TP: 64}]


async def test_what_a_seek_keeps_finished_is_settled_when_it_comes(queue: GivenQueue) -> None:
    """And nobody else is suspected; what comes again later is told."""
    expected = await sought(queue, Expectation(COUNT, COUNT, [(0, COUNT)]), to=None)
    queue.settled.clear()
    await queue.gives(0, COUNT)
    await queue.passes()
    assert queue.settled == [*range(COUNT)]
    assert queue.told("came-again") == ""
    await queue.gives(COUNT, COUNT + 1)
    await queue.passes(PAUSE_MS + 2 * ASK_MS)
    assert await expected.of((await queue.partition()).key) is None
    await queue.gives(0, COUNT)
    await queue.passes()
    assert queue.told("came-again")


async def test_a_partition_that_goes_takes_its_condition_along(queue: GivenQueue) -> None:
    await sought(queue, Expectation(0, COUNT, brings=True, by_hand="mqadmin this"), to=0)
    assert queue.told("seek")
    await queue.awaited.look([])
    assert queue.told("seek") == ""


async def test_r8_a_broker_that_was_away_is_moved_when_it_is_back(queue: GivenQueue) -> None:
    """Readiness tells until then, whoever owns the partition."""
    positions = queue.asks()
    positions.away = True
    wanted = Expectation(5, COUNT, [(0, 5)], brings=True, boot_ms=NOT_MOVED)
    expected = await sought(queue, wanted, to=5)
    assert "go back to offset 5, too: it was away, and ackd moves it when" in queue.told("seek")
    queue.fresh()
    await queue.passes()
    assert (positions.moved, bool(queue.told("seek"))) == ([], True)
    positions.away = False
    await queue.passes(ASK_MS + 1_000)  # and as soon as it is moved
    assert (positions.moved, queue.told("seek")) == ([{TP: 5}], "")
    queue.delivered.clear()
    await queue.gives(5, COUNT)
    positions.given = COUNT
    await queue.passes(PAUSE_MS + 2 * ASK_MS)
    assert queue.delivered == [*range(5, COUNT)]
    assert await expected.of((await queue.partition()).key) is None
    assert len(positions.moved) == 1


async def test_r8_a_broker_that_was_away_and_forgot_its_acks_brings_a_seek_by_itself(
    queue: GivenQueue,
) -> None:
    """Nothing is left to move, and readiness says so."""
    positions = queue.asks()
    positions.away = True
    wanted = Expectation(5, COUNT, [(0, 5)], brings=True, boot_ms=NOT_MOVED)
    expected = await sought(queue, wanted, to=5)
    assert queue.told("seek")
    positions.away = False
    queue.delivered.clear()
    await queue.gives(5, COUNT)
    positions.given = COUNT
    await queue.passes(ASK_MS + 1_000)
    assert (queue.delivered, queue.told("seek")) == ([*range(5, COUNT)], "")
    await queue.passes(PAUSE_MS + 2 * ASK_MS)
    assert await expected.of((await queue.partition()).key) is None
    assert (positions.moved, queue.told("seek"), queue.told("came-again")) == ([], "", "")


@pytest.mark.parametrize("asked", [True, False])
async def test_r8_where_ackd_may_not_move_the_broker_readiness_names_the_command(
    queue: GivenQueue, *, asked: bool
) -> None:
    """`asked`: it may ask when the broker was started."""
    positions = queue.asks()
    positions.may, positions.may_ask = False, asked
    await sought(queue, Expectation(5, COUNT, brings=True, boot_ms=NOT_MOVED), to=5)
    await queue.passes(2 * ASK_MS + 1_000)
    assert "go back to offset 5, too: run mqadmin 0 5" in queue.told("seek")
    queue.delivered.clear()
    await queue.gives(5, COUNT)
    await queue.passes(2 * ASK_MS)
    assert (queue.delivered, queue.told("seek")) == ([*range(5, COUNT)], "")
