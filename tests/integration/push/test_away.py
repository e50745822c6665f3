"""The application dies, is not there, comes back, or is busy for ever."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from aiohttp import web

from tests.integration.push.conftest import Seen, StartWorld
from tests.support.proc import Process
from tests.support.wait import wait_until_async

OPEN = 'ackd_push_breaker_open{subscription="orders"}'
WORKER = Path(__file__).with_name("worker.py")


async def test_breaker_opens_without_costing_an_attempt(start: StartWorld) -> None:
    """Nobody listens: nothing is handed out but one message, uncounted; explain, metric and log
    say it. With the application everything comes, as a first attempt.
    """
    world = await start(push="trial_ms = 100\n", up=False)
    await world.publish(*(b"%d" % number for number in range(10)))

    async def opened() -> bool:
        return await world.metric(OPEN) == 1

    await wait_until_async(opened, "the breaker is open")
    [why] = [each for each in await world.limits() if each.startswith("push: ")]
    assert "can't be reached" in why

    async def back() -> bool:
        return not (await world.ask("GET", "/v1/subscriptions/orders/in-flight"))["messages"]

    await wait_until_async(back, "what the first calls had is released")
    await asyncio.sleep(1)  # trials go on; they lease nothing
    unreachable = 'ackd_push_calls_total{outcome="unreachable",subscription="orders"}'
    assert 1 <= await world.metric(unreachable) <= 4  # the first calls, at most `concurrency`
    assert await back()
    await world.app.start()
    await world.finished(10)
    assert [seen.attempt for seen in world.app.calls] == [1] * 10
    assert await world.metric(OPEN) == 0
    assert not any(each.startswith("push: ") for each in await world.limits())
    log = world.sidecar.process.log()
    assert "push stops, the application can't be reached" in log
    assert "push goes on, the application answers again" in log


async def test_killed_application_gets_its_message_again(start: StartWorld) -> None:
    """A kill -9 in the middle of a call: nobody knows what it did, so the message comes again."""
    world = await start(push="trial_ms = 100\n", up=False)
    notes = world.folder / "notes"
    argv: list[str | Path] = [sys.executable, WORKER, str(world.app.port), notes, "30"]
    worker = Process(argv, log_path=world.folder / "worker.log")
    await asyncio.to_thread(worker.start)
    try:
        await world.publish(b"1")

        async def noted() -> list[str]:
            return notes.read_text().splitlines() if notes.exists() else []

        [first] = await wait_until_async(noted, "the call is running")
        await asyncio.to_thread(worker.kill)
        worker.argv[-1] = "0"
        await asyncio.to_thread(worker.start)
        await world.finished(1)
        lines = await noted()
        assert lines[0] == first
        assert len(lines) == 2
        message, attempt = lines[1].split()
        assert (message, attempt) == (first.split()[0], "2")
    finally:
        await asyncio.to_thread(worker.stop)


async def test_killed_sidecar_pushes_on_after_its_restart(start: StartWorld) -> None:
    """The lease of the call that nobody hears the end of runs out; nothing acked comes again."""

    async def answer(seen: Seen) -> web.Response:
        if seen.body == b"slow" and seen.attempt == 1:
            await asyncio.sleep(30)  # nobody hears its end
        return web.Response(status=204)

    world = await start(answer, subscription="lease_ms = 1000")
    await world.publish(b"fast")
    await world.finished(1)
    await world.publish(b"slow")
    await world.app.called(2)
    await asyncio.to_thread(world.sidecar.process.kill)
    await asyncio.to_thread(world.sidecar.start)
    await world.finished(2, timeout_s=60)
    assert [seen.body for seen in world.app.calls] == [b"fast", b"slow", b"slow"]
    assert world.app.calls[2].attempt == 2


@pytest.mark.slow
async def test_busy_for_ever_is_bounded_r28(start: StartWorld) -> None:
    """Uncounted is bounded: after 100 uncounted ends of a lease they count. Here no message is kept
    for the application, so each pause ends a lease.

    A message that is given back before it was sent, as the application is busy, uses one as well.
    """

    async def answer(_seen: Seen) -> web.Response:
        return web.Response(status=503, headers={"Retry-After": "0"})

    world = await start(answer, push="pressure_hold_ms = 0\n")
    await world.publish(b"1")
    await world.app.called(103, timeout_s=60)
    attempts = [seen.attempt for seen in world.app.calls[:103]]
    first = attempts.count(1)
    assert 90 < first <= 101
    assert attempts == [1] * first + list(range(2, 105 - first))
