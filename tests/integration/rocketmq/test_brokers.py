"""A topic on several brokers: each is drawn by one sidecar, and they come and go (R32, R5)."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from ackd.api.messages import SettleVerb
from ackd.core.sources import BLOCK
from ackd.errors import AckdError
from tests.integration.rocketmq.shop import HOLD_MS, NAME, Shop, Worker
from tests.support.redis import RedisServer
from tests.support.require import require
from tests.support.rocketmq import RocketMQ, RocketMQOptions, missing
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.rocketmq, pytest.mark.slow, pytest.mark.timeout(240)]

QUEUES = 2
COUNT = 60


@pytest.fixture(scope="module")
def pair() -> Iterator[RocketMQ]:
    """Two brokers behind one proxy."""
    require(missing())
    with RocketMQ(RocketMQOptions(cluster=True, brokers=2)) as started:
        yield started


@pytest.fixture
async def shop(pair: RocketMQ, valkey: RedisServer, tmp_path: Path) -> AsyncIterator[Shop]:
    """Two queues on each broker."""
    async with AsyncExitStack() as stack:
        shop = Shop(stack, tmp_path, pair, valkey)
        await shop.open(QUEUES)
        yield shop
        assert sum(each.metric("ackd_log_cuts_total") for each in shop.workers) == 0


def drawn(worker: Worker) -> set[str]:
    """The brokers whose queues it owns."""
    subscription = worker.runtime._subscriptions[NAME]
    owned = [*subscription.partitions.owned]
    return {subscription.state.consumer.source(tp).broker for tp in owned}  # type: ignore[attr-defined]


async def until_drawn(shop: Shop, *counts: int) -> None:
    """Each sidecar draws so many brokers."""

    async def so() -> bool:
        found = [drawn(each) for each in shop.workers]
        return sorted(map(len, found)) == sorted(counts) and sum(counts) == len(set().union(*found))

    await wait_until_async(so, f"brokers to be shared as {counts}", timeout_s=120)


async def until_published(worker: Worker, *brokers: str, first: int = 0) -> int:
    """Publish until a message was stored on each of these brokers, and COUNT at least; how many."""
    admin = worker.shop.rocketmq.admin
    count = COUNT

    async def routed() -> bool:
        return {*brokers} <= {*await asyncio.to_thread(admin.queues, worker.shop.topic)}

    await wait_until_async(routed, f"{brokers} in the route")
    for start in range(first, first + count, 20):
        await worker.stored(*(b"%d" % number for number in range(start, start + 20)))
    return count


async def take_all(shop: Shop, wanted: set[bytes], within_s: float = 90) -> Counter[int]:
    """Ack all of these; from which block of partitions how many came."""
    got: Counter[bytes] = Counter()
    blocks: Counter[int] = Counter()

    async def all_came() -> bool:
        for worker in shop.workers:
            found = await worker.receive(100, wait_ms=200)
            got.update(each.record.value or b"" for each in found)
            blocks.update(each.partition // BLOCK for each in found)
            assert set(await worker.settle(SettleVerb.ACK, *found)) <= {"acked"}
        return got.keys() >= wanted

    await wait_until_async(all_came, "all messages", timeout_s=within_s, ignoring=(AckdError,))
    assert got == Counter(wanted), "each comes once"
    return blocks


def values(first: int, count: int) -> set[bytes]:
    return {b"%d" % number for number in range(first, first + count)}


async def test_i3_two_sidecars_draw_a_broker_each_and_one_alone_draws_both(shop: Shop) -> None:
    """Evenly, at every order; partitions keep their numbers."""
    one = await shop.start("one")
    await until_drawn(shop, 2)
    count = await until_published(one, "broker-a", "broker-b")
    blocks = await take_all(shop, values(0, count))
    assert set(blocks) == {0, 1}, "both brokers have stored some"
    await shop.start("two")
    await until_drawn(shop, 1, 1)
    await shop.start("three")
    await until_drawn(shop, 1, 1, 0)
    await until_published(one, first=count)
    assert set(await take_all(shop, values(count, count))) == {0, 1}
    stopped = shop.workers.pop(0)
    await stopped.runtime.stop()
    await until_drawn(shop, 1, 1)


async def test_i1_i2_a_broker_is_added_and_removed_while_it_works(
    shop: Shop, pair: RocketMQ
) -> None:
    """What it has is drawn by the next sidecar; one that goes for good holds up nobody."""
    one, _ = await shop.start("one"), await shop.start("two")
    await until_drawn(shop, 1, 1)
    node = await asyncio.to_thread(pair.add_broker)
    try:
        await asyncio.to_thread(pair.admin.topic, shop.topic, QUEUES)
        await asyncio.to_thread(pair.admin.group, shop.topic)
        await until_drawn(shop, 2, 1)
        count = await until_published(one, "broker-a", "broker-b", node.at.name)
        assert set(await take_all(shop, values(0, count))) == {0, 1, 2}
        for each in shop.workers:
            await each.broker_told()
    finally:
        await asyncio.to_thread(pair.remove_broker, node)

    async def told() -> bool:
        return any(
            node.at.name in reason.detail
            for each in shop.workers
            for reason in each.runtime.readiness()
        )

    await wait_until_async(told, "readiness names the broker that is away", timeout_s=60)

    async def published() -> bool:  # the proxy knows the broker for a while
        try:
            await until_published(one, first=count)
        except AssertionError:
            return False
        return True

    await wait_until_async(published, "all is stored", timeout_s=60)
    blocks: Counter[int] = Counter()
    got: set[bytes] = set()

    async def came() -> bool:
        for worker in shop.workers:
            found = await worker.receive(100, wait_ms=200)
            got.update(each.record.value or b"" for each in found)
            blocks.update(each.partition // BLOCK for each in found)
            assert set(await worker.settle(SettleVerb.ACK, *found)) <= {"acked"}
        return got >= values(count, COUNT)

    await wait_until_async(came, "all messages", timeout_s=60)
    assert set(blocks) == {0, 1}
    assert not got & values(0, count), "nothing acked comes again"


async def test_i1_i2_one_broker_is_killed_and_the_other_goes_on(shop: Shop, pair: RocketMQ) -> None:
    """Nothing of the living one waits for the dead one; then all of the dead one comes."""
    one, _ = await shop.start("one"), await shop.start("two")
    await until_drawn(shop, 1, 1)
    count = await until_published(one, "broker-a", "broker-b")
    node = pair.nodes[1]
    first = await one.receive(20, wait_ms=5_000)
    assert await one.settle(SettleVerb.ACK, *first) == ["acked"] * len(first)
    acked = {each.record.value or b"" for each in first}
    node.process.kill()
    living = 0

    async def goes_on() -> bool:
        nonlocal living
        for worker in shop.workers:
            found = await worker.receive(10, wait_ms=200)
            assert await worker.settle(SettleVerb.ACK, *found) == ["acked"] * len(found)
            acked.update(each.record.value or b"" for each in found)
            living += sum(each.partition // BLOCK == 0 for each in found)
        return living > 0 or len(acked) == count

    await wait_until_async(goes_on, "messages of the living broker", timeout_s=60)
    await asyncio.to_thread(pair.restart, node.process)
    seen: Counter[bytes] = Counter()

    async def rest() -> bool:
        for worker in shop.workers:
            found = await worker.receive(100, wait_ms=200)
            seen.update(each.record.value or b"" for each in found)
            assert set(await worker.settle(SettleVerb.ACK, *found)) <= {"acked"}
        return acked | seen.keys() >= values(0, count)

    await wait_until_async(rest, "all messages", timeout_s=120)
    for worker in shop.workers:
        seen.update(each.record.value or b"" for each in await worker.receive(100, wait_ms=HOLD_MS))
    assert not acked & seen.keys(), "an acked message came again"
    assert set(seen.values()) <= {1}
