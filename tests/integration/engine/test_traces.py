"""What two sidecars on one store write of messages that go every way; each settles the other's."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from ackd.api.messages import Delivery, SettleItem, SettleVerb, Status
from ackd.config.traces import TraceSettings
from tests.integration.engine.together import Sidecar, Together
from tests.support.otlp import offsets, spans
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(120)]

COUNT = 40


async def settle(at: Sidecar, messages: Sequence[Delivery], do: SettleVerb, status: Status) -> None:
    items = [SettleItem(each.lease, do, delay_ms=20) for each in messages]
    results = await at.runtime.settle(items)
    assert [each.status for each in results] == [status] * len(messages)


async def run(together: Together, sample: float) -> tuple[list[dict[str, Any]], Counter[str]]:
    """The story. Every settle goes to the sidecar that does not own the partition.

    Returns the spans, and how often each message was delivered.
    """
    folder = together.folder / "traces"
    together.traces = TraceSettings(files=True, folder=folder, flush_ms=20, sample=sample)
    one, two = await together.pair(attempts_max=2)
    await one.publish(COUNT)
    got = await one.collect_all(COUNT, two)
    told = Counter(each.id for each in got)
    owned = set(await one.owned())
    of_one = [each for each in got if each.partition in owned]
    of_two = [each for each in got if each.partition not in owned]
    again: list[Delivery] = []
    for owner, other, messages in ((one, two, of_one), (two, one, of_two)):
        await settle(other, messages[:8], SettleVerb.ACK, Status.ACKED)
        await settle(other, messages[8:10], SettleVerb.DEAD, Status.DEAD)
        await settle(other, messages[10:14], SettleVerb.RETRY, Status.RETRYING)
        await settle(other, messages[14:16], SettleVerb.RELEASE, Status.RELEASED)
        await settle(other, messages[16:], SettleVerb.EXTEND, Status.EXTENDED)
        await settle(owner, messages[16:], SettleVerb.ACK, Status.ACKED)
        await settle(other, messages[:1], SettleVerb.ACK, Status.ALREADY_ACKED)
        more = await owner.collect(6)
        again += more
        twice = [each for each in more if each.attempt == 2]
        assert len(twice) == 4
        await settle(other, twice[:2], SettleVerb.RETRY, Status.DEAD)  # its last attempt
        await settle(other, [e for e in more if e not in twice[:2]], SettleVerb.ACK, Status.ACKED)

    told.update(each.id for each in again)

    async def all_over() -> bool:
        rows = [row for each in (one, two) for row in await each.runtime.lag("work")]
        return sum(max(row.watermark, 0) for row in rows) >= COUNT

    await wait_until_async(all_over, "the dead letters to be stored", timeout_s=30)
    await one.runtime.stop()
    await two.runtime.stop()
    return spans(folder), told


def ids(found: Sequence[dict[str, Any]], event: str) -> set[str]:
    return {each["messaging.message.id"] for each in found if each["ackd.event"] == event}


def batched(found: Sequence[dict[str, Any]], event: str) -> Counter[str]:
    return Counter(
        f"{each['messaging.destination.name']}/{each['messaging.destination.partition.id']}/{o}"
        for each in found
        if each["ackd.event"] == event
        for o in offsets(each["ackd.offsets"])
    )


def must_hold(found: Sequence[dict[str, Any]], told: Counter[str]) -> None:
    """At every sample."""
    assert len(ids(found, "dead")) == 8
    assert ids(found, "dead_letter") == ids(found, "dead")
    assert len(ids(found, "retry")) == 8
    receives = [each for each in found if each["ackd.event"] == "receive"]
    counts = [each["messaging.batch.message_count"] for each in receives]
    assert sum(counts) == told.total()  # offsets tell once what was handed out twice in a flush
    assert batched(found, "receive").keys() == told.keys()
    acked = set(batched(found, "settle"))
    assert acked == set(told) - ids(found, "dead")
    last = [each for each in found if each["ackd.event"] == "status"]
    assert all(each["ackd.spans.dropped"] == 0 for each in last)
    for each in found:
        if each.get("ackd.delivery.attempt", 1) > 1:
            assert "ackd.sample.weight" not in each


async def test_both_tell_of_one_settle_with_the_same_ids(together: Together) -> None:
    found, told = await run(together, 1.0)
    must_hold(found, told)
    assert ids(found, "ack") == set(told) - ids(found, "dead")
    assert len(ids(found, "release")) == 4
    assert len(ids(found, "extend")) == 8
    lives: dict[str, set[str]] = {}
    settles: dict[tuple[str, str, int], set[str]] = {}
    writers: dict[tuple[str, str, int], set[str]] = {}
    for each in found:
        if "messaging.message.id" in each:
            name = str(each["messaging.message.id"])
            lives.setdefault(name, set()).add(each["trace"])
            if each["ackd.event"] in ("ack", "retry", "release"):
                place = name, str(each["ackd.event"]), int(each["ackd.delivery.attempt"])
                settles.setdefault(place, set()).add(each["span"])
                writers.setdefault(place, set()).add(each["instance"])
                assert 0 <= each["end"] - each["start"] < 120e9
    assert all(len(traces) == 1 for traces in lives.values())
    assert len({next(iter(traces)) for traces in lives.values()}) == COUNT
    assert all(len(each) == 1 for each in settles.values()), "one event, one id"
    assert sum(len(each) == 2 for each in writers.values()) >= COUNT // 2, "both have told"
    published = {e["messaging.message.id"] for e in found if "ackd.publish.unix_ms" in e}
    assert published >= ids(found, "ack")


async def test_a_small_sample_keeps_all_that_is_not_plain(together: Together) -> None:
    """At 1 in 10,000: retries, dead letters, what was released; and every offset in batches."""
    found, told = await run(together, 0.0001)
    must_hold(found, told)
    plain = ids(found, "ack") - ids(found, "retry") - ids(found, "release")
    assert len(plain) <= 2, plain
    assert ids(found, "ack") >= ids(found, "retry") - ids(found, "dead")
