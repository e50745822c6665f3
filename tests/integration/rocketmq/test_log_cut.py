"""The broker uses offsets again, because it lost the tail of its log, or because the topic was made
again. What is finished says nothing about the new messages there (I1, R1).

Ten messages are acked, then ten new ones lie at the same offsets. Before places had generations all
ten were settled silently, and readiness was green.
"""

import asyncio
import logging

import pytest

from ackd.api.messages import Delivery, SettleVerb
from ackd.core.log_generations import GENERATION
from ackd.errors import BrokerError
from tests.integration.rocketmq.shop import HOLD_MS, NAME, Shop, Worker
from tests.support.rocketmq.remote import admin, queues_of, send
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.rocketmq, pytest.mark.slow, pytest.mark.timeout(300)]

COUNT = 10
QUIET_MS = HOLD_MS + 3_000
"""What the broker would bring again has come by then: a hold, and about two seconds."""


async def acked(worker: Worker, word: str) -> None:
    """So many messages are published, delivered and acked, and the broker knows it."""
    await worker.stored(*values(word))
    found = await worker.collect(COUNT)
    assert carried(found) == values(word)
    assert await worker.settle(SettleVerb.ACK, *found) == ["acked"] * COUNT
    await worker.broker_told()


async def new_ones_come(worker: Worker, word: str, caplog: pytest.LogCaptureFixture) -> None:
    """All that is published now is delivered once, as the first delivery; nothing acked comes; and
    readiness, `explain`, the metric and the log tell, each once.
    """
    worker.shop.cuts += 1
    await worker.stored(*values(word))
    found = await worker.collect(COUNT)
    assert carried(found) == values(word)
    assert {each.attempt for each in found} == {1}
    assert {each.partition for each in found} == {GENERATION}
    conditions = worker.runtime._subscriptions[NAME].state.conditions
    told = conditions[f"log-cut/{worker.shop.topic}/0"]
    assert told.warning
    assert "uses offsets again" in told.detail
    assert [told.detail in r.detail for r in worker.runtime.readiness() if r.ok].count(True) == 1
    assert (
        f"log-cut/{worker.shop.topic}/0: {told.detail}"
        in (await worker.runtime.explain(NAME)).limits
    )
    warned = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert warned.count(f"{NAME}: {told.detail}") == 1
    assert worker.metric("ackd_log_cuts_total") == 1
    assert await worker.settle(SettleVerb.ACK, *found) == ["acked"] * COUNT
    assert await worker.receive(wait_ms=QUIET_MS) == []
    await worker.broker_told()


def values(word: str) -> list[bytes]:
    return [f"{word} {number}".encode() for number in range(COUNT)]


def carried(messages: list[Delivery]) -> list[bytes]:
    return sorted(each.record.value or b"" for each in messages)


async def test_i1_r1_the_topic_is_made_again_while_ackd_runs(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    """And what is new stays so: also for a sidecar that knows nothing of it but from the store."""
    await shop.open(1)
    one = await shop.start()
    await acked(one, "old")
    await asyncio.to_thread(shop.rocketmq.admin.drop_topic, shop.topic)
    await asyncio.to_thread(shop.rocketmq.admin.topic, shop.topic, 1)
    await new_ones_come(one, "new", caplog)

    await one.stored(*values("left"))
    left = await one.collect(COUNT)
    assert await one.settle(SettleVerb.RETRY, *left, delay_ms=0) == ["retrying"] * COUNT
    await one.runtime.stop()
    two = await shop.start("two")
    again = await two.collect(COUNT)
    assert carried(again) == values("left")
    assert {(each.partition, each.attempt) for each in again} == {(GENERATION, 2)}
    assert two.metric("ackd_log_cuts_total") == 0
    assert await two.settle(SettleVerb.ACK, *again) == ["acked"] * COUNT
    assert await two.receive(wait_ms=QUIET_MS) == []


async def test_i1_r1_the_broker_loses_its_last_messages_while_ackd_runs(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    await shop.open(1)
    one = await shop.start()
    await acked(one, "kept")
    copy = await asyncio.to_thread(shop.rocketmq.copy_store)
    await acked(one, "lost")
    await asyncio.to_thread(shop.rocketmq.set_back, copy)
    broker = one.runtime._brokers["b"]

    async def there() -> bool:
        return await broker.partitions(shop.topic) == 1

    await wait_until_async(there, "the broker is back", ignoring=(BrokerError,))
    await new_ones_come(one, "new", caplog)


async def test_i1_r1_the_broker_loses_its_last_messages_while_ackd_is_down(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    await shop.open(1)
    one = await shop.start()
    await acked(one, "kept")
    copy = await asyncio.to_thread(shop.rocketmq.copy_store)
    await acked(one, "lost")
    await one.runtime.stop()
    await asyncio.to_thread(shop.rocketmq.set_back, copy)
    await new_ones_come(await shop.start("two"), "new", caplog)


async def test_i1_r1_one_of_two_queues_loses_its_last_messages(shop: Shop) -> None:
    """The other one goes on as it was, and nothing acked of it comes again."""

    async def stored(word: str, *queues: int) -> list[bytes]:
        """So many into each of these."""
        async with admin(shop.rocketmq.ports.names) as it:
            there = await queues_of(it, shop.topic)
            bodies = [[b"%d %s" % (queue, each) for each in values(word)] for queue in queues]
            for queue, found in zip(queues, bodies, strict=True):
                await send(it, there[queue], found)
        return sorted(each for found in bodies for each in found)

    async def come(wanted: list[bytes]) -> set[int]:
        """Each once; their partitions."""
        found = await one.collect(len(wanted))
        assert carried(found) == wanted
        assert {each.attempt for each in found} == {1}
        assert set(await one.settle(SettleVerb.ACK, *found)) == {"acked"}
        await one.broker_told()
        return {each.partition for each in found}

    await shop.open(2)
    one = await shop.start()
    assert await come(await stored("kept", 0, 1)) == {0, 1}
    copy = await asyncio.to_thread(shop.rocketmq.copy_store)
    assert await come(await stored("lost", 0)) == {0}
    await asyncio.to_thread(shop.rocketmq.set_back, copy)
    broker = one.runtime._brokers["b"]

    async def there() -> bool:
        return await broker.partitions(shop.topic) == 2

    await wait_until_async(there, "the broker is back", ignoring=(BrokerError,))
    shop.cuts += 1
    assert await come(await stored("new", 0, 1)) == {GENERATION, 1}
    conditions = one.runtime._subscriptions[NAME].state.conditions
    assert [each for each in conditions if each.startswith("log-cut/")] == [
        f"log-cut/{shop.topic}/0"
    ]
    assert await one.receive(wait_ms=QUIET_MS) == []
