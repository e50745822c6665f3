"""What is said of failures to one sidecar is on the copy that another one makes."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from ackd.api.dead_letters import DeadView
from ackd.api.messages import Delivery, SettleVerb
from ackd.core.record.texts import ERROR_BYTES_MAX
from tests.integration.engine.shop import Shop, Worker
from tests.support.redis import RedisServer
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.redis, pytest.mark.timeout(240)]
SOON: dict[str, Any] = {"stuck_after_ms": 300, "stuck_min_age_ms": 300}


@pytest.fixture
async def shop(valkey: RedisServer, tmp_path: Path) -> AsyncIterator[Shop]:
    """On a real store."""
    async with AsyncExitStack() as stack:
        yield Shop(stack, tmp_path, valkey.url)


async def pair(shop: Shop, **more: Any) -> tuple[Worker, Worker, Delivery]:
    """The owner of the one partition, another sidecar, and a message that the owner gave."""
    workers = [await shop.start(name, **more) for name in ("one", "two")]
    await workers[0].publish(1)
    found: list[tuple[Worker, Delivery]] = []

    async def one() -> bool:
        for worker in workers:
            got = await worker.receive(wait_ms=200, lease_ms=60_000)
            found.extend((worker, each) for each in got.messages)
        return bool(found)

    await wait_until_async(one, "the message")
    [(owner, message)] = found
    [other] = [worker for worker in workers if worker is not owner]
    return owner, other, message


def said(letter: DeadView) -> tuple[str, str, str]:
    """What a dead letter says."""
    return letter.reason, letter.first_error, letter.last_error


async def test_settles_that_are_told_to_the_other_one(shop: Shop) -> None:
    owner, other, message = await pair(shop)
    text = "no disk: " + "ä" * ERROR_BYTES_MAX
    result = await other.settle(message, SettleVerb.RETRY, delay_ms=1, reason=text)
    assert result.status == "retrying", result
    again = await owner.one(lease_ms=60_000)
    assert (again.id, again.attempt) == (message.id, 2)
    assert (await other.settle(again, SettleVerb.DEAD, reason="no shop")).status == "dead"
    [letter] = await owner.dead(1)
    reason, first, last = said(letter)
    assert (reason, last) == ("no shop", "no shop")
    assert first == text.encode()[:ERROR_BYTES_MAX].decode(errors="ignore")


async def test_r4_settles_of_a_forwarded_lease_that_are_told_to_the_other_one(shop: Shop) -> None:
    """Its copy is with the owner, in the retry topic; what was said is in the message's origin
    record.
    """
    owner, other, message = await pair(shop, **SOON)
    states: list[str] = []

    async def claiming() -> bool:
        for worker in (owner, other):
            states.extend(each.state for each in await worker.runtime.in_flight("work", 0, 10))
        return "waiting_for_lease" in states

    await wait_until_async(claiming, "the copy to wait for the lease")
    await other.settle(message, SettleVerb.RETRY, delay_ms=1, reason="no disk")
    found: list[tuple[Worker, Delivery]] = []

    async def one() -> bool:
        for worker in (owner, other):
            got = await worker.receive(wait_ms=200, lease_ms=60_000)
            found.extend((worker, each) for each in got.messages)
        return bool(found)

    await wait_until_async(one, "the copy")
    [(giver, again)] = found
    assert (again.id, again.attempt) == (message.id, 2)
    [stranger] = [worker for worker in (owner, other) if worker is not giver]
    assert (await stranger.settle(again, SettleVerb.DEAD, reason="no shop")).status == "dead"
    [letter] = await giver.dead(1)
    assert said(letter) == ("no shop", "no disk", "no shop")


async def test_a_successor_knows_them_and_nothing_stays(shop: Shop, valkey: RedisServer) -> None:
    """Said to a sidecar that has left since; gone from the store with the message."""
    worker = await shop.start("one")
    await worker.publish(2)
    failed, acked = await worker.collect(2, lease_ms=60_000)
    for each in (failed, acked):
        await worker.settle(each, SettleVerb.RETRY, delay_ms=1, reason="no disk")
    await worker.runtime.stop()
    successor = await shop.start("two")
    messages = {each.id: each for each in await successor.collect(2, lease_ms=60_000)}
    with valkey.client() as client:
        texts = f"{shop.topic}:v1:*:t"  # the times of heartbeats end so too
        [key] = [each for each in client.scan_iter(texts) if "{members:" not in each]
        assert client.hlen(key) == 2
        await successor.settle(messages[acked.id], SettleVerb.ACK)
        await successor.settle(messages[failed.id], SettleVerb.DEAD)
        [letter] = await successor.dead(1)
        assert said(letter) == ("no disk", "no disk", "no disk")

        async def gone() -> bool:
            return not client.exists(key)

        await wait_until_async(gone, "the errors to be gone")
