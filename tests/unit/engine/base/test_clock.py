"""Test time stands still while anything can be done, and jumps to the next timer then."""

import asyncio

from tests.unit.engine.world import World


async def test_an_hour_of_waiting_takes_no_time(world: World) -> None:
    began_ms = world.clock.monotonic_ms()
    await asyncio.sleep(3_600)
    assert world.clock.monotonic_ms() - began_ms == 3_600_000
    for _ in range(100):
        await asyncio.sleep(0)
    assert world.clock.monotonic_ms() - began_ms == 3_600_000


async def test_timers_come_in_their_order(world: World) -> None:
    seen: list[int] = []
    loop = asyncio.get_running_loop()
    for ms in (30, 10, 20):
        loop.call_later(ms / 1000, seen.append, ms)
    await asyncio.sleep(0.025)
    assert seen == [10, 20]
    assert loop.time() * 1000 == world.clock.now_us / 1000
