"""What the broker itself knows of a group: it is all that a new sidecar without a past has."""

import asyncio
from dataclasses import replace

import pytest

from ackd.api.messages import SettleVerb
from ackd.cli.commands.adopt import adopt
from ackd.cli.commands.release_group import leave
from ackd.cli.offline.parts import opened
from ackd.config.schema import BrokerSettings
from ackd_adapters.rocketmq import RocketMQOptions
from tests.integration.rocketmq.shop import HOLD_MS, NAME, Shop, Worker
from tests.support.rocketmq.bare import bare, never
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.rocketmq, pytest.mark.slow, pytest.mark.timeout(240)]

QUIET_MS = HOLD_MS + 3_000
"""What the broker would bring again has come by then."""


def values(first: int, end: int) -> set[bytes]:
    return {b"%d" % number for number in range(first, end)}


async def test_i1_i2_a_group_of_plain_consumers_goes_on_where_it_stands_and_back(
    shop: Shop,
) -> None:
    async with bare(shop.rocketmq) as it:
        shop.topic, group = it.topic, f"g{it.topic}"
        for each in sorted(values(0, 6)):
            await it.send(each)
        theirs = await it.take_some(3, 60_000)
        assert await it.ack(*theirs) == ["OK"] * 3
        left = values(0, 6) - {each.body for each in theirs}
        one = await shop.start(group=group)
        found = await one.collect(3)
        assert {each.record.value for each in found} == left
        assert await one.settle(SettleVerb.ACK, *found) == ["acked"] * 3
        await one.broker_told()
        await one.runtime.stop()
        await it.send(b"new")
        back = await it.within(QUIET_MS / 1000, never)
        assert [each.body for each in back] == [b"new"]


async def test_adopt_and_release_group_are_refused_and_say_what_to_do(shop: Shop) -> None:
    """Nothing has to be moved there."""
    await shop.open(1)
    one = await shop.start()
    await one.runtime.stop()
    options = RocketMQOptions(
        endpoints=shop.rocketmq.endpoints,
        name_servers=f"127.0.0.1:{shop.rocketmq.ports.names}",
    )
    broker = BrokerSettings(adapter="rocketmq", options=options)
    async with opened(replace(one.runtime.settings, brokers={"b": broker}), NAME) as parts:
        plan, leaving = await adopt(parts, do=True), await leave(parts, do=True)
    said = "this kind of broker can't move a group from outside"
    assert (plan.adopted, plan.blocked) == (False, f"{said}; start the sidecar instead")
    assert (leaving.left, leaving.blocked) == (False, said)


async def test_i1_i2_after_the_loss_of_the_store_the_broker_knows_what_is_acked(
    shop: Shop,
) -> None:
    """All of it that the broker was told of, which takes a moment."""
    await shop.open(1)
    one = await shop.start()
    await one.stored(*values(0, 10))
    found = await one.collect(10, lease_ms=120_000)
    assert await one.settle(SettleVerb.ACK, *found[:6]) == ["acked"] * 6
    await until_held(one, 4)
    await one.runtime.stop()
    await asyncio.to_thread(shop.store.flush)
    two = await shop.start("two")
    again = await two.collect(4)
    assert {each.record.value for each in again} == {each.record.value for each in found[6:]}
    assert await two.settle(SettleVerb.ACK, *again) == ["acked"] * 4
    assert await two.receive(wait_ms=QUIET_MS) == []


async def until_held(worker: Worker, count: int) -> None:
    """The broker holds so many back for it."""

    async def so() -> bool:
        subscription = worker.runtime._subscriptions[worker.shop.subscription]
        holds = subscription.state.consumer._holds  # type: ignore[attr-defined]
        return len(holds) == count

    await wait_until_async(so, f"{count} are held")
