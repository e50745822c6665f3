"""Messages reach any sidecar: links over real sockets, a real Valkey, a topic of one partition."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from ackd.api.messages import Delivery, Received, SettleVerb
from ackd.config.peers import PeerSettings
from tests.integration.engine.linked import NAME, TWO, Linked, Ring, begin, numbers, ring_of
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.redis, pytest.mark.timeout(240)]
MIB = 1 << 20


@pytest.fixture
async def ring(request: pytest.FixtureRequest) -> AsyncIterator[Ring]:
    """A local queue."""
    async with ring_of(request) as made:
        yield made


@pytest.fixture(params=TWO)
async def any_ring(request: pytest.FixtureRequest) -> AsyncIterator[Ring]:
    """A local queue, and Kafka."""
    async with ring_of(request) as made:
        yield made


async def waits_at(owner: Linked, count: int = 1) -> None:
    """So many receives wait there."""

    async def there() -> bool:
        return owner.waiting() >= count

    await wait_until_async(there, f"{count} receives to wait at {owner.name}")


async def test_an_application_beside_a_sidecar_without_the_partition_gets_every_message(
    any_ring: Ring,
) -> None:
    """It settles there, too: none is lost and none comes twice."""
    owner, [other] = await any_ring.started(2)
    found: list[Delivery] = []

    async def work() -> None:
        while len(found) < 200:
            got = await other.collect(1, most=7)
            found.extend(got)
            assert await other.settle(got, SettleVerb.ACK) == ["acked"] * len(got)

    working = begin(work())
    for first in range(0, 200, 40):
        await owner.publish(40, first=first)
    await asyncio.wait_for(working, 60)
    assert numbers(found) == list(range(200))
    assert {each.attempt for each in found} == {1}
    await owner.until_watermark(200)
    await owner.nothing()
    await other.nothing()


async def test_workers_at_three_sidecars_share_one_partition(any_ring: Ring) -> None:
    """`max` 1 and the same work everywhere: each has a fifth of the messages at least."""
    owner, others = await any_ring.started(3)
    every, count = [owner, *others], 150
    done: Counter[int] = Counter()
    by: Counter[str] = Counter()

    async def work(linked: Linked) -> None:
        while sum(by.values()) < count:
            got = (await linked.receive(1, wait_ms=500)).messages
            if not got:
                continue
            await asyncio.sleep(0.02)  # the work
            assert await linked.settle(got, SettleVerb.ACK) == ["acked"]
            done.update(numbers(got))
            by[linked.name] += 1

    working = [begin(work(each)) for each in every]
    await owner.publish(count)
    await asyncio.wait_for(asyncio.gather(*working), 90)
    assert done == Counter(range(count))
    assert min(by[each.name] for each in every) >= count // 5, by
    await owner.until_watermark(count)
    told = await others[0].runtime.group(NAME).lag()
    assert told.missing == {}
    shares = {each.sidecar: each for each in told.sidecars}
    assert sum(each.partitions for each in shares.values()) == shares[owner.name].partitions == 1
    assert all(each.lag == 0 for each in shares.values()), "none is behind"
    for each in others:
        served = shares[each.name].served
        assert served is not None
        assert (served.own, served.for_peers, served.through_peers) == (0, 0, by[each.name])
    served = shares[owner.name].served
    assert served is not None
    assert (served.own, served.through_peers) == (by[owner.name], 0)
    assert served.for_peers == count - by[owner.name]


async def test_every_settle_works_where_the_message_came_through_a_link(any_ring: Ring) -> None:
    owner, [other] = await any_ring.started(2)
    await owner.publish(5)
    acked, retried, kept, dead, released = await other.collect(5)
    assert await other.settle([acked], SettleVerb.ACK) == ["acked"]
    assert await other.settle([acked], SettleVerb.ACK) == ["already_acked"]
    assert await other.settle([kept], SettleVerb.EXTEND, lease_ms=120_000) == ["extended"]
    assert await other.settle([dead], SettleVerb.DEAD, reason="broken") == ["dead"]
    assert await other.settle([released], SettleVerb.RELEASE) == ["released"]
    again = await other.one()
    assert (again.id, again.attempt) == (released.id, 1)
    assert await other.settle([retried], SettleVerb.RETRY, delay_ms=0) == ["retrying"]
    again = await other.one()
    assert (again.id, again.attempt) == (retried.id, 2)
    view = await other.runtime.lease(kept.lease)
    assert view.state == "leased"
    assert view.deadline_ms is not None
    assert view.deadline_ms > kept.deadline_ms + 60_000

    async def there() -> bool:
        page = await other.runtime.dead.page("work", None, 10)
        return [each.message for each in page.messages] == [dead.id]

    await wait_until_async(there, "the dead letter")
    await other.nothing()


async def test_the_owner_stops_while_a_receive_waits_there(ring: Ring) -> None:
    """The receive goes on by itself: it gets what is published after the partition has moved."""
    owner, [other] = await ring.started(2)
    waiting = begin(other.receive(10))
    await waits_at(owner)
    await owner.runtime.stop()
    ring.members.remove(owner)
    await ring.sorted()
    assert not waiting.done()
    await other.publish(3)
    first = (await waiting).messages
    rest = await other.collect(3 - len(first)) if len(first) < 3 else []
    assert numbers([*first, *rest]) == [0, 1, 2]


async def test_r21_a_receive_that_goes_away_leaves_its_message_to_others(ring: Ring) -> None:
    """Cancelled while it waits, and at the moment at which the answer comes: never counted."""
    owner, [other] = await ring.started(2)
    for number in range(20):
        waiting = begin(other.receive(1))
        await waits_at(owner)
        await owner.publish(1, first=number)
        for _ in range(number * 2):
            await asyncio.sleep(0)  # each time the answer is a step further on its way
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            message = (await waiting).messages[0]
            assert await other.settle([message], SettleVerb.ACK) == ["acked"]
            continue
        message = await owner.one()
        assert (numbers([message]), message.attempt) == ([number], 1)
        assert await owner.settle([message], SettleVerb.ACK) == ["acked"]
    await owner.until_watermark(20)


async def test_r21_an_answer_that_was_not_sent_gives_its_leases_back(ring: Ring) -> None:
    """What the HTTP side does when its caller has gone."""
    owner, [other] = await ring.started(2)
    await owner.publish(1)
    received = await other.receive()
    await other.runtime.abandon(received)
    message = await owner.one()
    assert (message.id, message.attempt) == (received.messages[0].id, 1)


async def test_a_large_message_travels_through_a_link(ring: Ring) -> None:
    owner, [other] = await ring.started(2)
    size = 5 * MIB
    await owner.publish(2, size=size)
    for number in range(2):
        message = await other.one()
        assert numbers([message]) == [number]
        assert len(message.record.value or b"") == size
        assert await other.settle([message], SettleVerb.ACK) == ["acked"]


async def test_i6_keys_stay_in_order_with_workers_at_both(any_ring: Ring) -> None:
    owner, others = await any_ring.started(2, ordering="key")
    keys, each_key = [b"a", b"b", b"c"], 12
    for number in range(each_key):
        for key in keys:
            await owner.publish(1, key=key, first=number)
    seen: dict[bytes, list[int]] = {key: [] for key in keys}
    working: set[bytes] = set()
    served: Counter[str] = Counter()

    async def work(linked: Linked) -> None:
        while sum(map(len, seen.values())) < len(keys) * each_key:
            for message in (await linked.receive(1, wait_ms=500)).messages:
                key = message.record.key or b""
                assert key not in working, "two of a key at the same time"
                working.add(key)
                await asyncio.sleep(0.005)  # the work
                working.remove(key)
                seen[key] += numbers([message])
                served[linked.name] += 1
                assert await linked.settle([message], SettleVerb.ACK) == ["acked"]

    await asyncio.wait_for(asyncio.gather(*(work(each) for each in (owner, *others))), 90)
    assert seen == {key: list(range(each_key)) for key in keys}
    assert len(served) == 2, served


async def test_r21_a_repeat_of_a_receive_gets_a_lease_whose_message_has_moved(
    any_ring: Ring,
) -> None:
    """It is in the retry topic by then. At the sidecar that answered, at the owner, and at one that
    started afterwards; another message of the same answer, which did not move, comes with it.
    """
    owner, [other] = await any_ring.started(2, stuck_after_ms=1_000)
    await owner.publish(2)
    asked: dict[str, Any] = {"attempt_id": "a", "lease_ms": 600_000}
    first = await other.receive(2, **asked)
    assert numbers(first.messages) == [0, 1]

    async def moved() -> bool:
        states = [each.state for each in (await other.runtime.group(NAME).in_flight(0, 9)).messages]
        return "waiting_for_lease" in states

    await wait_until_async(moved, "a copy that waits for the lease")
    third = await any_ring.start(stuck_after_ms=1_000)
    for member in (other, owner, third):
        again = await member.receive(2, **asked)
        assert again.replayed, member.name
        assert [each.lease for each in again.messages] == [each.lease for each in first.messages]
        assert numbers(again.messages) == [0, 1]
        assert [each.id for each in again.messages] == [each.id for each in first.messages]
    assert await owner.settle(first.messages, SettleVerb.ACK) == ["acked"] * 2


async def test_any_sidecar_tells_of_the_whole_group(any_ring: Ring) -> None:
    """Progress, messages in flight and what holds them, of a partition that another one owns."""
    owner, others = await any_ring.started(3)
    await owner.publish(3)
    [message] = await others[0].collect(1)
    group = others[1].runtime.group(NAME)
    lag = await group.lag()
    [row] = [each for each in lag.partitions if each.topic == any_ring.topic]
    assert (row.owner, row.watermark, row.leased, row.end) == (owner.name, 0, 1, 3)
    assert all(each.watermark == 0 for each in lag.partitions)
    flight, explained = await group.in_flight(0, 10), await group.explain()
    assert [each.id for each in flight.messages] == [message.id]
    [held] = [each for each in explained.partitions if each.topic == any_ring.topic]
    assert held.head is not None
    assert others[0].name in held.head.holder
    assert (lag.missing, flight.missing, explained.missing) == ({}, {}, {})
    assert explained.elsewhere.keys() >= {owner.name}
    await others[0].settle([message], SettleVerb.ACK)


async def test_a_receive_goes_to_the_new_owner_when_the_old_one_stops(any_ring: Ring) -> None:
    """An orderly stop, while receives of both others wait."""
    owner, others = await any_ring.started(3)
    waiting = [begin(each.receive(1, wait_ms=60_000)) for each in others]
    for each in others:
        await waits_at(each)
    await owner.runtime.stop()
    any_ring.members.remove(owner)
    await others[0].publish(2)
    found = [message for each in waiting for message in (await each).messages]
    assert sorted(numbers(found)) == [0, 1]
    assert {message.attempt for message in found} == {1}


async def test_sidecars_that_cannot_reach_each_other_go_on_as_without_links(ring: Ring) -> None:
    """They say so in readiness, which stays green."""
    wrong = PeerSettings(on=True, advertise="127.0.0.1:1")
    owner, [other] = await ring.started(2, peers=wrong)
    waiting = begin(other.receive(1, wait_ms=3_000))
    await owner.publish(4)
    found = await owner.collect(4)
    assert numbers(found) == [0, 1, 2, 3]
    assert {message.attempt for message in found} == {1}

    async def told() -> str:
        reasons = [r for r in other.runtime.readiness() if r.name == "peers"]
        assert all(reason.ok for reason in other.runtime.readiness())
        return reasons[0].detail if reasons else ""

    assert owner.name in await wait_until_async(told, "readiness to name it")
    assert (await waiting).messages == []


def of_peers(linked: Linked) -> str:
    """What readiness says of the links, which never makes it unready."""
    assert all(reason.ok for reason in linked.runtime.readiness())
    return "".join(each.detail for each in linked.runtime.readiness() if each.name == "peers")


async def left_out(owner: Linked, others: list[Linked]) -> Linked:
    """The only one that says that the owner has no room; receives of all others wait there."""
    found: list[Linked] = []

    async def told() -> bool:
        words = (owner.name, "it has all the connections")
        found[:] = [each for each in others if all(word in of_peers(each) for word in words)]
        return len(found) == 1 and owner.waiting() == len(others) - 1

    await wait_until_async(told, "one to be left out")
    return found[0]


async def test_an_owner_serves_three_quarters_of_its_links_and_one_left_out_is_told(
    ring: Ring,
) -> None:
    """Of 4: three others have links, the next one says so in readiness. It gets messages once room
    is free again, or from the next owner.
    """
    few = PeerSettings(on=True, connections_max=4)
    owner, others = await ring.started(5, peers=few)

    def wait(linked: Linked) -> asyncio.Task[Received]:
        return begin(linked.receive(1, wait_ms=120_000))

    waiting = {each.name: wait(each) for each in others}
    out = await left_out(owner, others)
    linked = owner.runtime.metrics.registry.get_sample_value("ackd_peers_connected")
    assert linked == 3
    await owner.publish(3)
    served = [each for each in others if each is not out]
    found = [message for each in served for message in (await waiting[each.name]).messages]
    await owner.publish(1, first=3)
    found.append(await owner.one())
    assert sorted(numbers(found)) == [0, 1, 2, 3]
    assert not waiting[out.name].done()

    gone = served.pop()
    await gone.runtime.stop()
    ring.members.remove(gone)
    await waits_at(owner)
    assert of_peers(out) == ""
    await owner.publish(1, first=4)
    assert numbers((await waiting[out.name]).messages) == [4]

    late = await ring.start(few)
    waiting = {late.name: wait(late)}
    assert await left_out(owner, [late]) is late
    await owner.runtime.stop()
    ring.members.remove(owner)
    await late.publish(1, first=5)
    assert numbers((await waiting[late.name]).messages) == [5]
