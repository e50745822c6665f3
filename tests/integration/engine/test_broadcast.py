"""Broadcast: every sidecar gets every message, and goes on where it was (I1, I2, R6)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from ackd.api.messages import SettleVerb
from ackd.api.progress import SeekRequest, SeekTo
from tests.integration.engine.linked import WITH_PARTITIONS, Ring, numbers, ring_of
from tests.integration.engine.test_seek import seek
from tests.integration.engine.test_send_back import QUICK, Place
from tests.integration.engine.test_send_back import place as place  # noqa: PLC0414  the fixture


@pytest.fixture(params=WITH_PARTITIONS)
async def ring(request: pytest.FixtureRequest) -> AsyncIterator[Ring]:
    """A topic of one partition."""
    async with ring_of(request) as made:
        yield made


async def test_each_gets_everything_and_resumes_by_itself(ring: Ring) -> None:
    everyone: dict[str, Any] = {"mode": "broadcast", **QUICK}
    one = await ring.start(name="one", **everyone)
    await one.publish(5)
    two = await ring.start(name="two", **everyone)
    first = await one.collect(5, lease_ms=300_000)
    second = await two.collect(5, lease_ms=300_000)
    ids = [m.id for m in first]
    assert numbers(first) == numbers(second) == list(range(5))
    assert [m.id for m in second] == ids
    # An ack is one sidecar's own: here the last, there all but the first.
    assert await one.settle(first[4:], SettleVerb.ACK) == ["acked"]
    assert set(await two.settle(second[1:], SettleVerb.ACK)) == {"acked"}
    # A lease of one is nothing to the other.
    assert await two.settle(first[:1], SettleVerb.ACK) == ["lost"]
    # What is stuck there comes again there only; its copy is in a topic of that sidecar.
    await two.until_watermark(second[4].record.offset)
    assert await two.settle(second[:1], SettleVerb.RETRY, delay_ms=100) == ["retrying"]
    again = await two.one()
    assert (again.id, again.attempt) == (ids[0], 2)
    await two.settle([again], SettleVerb.ACK)
    assert await one.settle(first[:4], SettleVerb.ACK) == ["acked"] * 4
    await one.until_watermark(first[4].record.offset + 1)
    await two.runtime.stop()
    await one.publish(2, first=5)
    assert len(await one.collect(2)) == 2
    # A restart goes on; under another name it begins as a new group does.
    two = await ring.start(name="two", **{**everyone, "start": "latest"})
    assert numbers(await two.collect(2)) == [5, 6]
    more = {"broadcast_id": "two.b", "start": "latest"}
    three = await ring.start(name="three", **{**everyone, **more})
    await three.nothing(1_000)
    await one.publish(1, first=7)
    last = await three.one()
    assert numbers([last]) == [7]
    at_time = {"start": "timestamp", "start_timestamp_ms": last.record.timestamp_ms}
    four = await ring.start(name="four", **{**everyone, **at_time})
    assert numbers(await four.collect(1)) == [7]
    await four.nothing()
    # Progress is moved for one of them; what it has under lease is not delivered again.
    await seek(three.runtime, SeekRequest(SeekTo.EARLIEST))
    assert numbers(await three.collect(7)) == list(range(7))
    assert numbers(await one.collect(1)) == [7]


async def test_r6_a_group_that_exists_resumes_whatever_the_start_policy_says(place: Place) -> None:
    one = await place.start()
    await one.publish(4)
    messages = await one.collect(4)
    await one.settle([messages[0], messages[2]], SettleVerb.ACK)
    await one.settle([messages[1], messages[3]], SettleVerb.RELEASE)
    await one.until_watermark(1)
    await one.runtime.stop()
    for policy in (
        {"start": "latest"},
        {"start": "timestamp", "start_timestamp_ms": 0},
        {"start": "earliest"},
    ):
        again = await place.start("one", **policy)
        found = await again.collect(2)
        assert sorted(m.id for m in found) == [f"{place.topic}/0/1", f"{place.topic}/0/3"]
        await again.settle(found, SettleVerb.RELEASE)
        await again.runtime.stop()
