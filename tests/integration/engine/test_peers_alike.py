"""What a subscription promises holds for messages that reach an application through a peer: order,
deduplication, rate, circuit breaker, traces. Links over real sockets, a real Valkey, one partition.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from ackd.api.messages import Delivery, SettleVerb
from ackd.config.dedup import DedupSettings
from ackd.config.traces import TraceSettings
from tests.integration.engine.linked import (
    ALL,
    NAME,
    PULSAR,
    ROCKETMQ,
    Linked,
    Ring,
    begin,
    numbers,
    ring_of,
)
from tests.integration.engine.test_dedup import keys_in_store
from tests.integration.engine.test_rate import BURST, LIMITS, RATE, watched
from tests.support.limits import limit
from tests.support.otlp import offsets, spans
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.redis, pytest.mark.timeout(240)]
FAILURES = 3
MOST = 50
BY_THE_CLOCK = [
    pytest.param("local", marks=pytest.mark.alone),
    pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.alone]),
]
FAR_MS = 600_000
TRIAL_MS = 1_000


@pytest.fixture(params=ALL)
async def ring(request: pytest.FixtureRequest) -> AsyncIterator[Ring]:
    """A topic of one partition."""
    async with ring_of(request) as made:
        yield made


@pytest.fixture(params=ALL)
async def lined(request: pytest.FixtureRequest) -> AsyncIterator[Ring]:
    """One in which messages of a key keep their order also on RocketMQ."""
    async with ring_of(request, fifo=True) as made:
        yield made


# --- order


async def test_i6_a_key_that_fails_keeps_its_order_with_all_workers_elsewhere(lined: Ring) -> None:
    """Each message fails once, at another sidecar than the one at which it works in the end; the
    owner serves no application.
    """
    _, others = await lined.started(3, ordering="key")
    keys, each_key = [b"a", b"b", b"c"], 8
    for number in range(each_key):
        for key in keys:
            await others[0].publish(1, key=key, first=number)
    seen: dict[bytes, list[int]] = {key: [] for key in keys}
    failed: dict[tuple[bytes, int], str] = {}
    working: set[bytes] = set()
    elsewhere: Counter[bool] = Counter()

    async def work(linked: Linked) -> None:
        while sum(map(len, seen.values())) < len(keys) * each_key:
            for message in (await linked.receive(1, wait_ms=500)).messages:
                key, [number] = message.record.key or b"", numbers([message])
                assert key not in working, "two of a key at the same time"
                assert number == len(seen[key]), f"{number} of {key!r} after {seen[key]}"
                working.add(key)
                await asyncio.sleep(0.005)  # the work
                working.remove(key)
                if message.attempt == 1:
                    failed[key, number] = linked.name
                    settled = await linked.settle([message], SettleVerb.RETRY, delay_ms=20)
                    assert settled == ["retrying"]
                    continue
                elsewhere[failed[key, number] != linked.name] += 1
                seen[key].append(number)
                assert await linked.settle([message], SettleVerb.ACK) == ["acked"]

    await asyncio.wait_for(asyncio.gather(*(work(each) for each in others)), 120)
    assert seen == {key: list(range(each_key)) for key in keys}
    assert elsewhere[True], "each came twice to one sidecar"


# --- attempts and notes


async def test_notes_reach_the_next_attempt_through_a_link(ring: Ring) -> None:
    owner, [other] = await ring.started(2)
    await owner.publish(1)
    message = await owner.one()
    for linked, note in ((owner, "half"), (other, "most")):
        extended = await linked.settle([message], SettleVerb.EXTEND, lease_ms=60_000, note=note)
        assert extended == ["extended"]
        assert await linked.settle([message], SettleVerb.RETRY, delay_ms=0) == ["retrying"]
        attempt, message = message.attempt, await other.one()
        assert (message.attempt, message.note) == (attempt + 1, note)


async def test_r21_a_repeat_of_a_receive_gets_the_same_leases_at_any_sidecar(ring: Ring) -> None:
    """At the one that answered with what another one granted, at the owner, and at one that has to
    ask it. They are settled once.
    """
    owner, [other] = await ring.started(2)
    await owner.publish(6)
    found: list[Delivery] = []
    for number, (asked, again) in enumerate(((other, other), (owner, other), (other, owner))):
        first = await asked.receive(2, attempt_id=f"{number}")
        repeated = await again.receive(2, attempt_id=f"{number}")
        assert repeated.replayed
        assert [each.lease for each in repeated.messages] == [each.lease for each in first.messages]
        assert numbers(repeated.messages) == numbers(first.messages)
        assert {each.attempt for each in repeated.messages} == {1}
        found += repeated.messages
    found += await other.collect(6 - len(found)) if len(found) < 6 else []
    assert sorted(numbers(found)) == list(range(6))
    assert await other.settle(found, SettleVerb.ACK) == ["acked"] * 6


# --- deduplication


async def test_r18_a_repeat_of_what_was_acked_elsewhere_reaches_nobody(ring: Ring) -> None:
    owner, [other] = await ring.started(2, dedup=DedupSettings(key="header:order"))
    await publish_orders(owner, "a", "b")
    found = await other.collect(2)
    assert await other.settle(found, SettleVerb.ACK) == ["acked"] * 2
    await keys_in_store(owner.runtime, ring.topic, 2)
    await publish_orders(owner, "b", "c", "a")
    waiting = begin(owner.receive(10, wait_ms=1_000))
    found = (await other.receive(10, wait_ms=1_000)).messages
    found += (await waiting).messages
    assert [dict(each.record.headers)["order"] for each in found] == [b"c"]
    assert set(await other.settle(found, SettleVerb.ACK)) == {"acked"}
    await owner.until_watermark(5)
    assert (await owner.runtime.explain(NAME)).repeats == 2


async def publish_orders(linked: Linked, *orders: str) -> None:
    """One message each."""
    for order in orders:
        await linked.publish(1, headers=(("order", order.encode()),))


# --- rate


@pytest.mark.parametrize("ring", [*BY_THE_CLOCK, PULSAR, ROCKETMQ], indirect=True)
async def test_the_rate_holds_where_no_worker_is_beside_the_owner(ring: Ring) -> None:
    """Two sidecars get all through a link, never more than the rate allows, and all of it."""
    owner, others = await ring.started(3, **LIMITS)
    count = BURST + 3 * RATE
    await owner.publish(count + 2 * MOST)  # as much as both may have asked for at the end
    async with watched() as watch, asyncio.TaskGroup() as group:
        for each in others:
            group.create_task(watch.consume(each.name, receiving(each), count))
    elapsed_s = time.monotonic() - watch.begin_s
    # Pulsar and RocketMQ have no turn to themselves, for which each would have to be started.
    slow_s = limit(0, busy=20) if ring.pulsar or ring.rocketmq else 0
    assert elapsed_s <= 3 * 1.05 + watch.stalled_s + slow_s, f"too slow: {watch}"
    assert min(watch.by.values()) >= count / 5, f"not fair: {watch.by}"


def receiving(linked: Linked) -> Callable[[], Awaitable[int]]:
    """Short waits, so that nobody waits past the end."""

    async def receive() -> int:
        return len((await linked.receive(MOST, wait_ms=300)).messages)

    return receive


# --- circuit breaker


async def fail_by_retry(linked: Linked, messages: list[Delivery]) -> None:
    """They come again long after this test."""
    settled = await linked.settle(messages, SettleVerb.RETRY, delay_ms=FAR_MS)
    assert settled == ["retrying"] * len(messages)


async def fail_by_expiry(_linked: Linked, _messages: list[Delivery]) -> None:
    """The leases end by themselves."""


@pytest.mark.parametrize("fail", [fail_by_retry, fail_by_expiry])
async def test_the_breaker_beside_a_failing_application_opens_and_no_other(
    ring: Ring, fail: Callable[[Linked, list[Delivery]], Awaitable[None]]
) -> None:
    """It holds what would come through a link, but one message as a trial, which closes it; the
    application beside the owner goes on meanwhile.
    """
    settings = {"circuit_breaker_failures": FAILURES, "circuit_breaker_trial_ms": TRIAL_MS}
    owner, [other] = await ring.started(2, **settings)
    await owner.publish(FAILURES)
    lease = {"lease_ms": 500} if fail is fail_by_expiry else {}
    await fail(other, await other.collect(FAILURES, **lease))

    async def opened() -> bool:
        return bool(other.runtime._subscriptions[NAME].breaker.on)

    await wait_until_async(opened, "the breaker to open")
    await owner.publish(20, first=100)
    # Leases that ran out: their messages come again.
    count = 20 + (FAILURES if fail is fail_by_expiry else 0)
    [trial] = (await other.receive(10, wait_ms=10 * TRIAL_MS)).messages
    assert (await other.receive(10, wait_ms=100)).messages == [], "a second one beside the trial"
    found = await owner.collect(count - 1)
    assert not owner.runtime._subscriptions[NAME].breaker.on
    assert await owner.settle(found, SettleVerb.ACK) == ["acked"] * len(found)
    assert await other.settle([trial], SettleVerb.ACK) == ["acked"]
    await owner.publish(10, first=200)
    assert sorted(numbers(await other.collect(10))) == list(range(200, 210))


# --- traces


async def test_traces_say_who_owned_and_who_served(ring: Ring, tmp_path: Path) -> None:
    """The owner tells of the delivery, with the sidecar that served it as a part of the holder's
    name; that one of the settle. One message is one trace.
    """
    folder = tmp_path / "traces"
    ring.traces = TraceSettings(files=True, folder=folder, flush_ms=20)
    owner, [other] = await ring.started(2)
    await owner.publish(2)
    mine = await owner.one(holder="worker-1")
    theirs = await other.one(holder="worker-2")
    for linked, message in ((owner, mine), (other, theirs)):
        assert await linked.settle([message], SettleVerb.ACK) == ["acked"]
    await owner.until_watermark(2)

    async def both_told() -> bool:
        return {each["instance"] for each in spans(folder) if each["ackd.event"] == "ack"} == {
            owner.name,
            other.name,
        }

    await wait_until_async(both_told, "both to tell of settles")
    await owner.runtime.stop()
    await other.runtime.stop()
    found = spans(folder)
    last = [each for each in found if each["ackd.event"] == "status"]
    assert all(each["ackd.spans.dropped"] == 0 for each in last)
    received = [each for each in found if each["ackd.event"] == "receive"]
    assert {each["instance"] for each in received} == {owner.name}
    told = Counter(o for each in received for o in offsets(each["ackd.offsets"]))
    assert told == Counter([mine.record.offset, theirs.record.offset])
    acks = [each for each in found if each["ackd.event"] == "ack"]
    of_mine = [each for each in acks if each["messaging.message.id"] == mine.id]
    of_theirs = [each for each in acks if each["messaging.message.id"] == theirs.id]
    assert {each["instance"] for each in of_mine} == {owner.name}
    assert {each["instance"] for each in of_theirs} == {owner.name, other.name}
    assert len({(each["trace"], each["span"]) for each in of_theirs}) == 1
    [holder] = {each["ackd.holder"] for each in of_mine if "ackd.holder" in each}
    assert holder == "worker-1"
    [holder] = {each["ackd.holder"] for each in of_theirs if "ackd.holder" in each}
    assert holder == f"via {other.name}: worker-2"
