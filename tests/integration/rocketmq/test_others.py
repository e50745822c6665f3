"""Topics of other kinds, as a consumer sees them, and what the broker cannot do."""

import asyncio

import pytest

from ackd.api.messages import SettleVerb
from ackd.ports import Outgoing
from ackd_adapters.rocketmq.client import EVERYTHING
from tests.integration.rocketmq.shop import Shop, insist
from tests.support.rocketmq import RocketMQ
from tests.support.rocketmq.bare import bare
from tests.support.rocketmq.transaction import transact
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.rocketmq, pytest.mark.slow, pytest.mark.timeout(240)]


async def test_of_transactions_only_what_was_committed_comes(
    rocketmq: RocketMQ, shop: Shop
) -> None:
    async with bare(rocketmq, kind="TRANSACTION") as it:
        shop.topic = it.topic
        await asyncio.to_thread(rocketmq.admin.group, shop.topic)
        one = await shop.start()
        await transact(it, b"rolled back", commit=False)
        await transact(it, b"committed", commit=True)
        (message,) = await one.collect(1)
        assert message.record.value == b"committed"
        assert await one.settle(SettleVerb.ACK, message) == ["acked"]
        assert await one.receive(wait_ms=1_500) == []


async def test_the_brokers_own_dead_letters_can_be_read_and_sent_again(
    rocketmq: RocketMQ, shop: Shop
) -> None:
    async with bare(rocketmq, retries=1) as it:
        await it.send(b"poison", tag="paid")
        (message,) = await it.take_some(1, 1_000)
        # The group's limit is two deliveries: the next look of a consumer moves it away.
        dead = f"%DLQ%g{it.topic}"

        async def moved() -> bool:
            await it.take(hold_ms=1_000, expression=EVERYTHING)
            return bool(await it.client.route(dead))

        await wait_until_async(moved, f"{message.message_id} is moved to {dead}")
        origin, shop.topic = it.topic, dead
        await asyncio.to_thread(rocketmq.admin.group, "readers")
        one = await shop.start(group="readers", filter="paid")
        (letter,) = await one.collect(1)
        assert letter.record.value == b"poison"
        again = Outgoing(origin, letter.record.key, letter.record.value, letter.record.headers)
        await insist(lambda *these: one.runtime._brokers["b"].publish(these), [again])
        assert await one.settle(SettleVerb.ACK, letter) == ["acked"]
        (back,) = await it.take_some(1)
        assert (back.body, back.tag) == (b"poison", "paid")
        assert back.message_id != message.message_id
        await it.ack(back)


async def test_a_group_that_gives_up_too_early_is_told(shop: Shop) -> None:
    await shop.open(1)
    await asyncio.to_thread(lambda: shop.rocketmq.admin.group(shop.topic, retries=16))
    one = await shop.start()
    conditions = one.runtime._subscriptions["work"].state.conditions

    async def told() -> bool:
        return "rocketmq/retry-max-times" in conditions

    await wait_until_async(told, "the warning")
    assert "after 17 times" in conditions["rocketmq/retry-max-times"].detail
    assert "retryMaxTimes to 100" in conditions["rocketmq/retry-max-times"].detail
