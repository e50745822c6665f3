"""Counting the leases of a consumer: what ends one counts down, wherever it happened."""

from collections.abc import Callable

import pytest

from ackd.api.messages import Delivery, SettleItem, SettleVerb, Unsettled
from tests.integration.engine.conftest import NAME, Sidecar, StartSidecar
from tests.support.kafka import Kafka
from tests.support.kafka.fill import fill
from tests.support.wait import wait_until_async

pytestmark = pytest.mark.kafka


async def counts(held: Unsettled, count: int) -> None:
    """Wait until it says so."""

    async def so() -> bool:
        await held.wait(0.1)
        return held.count() == count

    await wait_until_async(so, f"{count} unsettled, now {held.count()}")


async def test_every_end_of_a_lease_counts_also_of_a_partition_that_went_away(
    start: StartSidecar, topic: Callable[..., str], kafka: Kafka
) -> None:
    """Settled here, settled by another sidecar, run out; and a rebalance in between."""
    name = topic(partitions=2)
    for partition in (0, 1):
        fill(kafka.bootstrap, name, partition, [b"x"] * 10)
    first = await start(name, name)
    held = first.runtime.unsettled(NAME)
    messages: list[Delivery] = []
    while len(messages) < 20:
        messages += await first.receive(most=20)
    held.add(messages)
    assert held.count() == 20
    await first.settle(messages[:2], SettleVerb.ACK)
    await first.settle(messages[2:3], SettleVerb.RELEASE)
    await first.settle(messages[3:4], SettleVerb.EXTEND)
    assert held.count() == 17
    second = await start(name, name)
    await owns_one_each(first, second)
    assert held.count() == 17
    await second.settle(messages[3:12], SettleVerb.ACK)
    await counts(held, 8)
    items = [
        SettleItem(message.lease, SettleVerb.EXTEND, lease_ms=300) for message in messages[12:]
    ]
    await first.runtime.settle(items)
    await counts(held, 0)
    held.close()


async def owns_one_each(*sidecars: Sidecar) -> None:
    async def so() -> bool:
        return all(
            len(each.runtime._subscriptions[NAME].partitions.owned) == 1 for each in sidecars
        )

    await wait_until_async(so, "each owns a partition", timeout_s=60)
