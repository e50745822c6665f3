"""The engine on a broker with acks of its own: leases, settles, retries, extensions."""

import asyncio
from dataclasses import replace

import pytest

from ackd.api.messages import SettleVerb
from tests.integration.rocketmq.shop import HOLD_MS, Shop
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.rocketmq, pytest.mark.slow, pytest.mark.timeout(240)]


async def test_i2_acked_is_told_to_the_broker_and_a_retry_comes_again(shop: Shop) -> None:
    await shop.open()
    one = await shop.start()
    await one.stored(*(b"%d" % n for n in range(20)))
    first = await one.collect(20)
    assert {each.record.value for each in first} == {b"%d" % n for n in range(20)}
    assert {each.attempt for each in first} == {1}
    assert await one.settle(SettleVerb.ACK, *first[:18]) == ["acked"] * 18
    assert await one.settle(SettleVerb.RETRY, *first[18:], delay_ms=300) == ["retrying"] * 2
    again = await one.collect(2)
    assert {each.record.value for each in again} == {each.record.value for each in first[18:]}
    assert {each.attempt for each in again} == {2}
    assert await one.settle(SettleVerb.ACK, *again) == ["acked"] * 2

    await one.broker_told()
    await one.runtime.stop()
    # Were one not acked at the broker, then its hold would have ended in this time.
    two = await shop.start("two")
    assert await two.receive(wait_ms=HOLD_MS + 3_000) == []
    assert two.metric("ackd_acked_again_total") == 0


async def test_a_lease_that_is_extended_beyond_the_brokers_hold_is_delivered_once(
    shop: Shop,
) -> None:
    await shop.open(1)
    one = await shop.start()
    await one.stored(b"video")
    (message,) = await one.collect(1, lease_ms=5_000)
    for _ in range(10):
        await asyncio.sleep(0.8)
        assert await one.settle(SettleVerb.EXTEND, message, lease_ms=5_000) == ["extended"]
        assert await one.receive(wait_ms=0) == []
    assert await one.settle(SettleVerb.ACK, message) == ["acked"]

    await one.broker_told()


async def test_i3_of_two_sidecars_one_draws_and_the_other_follows(shop: Shop) -> None:
    await shop.open()
    second = await shop.start("one")
    first = await shop.start(second.successor())

    async def moved() -> bool:
        pair = (second, first)
        owned = [len(each.runtime._subscriptions["work"].partitions.owned) for each in pair]
        return owned == [0, 4]

    await wait_until_async(moved, "the newcomer draws, to whom the source goes")
    await first.stored(*(b"%d" % n for n in range(20)))
    found = await first.collect(20, lease_ms=180_000)
    # Whoever is asked settles.
    assert await second.settle(SettleVerb.ACK, *found[:10]) == ["acked"] * 10
    await first.runtime.stop()
    assert await second.settle(SettleVerb.RETRY, *found[10:15], delay_ms=0) == ["retrying"] * 5
    again = await second.collect(5)
    values = {each.record.value for each in again}
    assert values == {each.record.value for each in found[10:15]}
    assert await second.settle(SettleVerb.ACK, *again) == ["acked"] * 5
    assert await second.settle(SettleVerb.ACK, *found[15:]) == ["acked"] * 5
    assert await second.receive(wait_ms=HOLD_MS + 2_000) == []


async def test_groups_of_their_own_each_get_everything(shop: Shop) -> None:
    """What the configuration says to do instead of `mode = "broadcast"`, which it refuses here."""
    await shop.open(2)
    pair = []
    for name in ("one", "two"):
        group = f"{shop.topic}-{name}"
        await asyncio.to_thread(shop.rocketmq.admin.group, group)
        pair.append(await replace(shop, subscription=name).start(name, group=group))
    await pair[0].stored(*(b"%d" % n for n in range(10)))
    for each in pair:
        found = await each.collect(10)
        assert {message.record.value for message in found} == {b"%d" % n for n in range(10)}
        assert await each.settle(SettleVerb.ACK, *found) == ["acked"] * 10
        await each.broker_told()
