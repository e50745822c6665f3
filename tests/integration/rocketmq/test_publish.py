"""Publishing to RocketMQ, and dead letters there: what comes back is what was published."""

import asyncio
import time

import pytest

from ackd.api.messages import SettleVerb
from ackd.ports import Failure, NotStored, Outgoing
from ackd_adapters.rocketmq import RocketMQOptions, adapter
from ackd_adapters.rocketmq.rpc import SEND
from tests.integration.rocketmq.shop import Shop, insist
from tests.support.rocketmq import RocketMQ
from tests.support.rocketmq.bare import bare, now_ms
from tests.support.rocketmq.between import between
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.rocketmq, pytest.mark.slow, pytest.mark.timeout(240)]

DELAY_MS = 2_000


async def test_keys_values_and_headers_come_back_as_they_were(shop: Shop) -> None:
    await shop.open()
    one = await shop.start()
    sent = [
        Outgoing(shop.topic, b"key", b"value", (("trace", b"1"), ("rocketmq-tag", b"paid"))),
        Outgoing(shop.topic, b"\xff\x00", bytes(range(256)), (("same", b"1"), ("same", None))),
        Outgoing(shop.topic, None, None, (("KEYS", b"x"),)),
        Outgoing(shop.topic, b"", b""),
    ]
    await insist(lambda *these: one.runtime._brokers["b"].publish(these), sent)
    found = await one.collect(4)
    got = {(each.record.key, each.record.value, each.record.headers) for each in found}
    assert got == {(each.key, each.value, each.headers) for each in sent}


async def test_a_delayed_message_comes_when_it_is_due_and_a_wrong_topic_is_refused(
    shop: Shop,
) -> None:
    await shop.open(1, "DELAY")
    one = await shop.start()
    began = time.monotonic()
    message = Outgoing(shop.topic, None, b"late", delay_ms=DELAY_MS)
    wrong = Outgoing(f"{shop.topic}-none", None, b"nowhere")
    await insist(lambda *these: one.runtime._brokers["b"].publish(these), [message])
    (refused,) = await one.runtime._brokers["b"].publish([wrong])
    assert isinstance(refused, NotStored)
    assert refused.failure is Failure.REFUSED
    (found,) = await one.collect(1)
    assert found.record.value == b"late"
    assert time.monotonic() - began >= DELAY_MS / 1000


async def test_i7_what_is_under_way_as_the_connection_is_closed_has_an_unknown_outcome(
    rocketmq: RocketMQ,
) -> None:
    async with bare(rocketmq) as it, between(rocketmq.endpoints) as middle:
        broker = adapter.open("b", RocketMQOptions(endpoints=middle.endpoints))
        await broker.start()
        middle.keep(SEND.name)

        async def close() -> None:
            await wait_until_async(there, "a message is on its way")
            await broker.close()

        async def there() -> bool:
            return bool(await it.take(1))

        async with asyncio.TaskGroup() as tasks:
            batch = [Outgoing(it.topic, None, b"%d" % number) for number in range(3)]
            sent = tasks.create_task(broker.publish(batch))
            tasks.create_task(close())
        results = await sent
    assert [each.failure for each in results if isinstance(each, NotStored)] == [
        Failure.UNKNOWN
    ] * len(batch)


async def test_i6_messages_of_a_group_are_stored_in_order_on_a_fifo_topic(
    rocketmq: RocketMQ, shop: Shop
) -> None:
    async with bare(rocketmq, kind="FIFO", queues=2) as it:
        shop.topic = it.topic
        await asyncio.to_thread(rocketmq.admin.group, shop.topic)
        one = await shop.start()
        batch = [Outgoing(it.topic, b"account", b"%d" % n) for n in range(10)]
        await insist(lambda *these: one.runtime._brokers["b"].publish(these), batch)
        (bad,) = await one.publish(b"no key")
        assert isinstance(bad, NotStored)
        assert bad.failure is Failure.REFUSED
        found = await it.take_some(10, 30_000)
        assert [each.body for each in found] == [b"%d" % n for n in range(10)]
        assert {each.group for each in found} == {"account"}


async def test_i1_a_dead_message_lies_in_the_groups_dead_letter_topic(
    rocketmq: RocketMQ, shop: Shop
) -> None:
    await shop.open(1)
    dead = f"ackd-dead-{shop.topic}"
    await asyncio.to_thread(rocketmq.admin.topic, dead, 1)
    one = await shop.start()
    async with bare(rocketmq) as it:
        await one.stored(b"poison")
        (message,) = await one.collect(1)
        assert await one.settle(SettleVerb.DEAD, message, reason="no such account") == ["dead"]

        async def there() -> bool:
            (it.queue,) = await it.client.route(dead)
            found = await it.take()
            return [each.body for each in found] == [b"poison"]

        await wait_until_async(there, "the dead letter", ignoring=(ValueError,))  # no route yet
    assert await one.receive(wait_ms=500) == []


async def test_a_delay_of_another_producer_is_kept(rocketmq: RocketMQ, shop: Shop) -> None:
    async with bare(rocketmq, kind="DELAY") as it:
        shop.topic = it.topic
        await asyncio.to_thread(rocketmq.admin.group, shop.topic)
        one = await shop.start()
        due_ms = now_ms() + DELAY_MS
        await it.send(b"late", due_ms=due_ms)
        (found,) = await one.collect(1)
        assert found.record.value == b"late"
        assert now_ms() >= due_ms
