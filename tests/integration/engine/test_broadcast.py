"""Broadcast: every sidecar gets every message, and goes on where it was (I1, I2, R6)."""

from __future__ import annotations

from ackd.api.messages import SettleVerb
from ackd.api.progress import SeekRequest, SeekTo
from tests.integration.engine.test_seek import seek
from tests.integration.engine.test_send_back import Place
from tests.integration.engine.test_send_back import place as place  # noqa: PLC0414  the fixture


async def test_each_gets_everything_and_resumes_by_itself(place: Place) -> None:
    one = await place.start("one", mode="broadcast")
    await one.publish(5)
    two = await place.start("two", mode="broadcast")
    first = await one.collect(5, lease_ms=300_000, wait_ms=30_000)
    second = await two.collect(5, lease_ms=300_000, wait_ms=30_000)
    ids = [f"{place.topic}/0/{n}" for n in range(5)]
    assert sorted(m.id for m in first) == sorted(m.id for m in second) == ids
    # An ack is one sidecar's own: here the last, there all but the first.
    assert await one.settle(first[4:], SettleVerb.ACK) == ["acked"]
    assert set(await two.settle(second[1:], SettleVerb.ACK)) == {"acked"}
    # A lease of one is nothing to the other.
    assert await two.settle(first[:1], SettleVerb.ACK) == ["lost"]
    # What is stuck there comes again there only; its copy is in a topic of that sidecar.
    await two.until_watermark(5)
    assert await two.settle(second[:1], SettleVerb.RETRY, delay_ms=100) == ["retrying"]
    (again,) = await two.receive(wait_ms=30_000)
    assert (again.id, again.attempt) == (ids[0], 2)
    await two.settle([again], SettleVerb.ACK)
    assert await one.settle(first[:4], SettleVerb.ACK) == ["acked"] * 4
    await one.until_watermark(5)
    await two.runtime.stop()
    await one.publish(2)
    assert len(await one.collect(2)) == 2
    # A restart goes on; under another name it begins as a new group does.
    two = await place.start("two", mode="broadcast", start="latest")
    assert [m.id for m in await two.collect(2, wait_ms=30_000)] == [
        f"{place.topic}/0/5",
        f"{place.topic}/0/6",
    ]
    three = await place.start("three", mode="broadcast", broadcast_id="two.b", start="latest")
    assert await three.receive(wait_ms=1_000) == []
    await one.publish(1)
    assert len(await three.collect(1, wait_ms=30_000)) == 1
    # Progress is moved for one of them.
    await seek(three, SeekRequest(SeekTo.EARLIEST))
    assert len(await three.collect(7, wait_ms=30_000)) == 7
    assert len(await one.collect(1)) == 1


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
