"""Partitions of the topic and of the retry topic are shared apart, at every order of joining, on
real brokers, with the settings that a subscription has by default.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from ackd.api.messages import Delivery, SettleVerb
from ackd.config.peers import PeerSettings
from ackd.core.ids import TopicPartition
from tests.integration.engine.linked import (
    ALL,
    PULSAR,
    WITH_PARTITIONS,
    Linked,
    Ring,
    numbers,
    ring_of,
)
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.redis, pytest.mark.timeout(240)]
ORDERS = pytest.mark.parametrize("order", ["ab", "ba", "at once", "again"])
ALONE = PeerSettings(on=False)
"""Without links: what one delivers comes from partitions of its own."""


@pytest.fixture(params=WITH_PARTITIONS)
async def four(request: pytest.FixtureRequest) -> AsyncIterator[Ring]:
    """A topic of four partitions, not made yet."""
    async with ring_of(request, make=False, partitions=4) as made:
        yield made


async def all_deliver(ring: Ring, members: list[Linked], count: int) -> None:
    """Messages in every partition: each delivers those of its own, all are settled."""
    await members[0].publish(count)
    found: list[Delivery] = []
    for each in members:
        mine = await each.collect(count * each.main // ring.partitions)
        assert mine, f"{each.name} delivers nothing"
        assert {TopicPartition(one.topic, one.partition) for one in mine} <= each.owned
        assert await each.settle(mine, SettleVerb.ACK) == ["acked"] * len(mine)
        found += mine
    assert sorted(numbers(found)) == list(range(count))


async def two_join(ring: Ring, order: str, peers: PeerSettings | None = None) -> None:
    """Two sidecars work in the end."""
    await ring.make_topic()
    if order == "at once":
        async with asyncio.TaskGroup() as group:
            for name in "ab":
                group.create_task(ring.start(peers, name))
    elif order == "again":
        first = await ring.start(peers, "a")
        await ring.start(peers, "b")
        await ring.until_shared()
        ring.members.remove(first)
        await first.runtime.stop()
        await ring.until_shared()
        await ring.start(peers, "c")
    else:
        for name in order:
            await ring.start(peers, name)
            await ring.until_shared()


@ORDERS
async def test_two_sidecars_work_at_every_order_of_joining(four: Ring, order: str) -> None:
    await two_join(four, order, ALONE)

    async def even() -> bool:
        return four.shared() and {len(each.owned) for each in four.members} == {4}

    await wait_until_async(even, "each to have half of both topics")
    await all_deliver(four, four.members, 40)


@ORDERS
@pytest.mark.parametrize("four", ALL, indirect=True)
async def test_two_sidecars_share_the_work_at_every_order_of_joining(
    four: Ring, order: str
) -> None:
    """With links, as they are by default: workers alike do as much at the one as at the other, also
    on RocketMQ, where one of them owns all.
    """
    await two_join(four, order)
    await shares_the_work(four)


@pytest.mark.parametrize("four", [PULSAR], indirect=True)
async def test_two_sidecars_share_the_work_of_a_topic_without_partitions(four: Ring) -> None:
    """One of them owns it, as Pulsar has no more than a log there."""
    four.partitions, four.partitioned = 1, False
    await two_join(four, "ab")
    await shares_the_work(four)


async def shares_the_work(four: Ring) -> None:
    """Workers beside two sidecars do as much each."""
    await four.until_shared()
    count, done = 200, Counter[int]()
    by: Counter[str] = Counter()

    async def work(linked: Linked) -> None:
        while sum(by.values()) < count:
            for message in (await linked.receive(1, wait_ms=500)).messages:
                await asyncio.sleep(0.02)  # the work
                assert await linked.settle([message], SettleVerb.ACK) == ["acked"]
                done.update(numbers([message]))
                by[linked.name] += 1

    await four.members[0].publish(count)
    await asyncio.wait_for(asyncio.gather(*(work(each) for each in four.members)), 90)
    assert done == Counter(range(count))
    assert min(by[each.name] for each in four.members) >= count * 2 // 5, by


async def test_leases_live_on_when_their_partitions_move(four: Ring) -> None:
    """Three sidecars come and one goes, while one has leases of all partitions: each is settled,
    anywhere, and nothing comes a second time.
    """
    await four.make_topic()
    first = await four.start()
    await first.publish(40)
    held = await first.collect(40, lease_ms=600_000)
    for _ in range(3):
        await four.start()
    await four.until_shared()
    four.members.remove(first)
    await first.runtime.stop()
    await four.until_shared()
    one, two, three = four.members
    assert await one.settle(held[:10], SettleVerb.EXTEND, lease_ms=60_000) == ["extended"] * 10
    assert await one.settle(held[:20], SettleVerb.ACK) == ["acked"] * 20
    assert await two.settle(held[20:], SettleVerb.ACK) == ["acked"] * 20
    await three.nothing(1_000)
    await one.publish(4, first=40)
    assert sorted(numbers(await three.collect(4))) == [40, 41, 42, 43]


@pytest.mark.parametrize("partitions", [4, 8])
async def test_four_sidecars_that_come_one_by_one(four: Ring, partitions: int) -> None:
    """Three of them, too: none has the retry topic only."""
    four.partitions = partitions
    await four.make_topic()
    for count in range(1, 5):
        await four.start(ALONE)
        await four.until_shared()
        if count >= 3:
            await all_deliver(four, four.members, 40 if count == 3 else 80)


async def test_more_sidecars_than_partitions(four: Ring) -> None:
    """One without partitions has none of the retry topic either, and delivers over links."""
    four.partitions = 2
    await four.make_topic()
    for _ in range(3):
        await four.start()
    await four.until_shared()
    [idle] = [each for each in four.members if not each.owned]
    await idle.publish(20)
    got = await idle.collect(20)
    assert sorted(numbers(got)) == list(range(20))
    assert await idle.settle(got, SettleVerb.ACK) == ["acked"] * 20


@pytest.mark.parametrize("four", ALL, indirect=True)
async def test_the_bound_of_leases_is_whole_beside_one_that_owns_nothing(four: Ring) -> None:
    """`in_flight_max` is shared by partitions, those of the retry topic counted; so who has all of
    both may use all of it, for an application that has none.
    """
    four.partitions = 1
    await four.make_topic()
    for _ in range(2):
        await four.start(in_flight_max=100)
    await four.until_shared()
    [idle] = [each for each in four.members if not each.owned]
    await idle.publish(120)
    got = await idle.collect(100, most=100)
    assert (await idle.receive(20, wait_ms=500)).messages == []
    assert await idle.settle(got, SettleVerb.ACK) == ["acked"] * 100
    got += await idle.collect(20, most=20)
    assert sorted(numbers(got)) == list(range(120))
