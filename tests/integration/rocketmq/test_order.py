"""FIFO topics: a message group's messages in order, through retries and a change of the sidecar."""

import asyncio
from collections import defaultdict

import pytest

from ackd.api.messages import Delivery, SettleVerb
from ackd.ports import Outgoing
from tests.integration.rocketmq.shop import Shop, Worker, insist
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.rocketmq, pytest.mark.slow, pytest.mark.timeout(240)]

KEYS = (b"a", b"b", b"c")
COUNT = 8
RETRIED = 2
"""This one of each key fails once."""
TAKEN_OVER = 5
"""Until here the first sidecar works."""


async def _publish(worker: Worker) -> None:
    batch = [
        Outgoing(worker.shop.topic, key, b"%d" % number) for number in range(COUNT) for key in KEYS
    ]
    await insist(lambda *these: worker.runtime._brokers["b"].publish(these), batch)


class Line:
    """What came, by key; each message's attempts."""

    def __init__(self) -> None:
        self.acked: dict[bytes, list[int]] = defaultdict(list)
        self.came: dict[bytes, list[int]] = defaultdict(list)

    async def work(self, worker: Worker, until: int) -> None:
        """Settle what comes until every key has come to here."""

        async def done() -> bool:
            for each in await worker.receive(10, wait_ms=1_000, lease_ms=10_000):
                await self._one(worker, each)
            return all(len(self.acked[key]) >= until for key in KEYS)

        await wait_until_async(done, f"{until} of each key", timeout_s=90)

    async def _one(self, worker: Worker, message: Delivery) -> None:
        key, number = message.record.key or b"", int(message.record.value or b"-1")
        self.came[key].append(number)
        if number == RETRIED and message.attempt == 1:
            assert await worker.settle(SettleVerb.RETRY, message, delay_ms=200) == ["retrying"]
        else:
            assert await worker.settle(SettleVerb.ACK, message) == ["acked"]
            self.acked[key].append(number)


async def test_i6_a_groups_messages_come_in_order_through_retries_and_a_take_over(
    shop: Shop,
) -> None:
    await shop.open(2, "FIFO")
    one = await shop.start(ordering="key")
    await _publish(one)
    line = Line()
    await line.work(one, TAKEN_OVER)
    await one.runtime.stop()
    two = await shop.start("two", ordering="key")
    await line.work(two, COUNT)
    whole = list(range(COUNT))
    again = [*range(RETRIED + 1), *range(RETRIED, COUNT)]
    assert {key: line.acked[key] for key in KEYS} == dict.fromkeys(KEYS, whole)
    assert {key: line.came[key] for key in KEYS} == dict.fromkeys(KEYS, again)


async def test_an_order_that_the_broker_does_not_give_is_told_in_readiness(shop: Shop) -> None:
    await shop.open()
    admin = shop.rocketmq.admin
    await shop.start(ordering="key", unready="is not orderly")
    await asyncio.to_thread(lambda: admin.group(shop.topic, orderly=True))
    await shop.start("two", ordering="key", unready="is no FIFO topic")


async def test_i6_a_queues_messages_come_one_after_the_other(shop: Shop) -> None:
    """With `ordering = "partition"`: also those of different keys, and none before a retry."""
    await shop.open(1, "FIFO")
    one = await shop.start(ordering="partition")
    await _publish(one)
    offsets: list[int] = []
    for number in range(COUNT * len(KEYS)):
        [message] = await one.receive(10, wait_ms=30_000, lease_ms=60_000)
        offsets.append(message.record.offset)
        if number == TAKEN_OVER:
            assert await one.receive(10, wait_ms=200) == []
            assert await one.settle(SettleVerb.RETRY, message, delay_ms=200) == ["retrying"]
            [again] = await one.receive(10, wait_ms=30_000, lease_ms=60_000)
            assert (again.id, again.attempt) == (message.id, 2)
            message = again
        assert await one.settle(SettleVerb.ACK, message) == ["acked"]
    assert offsets == sorted(set(offsets))
