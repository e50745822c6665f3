"""Who had a message, how that ended and why: kept by the record, seen by operators (R26)."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from ackd.api.messages import Delivery, InFlight, ReceiveRequest, SettleVerb
from tests.integration.engine.shop import NAME, Shop, Worker
from tests.support.redis import RedisServer
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.redis, pytest.mark.timeout(240)]
HOUR_MS = 3_600_000


@pytest.fixture
async def shop(valkey: RedisServer, tmp_path: Path) -> AsyncIterator[Shop]:
    """On a real store."""
    async with AsyncExitStack() as stack:
        yield Shop(stack, tmp_path, valkey.url)


async def given(worker: Worker, holder: str, lease_ms: int = 60_000) -> Delivery:
    """The next message, for this holder."""
    request = ReceiveRequest(max=1, wait_ms=30_000, lease_ms=lease_ms, holder=holder)
    [message] = (await worker.runtime.receive(NAME, request)).messages
    return message


async def shown(worker: Worker) -> InFlight:
    [found] = await worker.runtime.in_flight(NAME, 0, 10)
    return found


async def test_a_failure_reason_is_visible_at_once(shop: Shop) -> None:
    """In what is in flight and in what holds the partition, while the message waits and after."""
    worker = await shop.start("one", stuck_after_ms=HOUR_MS)
    await worker.publish(1)
    message = await given(worker, "first")
    assert (await shown(worker)).error is None
    await worker.settle(message, SettleVerb.RETRY, delay_ms=HOUR_MS // 2, reason="shop closed")
    found = await shown(worker)
    assert (found.state, found.error, found.holder) == ("retrying", "shop closed", "")
    [held] = [each.head for each in (await worker.runtime.explain(NAME)).partitions if each.head]
    assert held.error == "shop closed"
    await worker.runtime.stop()
    successor = await shop.start("two", stuck_after_ms=HOUR_MS)
    assert (await shown(successor)).error == "shop closed"


async def test_r26_a_successor_knows_who_holds_a_lease_of_a_second(shop: Shop) -> None:
    """And of a message that was delivered before, at once."""
    worker = await shop.start("one")
    await worker.publish(1)
    first = await given(worker, "first")
    key = worker.subscription.partitions.by_ledger

    async def written() -> bool:
        [partition] = [each for each in key.values() if each.ledger.leased]
        [texts] = await worker.runtime._store.texts(partition.key, [0])
        return texts is not None and b"first" in texts.history

    await wait_until_async(written, "the holder to be written")
    await worker.settle(first, SettleVerb.RETRY, delay_ms=1)
    await given(worker, "second")
    await worker.runtime.stop()
    successor = await shop.start("two")
    found = await shown(successor)
    assert (found.state, found.attempt, found.holder) == ("leased", 2, "second")


async def test_a_dead_letter_has_the_history_of_its_message(shop: Shop) -> None:
    """A failure, a lease that ran out, a release, and the end."""
    worker = await shop.start("one")
    await worker.publish(1)
    first = await given(worker, "first")
    await worker.settle(first, SettleVerb.RETRY, delay_ms=1, reason="no disk")
    await given(worker, "second", lease_ms=200)
    third = await given(worker, "third")
    await worker.settle(third, SettleVerb.RELEASE)
    last = await given(worker, "fourth")
    await worker.settle(last, SettleVerb.DEAD, reason="no shop")
    [letter] = await worker.dead(1)
    found = (await worker.runtime.dead.peek(NAME, letter.id)).history
    assert [(each.attempt, each.holder, each.end, each.reason) for each in found] == [
        (1, "first", "retrying", "no disk"),
        (2, "second", "no_answer", ""),
        (3, "third", "released", ""),
        (3, "fourth", "dead", "no shop"),
    ]
    times = [each.at_ms for each in found[1:]]
    assert times == sorted(times, key=lambda each: each or 0)
