"""Tasks that RocketMQ brings, and those of a sidecar with an open link: each is killed in turn.

The sidecar becomes unready and ends; or the consumer is made anew with a warning, and messages go
on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ackd.api.messages import SettleVerb
from tests.integration.engine.linked import NAME, ROCKETMQ, Linked, Ring, begin, ring_of
from tests.integration.engine.test_vital_tasks import kill, name_of
from tests.support.wait import wait_until_async

BY_LINK = {"peers.accept", "peers.sweep"}
"""A link has no task of its own: both sides tick it in `sweep`, and frames come in callbacks."""
MADE_ANEW = {
    "Holds._settle",
    "Holds.run",
    "RocketMQConsumer._draw",
    "RocketMQConsumer._follow",
    "Session._beat",
    "Session._listen",
    "Session._run",
}
CALLS = {"Holds._ack", "Holds._change", "_Connection._read"}
"""Parts of those, which end with a call or a connection."""
ENDS_IT = {"BrokerAckFlow._find_lost", "BrokerAckFlow._watch"}


@pytest.fixture
async def ring(request: pytest.FixtureRequest) -> AsyncIterator[Ring]:
    async with ring_of(request) as made:
        yield made


def running(before: set[asyncio.Task[Any]]) -> dict[str, list[asyncio.Task[Any]]]:
    """What has been started since, by the function; a task with a name of its own by that."""
    found: dict[str, list[asyncio.Task[Any]]] = {}
    for each in asyncio.all_tasks() - before:
        coroutine: Any = each.get_coro()
        name = name_of(each)
        if name.startswith(("Task-", "rocketmq.")):
            name = coroutine.__qualname__
        found.setdefault(name, []).append(each)
    return found


def of_rocketmq(task: asyncio.Task[Any]) -> bool:
    """Whether a file runs it that only RocketMQ needs."""
    coroutine: Any = task.get_coro()
    code = getattr(coroutine, "cr_code", None)
    path = Path("" if code is None else code.co_filename)
    return path.parent.name == "rocketmq" or path.name == "broker_acks.py"


async def ended(linked: Linked, name: str) -> None:
    """The sidecar is unready, and says that a task has ended, so that its process ends."""
    async with asyncio.timeout(60):
        await linked.runtime.vitals.wait()
    assert linked.runtime.vitals.failure, name
    assert not all(reason.ok for reason in linked.runtime.readiness()), name


@pytest.mark.parametrize("side", ["owner", "requester"])
@pytest.mark.parametrize("name", sorted(BY_LINK))
async def test_a_task_that_an_open_link_needs_ends_the_sidecar(
    ring: Ring, side: str, name: str
) -> None:
    before = asyncio.all_tasks()
    await ring.start()
    alone = running(before)
    between = asyncio.all_tasks()
    await ring.start()
    owner, [requester] = await ring.sorted()
    waiting = begin(requester.receive())
    await wait_open(owner, requester)
    both = running(before)
    del both["Linked.receive"]
    assert both.keys() <= alone.keys(), both.keys() - alone.keys()
    first, second = ring.members
    killed = owner if side == "owner" else requester
    of = running(between) if killed is second else alone
    assert killed in (first, second)
    kill(of[name][0])
    await ended(killed, name)
    waiting.cancel()
    await asyncio.wait([waiting])


async def wait_open(owner: Linked, requester: Linked) -> None:
    """Until a receive of one waits at the other."""

    async def waits() -> bool:
        return owner.waiting() > 0 and requester.runtime._links.to(owner.name) is not None

    await wait_until_async(waits, "a receive to wait at the owner")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("ring", [ROCKETMQ], indirect=True)
async def test_a_task_of_rocketmq_is_made_anew_or_ends_the_sidecar(
    ring: Ring, caplog: pytest.LogCaptureFixture
) -> None:
    before = asyncio.all_tasks()
    linked = await ring.start()
    await delivers(linked, 0)
    found = {
        name for name, tasks in running(before).items() if all(of_rocketmq(each) for each in tasks)
    }
    assert found >= MADE_ANEW | ENDS_IT
    assert found <= MADE_ANEW | ENDS_IT | CALLS, found
    for number, name in enumerate(sorted(MADE_ANEW), start=1):
        caplog.clear()
        consumer = linked.runtime._subscriptions[NAME].state.consumer
        kill(running(before)[name][0])

        async def anew(consumer: object = consumer) -> bool:
            return linked.runtime._subscriptions[NAME].state.consumer is not consumer

        await wait_until_async(anew, f"{name} to be missed", timeout_s=60)
        assert "rejoins the group" in caplog.text, name
        await delivers(linked, number)
        assert linked.runtime.vitals.failure == "", name
    for name in sorted(ENDS_IT):
        there = asyncio.all_tasks()
        linked = await ring.start()
        kill(running(there)[name][0])
        await ended(linked, name)


async def delivers(linked: Linked, number: int) -> None:
    """A message comes, and is settled there."""
    await linked.publish(1, first=number)
    message = await linked.one(wait_ms=30_000)
    assert int(message.record.value or b"") == number
    assert await linked.settle([message], SettleVerb.ACK) == ["acked"]
