"""An application that asks for pauses (429, 503 with `Retry-After`): nothing is lost to them."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from tests.integration.push.conftest import Seen, StartWorld
from tests.support.wait import wait_until_async

BUSY = {"Retry-After": "0"}  # cut to the shortest pause, 100 ms
TIMES = 130
"""More than the hundred uncounted returns and the two attempts of a message."""


@pytest.mark.slow
async def test_r28_a_busy_application_loses_nothing_and_no_attempt_is_spent(
    start: StartWorld,
) -> None:
    async def answer(_seen: Seen) -> web.Response:
        if len(world.app.calls) <= TIMES:
            return web.Response(status=503, headers=BUSY)
        return web.Response(status=204)

    world = await start(answer, subscription="attempts_max = 2\nlease_ms = 2000")
    await world.publish(b"1", b"2", b"3")
    await world.app.called(20)
    await world.until_limited("asked for a pause (HTTP 503)")  # not while a call is on its way
    await world.finished(3, timeout_s=120)
    assert len(world.app.calls) >= TIMES + 3
    assert {seen.attempt for seen in world.app.calls} == {1}
    dead = await world.ask("GET", "/v1/subscriptions/orders/dead")
    assert dead["messages"] == []
    # One message waited under its lease, the others were put back once or twice.
    kept = [seen.lease for seen in world.app.calls]
    assert max(map(kept.count, kept)) > TIMES - 20


async def test_a_kept_message_goes_back_uncounted_when_its_time_is_over(start: StartWorld) -> None:
    async def answer(_seen: Seen) -> web.Response:
        if len(world.app.calls) <= 12:
            return web.Response(status=429, headers=BUSY)
        return web.Response(status=204)

    world = await start(answer, push="pressure_hold_ms = 350\n")
    await world.publish(b"1")
    await world.finished(1)
    leases = [seen.lease for seen in world.app.calls]
    assert len(set(leases)) > 2
    assert max(map(leases.count, leases)) <= 5
    assert {seen.attempt for seen in world.app.calls} == {1}


async def test_a_kept_message_goes_back_when_the_group_pauses_or_the_sidecar_stops(
    start: StartWorld,
) -> None:
    busy = True

    async def answer(_seen: Seen) -> web.Response:
        if busy:
            return web.Response(status=503, headers={"Retry-After": "1"})
        return web.Response(status=204)

    world = await start(answer, subscription="lease_ms = 600000")
    await world.publish(b"1")
    await world.app.called(2)
    leases = {seen.lease for seen in world.app.calls}
    assert len(leases) == 1
    (lease,) = leases

    async def state() -> str:
        return str((await world.ask("GET", f"/v1/leases/{lease}"))["state"])

    assert await state() == "leased"
    await world.admin("POST", "/v1/subscriptions/orders/pause", b'{"reason": "test"}')

    async def back() -> bool:
        return await state() != "leased"

    await wait_until_async(back, "the message is back")
    busy = False
    await world.admin("POST", "/v1/subscriptions/orders/resume", b"{}")
    await world.finished(1)
    # The same of a stop, long before the pause or the lease would end.
    busy = True
    calls = len(world.app.calls)
    await world.publish(b"2")
    await world.app.called(calls + 1)
    await asyncio.to_thread(world.sidecar.process.stop)
    busy = False
    await asyncio.to_thread(world.sidecar.start)
    await world.finished(2, timeout_s=60)
    assert {seen.attempt for seen in world.app.calls} == {1}
