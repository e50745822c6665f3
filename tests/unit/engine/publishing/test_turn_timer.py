"""When the next turn begins: after the pause, or as soon as there is something to do."""

from __future__ import annotations

import asyncio

import pytest

from ackd.engine.publishing.turn_timer import TURN_MS, TurnTimer
from tests.unit.engine.world import World


@pytest.fixture
def timer(world: World) -> TurnTimer:
    return TurnTimer(world.clock)


async def slept_ms(world: World, timer: TurnTimer, pause_ms: int) -> int:
    """How long the timer sleeps."""
    begin_ms = world.clock.monotonic_ms()
    await timer.sleep(pause_ms)
    return world.clock.monotonic_ms() - begin_ms


async def test_it_sleeps_for_the_pause(world: World, timer: TurnTimer) -> None:
    timer.begin()
    assert await slept_ms(world, timer, 1_000) == 1_000


async def test_turns_keep_a_distance(world: World, timer: TurnTimer) -> None:
    timer.begin()
    assert await slept_ms(world, timer, 0) == TURN_MS
    timer.begin()
    await asyncio.sleep(0.004)
    timer.wake()
    assert await slept_ms(world, timer, 1_000) == TURN_MS - 4


async def test_what_was_due_before_a_turn_needs_no_other(world: World, timer: TurnTimer) -> None:
    timer.wake()
    timer.begin()
    assert await slept_ms(world, timer, 500) == 500


@pytest.mark.parametrize(("delay_ms", "woken_ms"), [(0, 100), (399, 100), (400, 500)])
async def test_what_is_due_before_its_end_ends_the_sleep(
    world: World, timer: TurnTimer, delay_ms: int, woken_ms: int
) -> None:
    timer.begin()
    asyncio.get_running_loop().call_later(0.1, timer.due_in, delay_ms)
    assert await slept_ms(world, timer, 500) == woken_ms


async def test_what_comes_in_a_turn_lets_no_sleep_follow(world: World, timer: TurnTimer) -> None:
    timer.begin()
    await timer.sleep(500)
    timer.begin()
    timer.due_in(3_600_000)
    assert await slept_ms(world, timer, 500) == TURN_MS
