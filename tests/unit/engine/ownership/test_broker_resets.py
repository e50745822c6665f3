"""A broker gives finished messages again: after a crash, or because somebody reset the group. They
are never delivered because of that (I2), and told (R8).
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from ackd.engine.ownership.broker_resets import CALM_MS, LOCKED, PAUSE_MS, SHOWN_MS
from tests.unit.engine.ownership.queue_of_broker import TP, GivenQueue
from tests.unit.engine.world import World

COUNT = 300
CAME = "came-again"


@pytest.fixture
async def queue(world: World) -> GivenQueue:
    await world.topics.read()
    return GivenQueue(world)


async def test_i2_r8_what_comes_again_is_settled_and_told_with_the_order_that_replays_it(
    queue: GivenQueue,
) -> None:
    await queue.all_acked(COUNT, PAUSE_MS)
    await queue.gives(10, COUNT)
    await queue.gives(COUNT, COUNT + 5)
    await queue.passes()
    assert queue.settled == [*range(10, COUNT)]
    assert queue.delivered == [*range(COUNT, COUNT + 5)]
    told = queue.told(CAME)
    assert f"290 finished messages came again from the broker, of offsets 10 to {COUNT - 1}" in told
    assert "nobody was away, so it looks like a reset of the group" in told
    assert f"`ackd seek work --position {TP.topic}/0=10` delivers them again" in told
    await queue.passes(SHOWN_MS)
    assert queue.told(CAME) == ""


async def test_r8_what_comes_later_is_counted_to_it(queue: GivenQueue) -> None:
    """Answers come in any order, and a slow application lets few come at a time."""
    await queue.all_acked(COUNT, PAUSE_MS)
    await queue.gives(64, 96)
    await queue.passes()
    assert "32 finished" in queue.told(CAME)
    await queue.gives(32, 64)
    await queue.passes(PAUSE_MS // 2)
    assert "64 finished" in queue.told(CAME)
    assert "/0=32`" in queue.told(CAME)


@pytest.mark.parametrize("broke", [True, False])
async def test_r8_where_ackd_or_the_broker_was_away_both_reasons_are_named(
    queue: GivenQueue, *, broke: bool
) -> None:
    await queue.all_acked(COUNT, PAUSE_MS)
    if broke:
        queue.breaks()
    else:
        queue.fresh()
        await queue.passes()
    await queue.gives(COUNT - 5, COUNT)
    await queue.passes()
    assert queue.delivered == []
    assert "either the broker forgot its last acks in a crash or a failover" in queue.told(CAME)


@pytest.mark.parametrize("crashed", [True, False])
async def test_r8_a_reset_while_no_sidecar_ran_is_told_apart_where_the_broker_can_be_asked(
    queue: GivenQueue, *, crashed: bool
) -> None:
    positions = queue.asks()
    await queue.all_acked(COUNT, 2 * CALM_MS)
    queue.fresh()
    positions.boot_ms += crashed
    await queue.passes()
    await queue.gives(COUNT - 5, COUNT)
    await queue.passes()
    assert queue.delivered == []
    same = "the broker was not started again since, so it looks like a reset"
    assert (same in queue.told(CAME)) is not crashed


async def test_a_broker_that_is_away_is_asked_again(queue: GivenQueue) -> None:
    positions = queue.asks()
    await queue.all_acked(COUNT, 2 * CALM_MS)
    positions.away = True
    await queue.gives(0, 5)
    await queue.passes()
    assert queue.told(CAME) == ""
    positions.away = False
    await queue.passes()
    assert queue.told(CAME)


async def test_r8_who_may_not_ask_when_the_broker_was_started_is_told_all_the_same(
    queue: GivenQueue,
) -> None:
    """Rights were taken away, or a proxy stands in for the broker now."""
    positions = queue.asks()
    await queue.all_acked(COUNT, 2 * CALM_MS)
    positions.may_ask = False
    await queue.gives(0, 5)
    await queue.passes()
    assert queue.told(CAME)


async def test_with_an_order_what_is_locked_together_may_come_again(queue: GivenQueue) -> None:
    """When the hold of one ends, all that were given with it come."""
    queue.world.state.configured = replace(queue.world.state.configured, ordering="key")
    await queue.all_acked(COUNT, PAUSE_MS)
    await queue.gives(COUNT - LOCKED, COUNT)
    await queue.passes()
    assert queue.told(CAME) == ""
    await queue.gives(COUNT - LOCKED - 1, COUNT - LOCKED)
    await queue.passes()
    assert "1 finished messages" in queue.told(CAME)
    assert queue.delivered == []


@pytest.mark.parametrize("asks", [True, False])
@pytest.mark.parametrize("seed", range(10))
async def test_i1_i2_whatever_the_broker_forgets_and_whoever_resets_it(
    queue: GivenQueue, seed: int, *, asks: bool
) -> None:
    """Each message is delivered once; whatever comes again is told."""
    rng = random.Random(seed)
    positions = queue.asks() if asks else None
    given = end = 0
    await queue.passes()
    for _ in range(60):
        queue.delivered.clear()
        what, back = rng.random(), given
        if what < 0.2:
            queue.breaks()
            if positions is not None:
                positions.boot_ms += 1
            back = rng.randrange(given + 1)
        elif what < 0.3:
            queue.fresh()
            back = rng.randrange(given + 1)
        elif what < 0.4:
            back = rng.randrange(given + 1)
        new = end + rng.randrange(80)
        await queue.gives(back, new, by=rng.randrange(1, 40))
        await queue.passes(rng.choice((1_500, 30_000, CALM_MS)))
        assert queue.delivered == [*range(end, new)], seed
        assert back == given or queue.told(CAME), seed
        given = end = new
