"""ackd's own handling of the broker's handles in each race that calls about them can run, on a real
broker: answers come late, or are lost (`tests/support/rocketmq/between.py`).
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from ackd.api.messages import SettleVerb
from ackd_adapters.rocketmq.holds import BACK_MS
from ackd_adapters.rocketmq.rpc import ACK, CHANGE
from tests.integration.rocketmq.shop import HOLD_MS, Shop, Worker
from tests.support.rocketmq import RocketMQ
from tests.support.rocketmq.between import Between, between
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.rocketmq, pytest.mark.slow, pytest.mark.timeout(240)]

LEASE_MS = 120_000
QUIET_MS = HOLD_MS + 3_000
"""What the broker would bring again has come by then."""


@pytest.fixture
async def there(rocketmq: RocketMQ) -> AsyncIterator[Between]:
    async with between(rocketmq.endpoints) as made:
        yield made


async def until(condition: Callable[[], object], what: str) -> None:
    """Wait for it."""

    async def met() -> bool:
        return bool(condition())

    await wait_until_async(met, what, timeout_s=60)


async def over(worker: Worker, there: Between) -> None:
    """The broker is told, and brings nothing again."""
    await worker.broker_told()
    before = there.delivered
    assert await worker.receive(wait_ms=QUIET_MS) == []
    assert there.delivered == before, "the broker brings it again"


async def test_i2_a_finish_while_the_renewal_is_under_way(shop: Shop, there: Between) -> None:
    """The ack waits for the answer, which has the only handle that counts."""
    await shop.open(1)
    one = await shop.start(endpoints=there.endpoints, lease_ms=LEASE_MS)
    answer = there.keep(CHANGE.name)
    await one.stored(b"m")
    (message,) = await one.collect(1)
    await until(lambda: there.changes, "a renewal")
    assert await one.settle(SettleVerb.ACK, message) == ["acked"]
    assert await one.receive(wait_ms=500) == []
    assert not there.acks
    answer.set()
    await until(lambda: there.acks, "the ack")
    await over(one, there)


@pytest.mark.parametrize("first", ["finished", "brought again"])
async def test_i2_i3_the_answer_of_a_renewal_is_lost(
    shop: Shop, there: Between, first: str
) -> None:
    """Its handle is worth nothing any more. The broker brings the message again, under another one;
    the application does not get it again.
    """
    await shop.open(1)
    one = await shop.start(endpoints=there.endpoints, lease_ms=LEASE_MS)
    there.lose(CHANGE.name)
    await one.stored(b"m")
    (message,) = await one.collect(1)
    await until(lambda: there.lost, "the answer is lost")
    if first == "finished":
        assert await one.settle(SettleVerb.ACK, message) == ["acked"]
        await one.broker_told()
        assert not there.acks
    await until(lambda: there.delivered > 1, "the broker brings it again")
    if first != "finished":
        assert await one.receive(wait_ms=500) == []
        assert await one.settle(SettleVerb.ACK, message) == ["acked"]
    await until(lambda: there.acks, "the ack by the new handle")
    await over(one, there)
    assert one.metric("ackd_acked_again_total") == (first == "finished")


async def test_i2_the_answer_of_an_ack_is_lost(shop: Shop, there: Between) -> None:
    """It is asked again by the same handle, and nothing else."""
    await shop.open(1)
    one = await shop.start(endpoints=there.endpoints, lease_ms=LEASE_MS)
    there.lose(ACK.name)
    await one.stored(b"m")
    (message,) = await one.collect(1)
    assert await one.settle(SettleVerb.ACK, message) == ["acked"]
    await until(lambda: len(there.acks) == 2, "the ack is repeated")
    await over(one, there)
    assert len({*there.acks}) == 1


async def test_i1_i3_the_answer_of_a_renewal_comes_after_a_takeover(
    shop: Shop, there: Between
) -> None:
    """Whoever draws from now on gets the message from the broker soon: the one that drew before
    gives it back, by the handle of the late answer, and renews no more.
    """
    await shop.open(1)
    one = await shop.start(endpoints=there.endpoints, lease_ms=LEASE_MS)
    answer = there.keep(CHANGE.name)
    await one.stored(b"m")
    (message,) = await one.collect(1)
    await until(lambda: there.changes, "a renewal")
    two = await shop.start(one.successor())
    owned = two.runtime._subscriptions[shop.subscription].partitions.owned
    await until(lambda: owned, "the other one owns the queue")
    answer.set()
    await until(lambda: BACK_MS in there.changes, "it is given back")
    await one.broker_told()
    assert there.changes.count(BACK_MS) == 1
    holds = two.runtime._subscriptions[shop.subscription].state.consumer._holds  # type: ignore[attr-defined]
    await until(lambda: len(holds), "the broker brings it to the other one")
    assert await two.receive(wait_ms=500) == [], "its lease lives on"
    assert await two.settle(SettleVerb.RETRY, message, delay_ms=0) == ["retrying"]
    (again,) = await two.collect(1)
    assert (again.id, again.attempt) == (message.id, 2)
    assert await two.settle(SettleVerb.ACK, again) == ["acked"]
    await two.broker_told()
    assert await two.receive(wait_ms=QUIET_MS) == []


async def test_i1_a_sidecar_that_stops_cancels_no_poll(shop: Shop, there: Between) -> None:
    """What a cancelled poll draws the proxy gives back by itself, and the broker loses some of it.
    So it waits for its polls, and gives back what they brought.
    """
    await shop.open(4)
    elsewhere = Shop(shop.stack, shop.folder / "elsewhere", shop.rocketmq, shop.store)
    await elsewhere.open(1)
    publisher = Worker(shop, (await elsewhere.start()).runtime)
    one = await shop.start("one", endpoints=there.endpoints)
    bodies = [b"%d" % number for number in range(40)]
    consumer: Any = one.runtime._subscriptions[shop.subscription].state.consumer
    await until(lambda: there.polls, "it polls")
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(one.runtime.stop())
        await until(lambda: consumer._closed, "the consumer closes")
        await publisher.stored(*bodies)
    assert not there.polls
    two = await shop.start("two", lease_ms=LEASE_MS)
    found = await two.collect(len(bodies))
    assert {each.record.value for each in found} == {*bodies}
