"""Partitions of the topic and of the retry topic are shared apart, at every order of joining, on
real brokers, with the settings that a subscription has by default.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from ackd.api.messages import Delivery, SettleVerb
from ackd.config.peers import PeerSettings
from ackd.core.ids import TopicPartition
from tests.integration.engine.linked import Linked, Ring, numbers
from tests.support.redis import RedisServer
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.redis, pytest.mark.timeout(240)]
BROKERS = [
    "local",
    pytest.param("kafka", marks=pytest.mark.kafka),
    pytest.param("pulsar", marks=[pytest.mark.pulsar, pytest.mark.slow]),
]
ROCKETMQ = pytest.param("rocketmq", marks=[pytest.mark.rocketmq, pytest.mark.slow])
ORDERS = pytest.mark.parametrize("order", ["ab", "ba", "at once", "again"])
ALONE = PeerSettings(on=False)
"""Without links: what one delivers comes from partitions of its own."""


@pytest.fixture(params=BROKERS)
async def four(
    request: pytest.FixtureRequest, valkey: RedisServer, tmp_path: Path
) -> AsyncIterator[Ring]:
    """A topic of four partitions."""
    servers = {name: request.getfixturevalue(name) for name in [request.param] if name != "local"}
    async with AsyncExitStack() as stack:
        yield Ring(stack, tmp_path, valkey.url, partitions=4, **servers)


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
@pytest.mark.parametrize("four", [*BROKERS, ROCKETMQ], indirect=True)
async def test_two_sidecars_share_the_work_at_every_order_of_joining(
    four: Ring, order: str
) -> None:
    """With links, as they are by default: workers alike do as much at the one as at the other, also
    on RocketMQ, where one of them owns all.
    """
    await two_join(four, order)
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
    assert sorted(numbers(got)) == list(range(100))
    assert (await idle.receive(20, wait_ms=500)).messages == []
    assert await idle.settle(got, SettleVerb.ACK) == ["acked"] * 100
    assert sorted(numbers(await idle.collect(20, most=20))) == list(range(100, 120))
