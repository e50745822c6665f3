"""I4: what ran out comes again at once, and not before, on brokers where nothing else measures it;
the leases are those of a sidecar that does not own the partition.
"""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator

import pytest

from ackd.api.messages import SettleItem, SettleVerb
from tests.integration.engine.linked import KAFKA, PULSAR, ROCKETMQ, Ring, ring_of
from tests.support.limits import limit

pytestmark = [pytest.mark.redis, pytest.mark.timeout(240)]
COUNT = 200
SEED = 2101
SOON_MS, SPREAD_MS = 1_000, 2_000
LATE_P99_MS = limit(100, busy=5_000)


@pytest.fixture(params=[KAFKA, PULSAR, ROCKETMQ])
async def ring(request: pytest.FixtureRequest) -> AsyncIterator[Ring]:
    """A topic of one partition."""
    async with ring_of(request) as made:
        yield made


async def test_i4_each_lease_that_ends_comes_again_when_it_has_ended(ring: Ring) -> None:
    rng = random.Random(SEED)
    owner, [other] = await ring.started(2)
    await owner.publish(COUNT)
    held = await other.collect(COUNT, lease_ms=600_000)
    items = [
        SettleItem(each.lease, SettleVerb.EXTEND, lease_ms=SOON_MS + rng.randrange(SPREAD_MS))
        for each in held
    ]
    extended = await other.runtime.settle(items)
    assert {each.status.value for each in extended} == {"extended"}
    deadline_ms = {
        message.id: each.deadline_ms or 0 for message, each in zip(held, extended, strict=True)
    }
    late_ms: dict[str, float] = {}
    while len(late_ms) < COUNT:
        found = (await other.receive(100, lease_ms=600_000)).messages
        now_ms = time.time_ns() / 1_000_000
        for each in found:
            assert each.id not in late_ms
            assert each.attempt == 2
            late_ms[each.id] = now_ms - deadline_ms[each.id]
    ordered = sorted(late_ms.values())
    assert ordered[0] >= -1, "none comes early"
    assert ordered[COUNT * 99 // 100] <= LATE_P99_MS, ordered[-10:]
