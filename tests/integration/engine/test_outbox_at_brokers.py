"""The outbox on the brokers that `test_outbox` leaves out: order per key, delays, repeats."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import AsyncIterator

import pytest

from ackd.api.messages import SettleVerb
from ackd.ports import Outgoing
from tests.integration.engine.linked import PULSAR, ROCKETMQ, Linked, Ring, numbers, ring_of
from tests.integration.engine.test_outbox import accept

pytestmark = [pytest.mark.redis, pytest.mark.timeout(240)]
KEYS = 8
COUNT = 100


@pytest.fixture(params=[PULSAR, ROCKETMQ])
async def ring(request: pytest.FixtureRequest) -> AsyncIterator[Ring]:
    """A topic of one partition, so that offsets tell the order in which messages were stored."""
    async with ring_of(request) as made:
        yield made


async def test_what_two_sidecars_accept_comes_once_in_order_and_in_time(ring: Ring) -> None:
    """In order per key; once, though a publisher repeats it; and a delayed message when it is due,
    though the sidecar that accepted it has stopped.
    """
    one, two = await ring.start(), await ring.start()
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    accepted: dict[int, int] = {}

    async def publish(linked: Linked, number: int) -> None:
        message = Outgoing(ring.topic, b"key-%d" % chance.randrange(KEYS), b"%d" % number)
        [first] = await accept(linked.runtime, message, key=f"{number}")
        assert await accept(linked.runtime, message, key=f"{number}") == [first]
        accepted[number] = first.number

    for number in range(COUNT):
        await publish(chance.choice((one, two)), number)
    late = Outgoing(ring.topic, b"late", b"%d" % COUNT, delay_ms=2_000)
    [delayed] = await accept(two.runtime, late)
    await two.runtime.stop()
    found = await one.collect(COUNT + 1)
    assert sorted(numbers(found)) == list(range(COUNT + 1)), seed
    [last] = [each for each in found if each.record.key == b"late"]
    assert last.record.timestamp_ms >= delayed.due_ms - 5
    order: dict[bytes | None, list[int]] = defaultdict(list)
    for each in sorted(found, key=lambda each: each.record.offset):
        if each is not last:
            order[each.record.key].append(accepted[numbers([each])[0]])
    assert order == {key: sorted(seen) for key, seen in order.items()}, seed
    assert await one.settle(found, SettleVerb.ACK) == ["acked"] * len(found)
    await one.nothing(1_000)
