"""A topic on several brokers: each is drawn by one sidecar, and they come and go (R32, R5)."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from ackd.api.dead_letters import Kind, To
from ackd.api.messages import SettleVerb
from ackd.api.progress import Position, SeekRequest, SeekTo
from ackd.core.ids import TopicPartition
from ackd.core.log_generations import GENERATION
from ackd.core.sources import BLOCK, block_of
from ackd.errors import AckdError, BrokerError
from ackd_adapters.rocketmq.positions import RocketMQPositions
from ackd_adapters.rocketmq.remoting_admin import RemotingAdmin
from tests.integration.rocketmq.letters import done, letters, peek
from tests.integration.rocketmq.seeking import plan, seek
from tests.integration.rocketmq.shop import HOLD_MS, NAME, Shop, Worker
from tests.support.redis import RedisServer
from tests.support.require import require
from tests.support.rocketmq import RocketMQ, RocketMQOptions, missing, offsets
from tests.support.rocketmq.bare import Bare, bare, held
from tests.support.rocketmq.remote import admin, queues_of, send
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


def block_at(shop: Shop, broker: str) -> int:
    """The block of this broker's partitions: which one was met first is not certain."""
    found: set[int] = set()
    for each in shop.workers:
        subscription = each.runtime._subscriptions[NAME]
        source = subscription.state.consumer.source  # type: ignore[attr-defined]
        owned = subscription.partitions.owned
        here = [tp.partition for tp in owned if source(tp).broker == broker]
        found |= {block_of(each, GENERATION) for each in here}
    (block,) = found
    return block


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


@dataclass
class Came:
    """What came and was acked: how often each value, and how many from each block of partitions."""

    values: Counter[bytes] = field(default_factory=Counter)
    blocks: Counter[int] = field(default_factory=Counter)

    async def turn(self, shop: Shop, most: int = 100) -> None:
        """Each sidecar receives once, and acks."""
        for worker in shop.workers:
            found = await worker.receive(most, wait_ms=200)
            self.values.update(each.record.value or b"" for each in found)
            self.blocks.update(block_of(each.partition, GENERATION) for each in found)
            assert set(await worker.settle(SettleVerb.ACK, *found)) <= {"acked"}

    async def until(self, shop: Shop, wanted: set[bytes], within_s: float = 120) -> None:
        """All of these have come."""

        async def all_came() -> bool:
            await self.turn(shop)
            return self.values.keys() >= wanted

        await wait_until_async(all_came, "all messages", timeout_s=within_s, ignoring=(AckdError,))


async def take_all(shop: Shop, wanted: set[bytes]) -> Counter[int]:
    """Ack all of these, each of which comes once; from which block of partitions how many came."""
    came = Came()
    await came.until(shop, wanted)
    assert came.values == Counter(wanted), "each comes once"
    return came.blocks


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
    came = Came()
    await came.until(shop, values(count, COUNT))
    assert set(came.blocks) == {0, 1}
    assert not came.values.keys() & values(0, count), "nothing acked comes again"


async def test_i1_i2_one_broker_is_killed_and_the_other_goes_on(shop: Shop, pair: RocketMQ) -> None:
    """Nothing of the living one waits for the dead one; then all of the dead one comes. A list of
    dead letters says that a part of them is away.
    """
    await asyncio.to_thread(pair.admin.topic, f"ackd-dead-{shop.topic}", 1)
    one, _ = await shop.start("one"), await shop.start("two")
    await until_drawn(shop, 1, 1)
    count = await until_published(one, "broker-a", "broker-b")
    node = pair.nodes[1]
    assert await letters(one, 0) == []
    first = await one.receive(20, wait_ms=5_000)
    assert await one.settle(SettleVerb.ACK, *first) == ["acked"] * len(first)
    acked = {each.record.value or b"" for each in first}
    lives = block_at(shop, pair.nodes[0].at.name)
    node.process.kill()
    living = Came()

    async def goes_on() -> bool:
        await living.turn(shop, most=10)
        return living.blocks[lives] > 0 or len(acked | living.values.keys()) == count

    await wait_until_async(goes_on, "messages of the living broker", timeout_s=60)
    acked |= living.values.keys()
    with pytest.raises(BrokerError, match=node.at.name):
        await letters(one, 0)
    await asyncio.to_thread(pair.restart, node.process)
    assert await letters(one, 0) == []
    came = Came()
    await came.until(shop, values(0, count) - acked)
    for worker in shop.workers:
        late = await worker.receive(100, wait_ms=HOLD_MS)
        came.values.update(each.record.value or b"" for each in late)
    assert not acked & came.values.keys(), "an acked message came again"
    assert set(came.values.values()) <= {1}


EARLIEST = SeekRequest(SeekTo.EARLIEST)


async def all_acked(shop: Shop, names: int = 0) -> tuple[Worker, dict[int, set[bytes]]]:
    """A sidecar to which all came, and by the block of their partitions what it acked."""
    one = await shop.start(names=names)
    await until_drawn(shop, 2)
    count = await until_published(one, "broker-a", "broker-b")
    found = await one.collect(count)
    assert set(await one.settle(SettleVerb.ACK, *found)) == {"acked"}
    await one.broker_told()
    by_block: dict[int, set[bytes]] = {0: set(), 1: set()}
    for each in found:
        by_block[block_of(each.partition, GENERATION)].add(each.record.value or b"")
    assert all(by_block.values()), "both brokers have stored some"
    return one, by_block


async def waits_for(worker: Worker, count: int) -> dict[str, str]:
    """What readiness says of the seek that so many queues wait for, by condition."""
    conditions = worker.runtime._subscriptions[NAME].state.conditions
    found: dict[str, str] = {}

    async def told() -> bool:
        found.clear()
        found.update({code: it.detail for code, it in conditions.items() if code[:5] == "seek/"})
        return len(found) == count

    await wait_until_async(told, f"readiness tells of {count} queues")
    return found


async def nothing_more(worker: Worker) -> None:
    """Nothing comes that was acked."""
    assert await worker.receive(wait_ms=HOLD_MS + 2_000) == []


async def test_r8_a_seek_moves_the_queues_of_all_brokers(shop: Shop) -> None:
    one, blocks = await all_acked(shop)
    assert (await plan(one, EARLIEST)).again == COUNT
    await seek(one, EARLIEST)
    assert set(await take_all(shop, blocks[0] | blocks[1])) == {0, 1}
    await nothing_more(one)


async def test_r8_where_a_proxy_stands_in_for_the_name_servers_readiness_names_the_commands(
    shop: Shop, pair: RocketMQ
) -> None:
    """It can't move a group. A dry run and the seek itself work; the operator does the rest."""
    one, blocks = await all_acked(shop, names=pair.ports.remoting)
    assert (await plan(one, EARLIEST)).again == COUNT
    await seek(one, EARLIEST)
    found = {*(await waits_for(one, 2 * QUEUES)).values()}
    assert all("too: run mqadmin resetOffsetByTime" in each for each in found)
    assert sum("-b <address of broker-a>" in each for each in found) == QUEUES
    await seek(one, SeekRequest(SeekTo.BEFORE_RESET))
    await waits_for(one, 0)
    await nothing_more(one)
    assert sum(map(len, blocks.values())) == COUNT


async def test_r8_with_a_broker_away_a_seek_of_its_queues_is_refused_and_others_move(
    shop: Shop, pair: RocketMQ
) -> None:
    one, blocks = await all_acked(shop)
    tps = sorted(one.runtime._subscriptions[NAME].partitions.owned)
    node = pair.nodes[1]
    block, lives = block_at(shop, node.at.name), block_at(shop, pair.nodes[0].at.name)
    node.process.kill()
    await one.runtime.pause(NAME, "group", "test", None)
    for to in (EARLIEST, replace(EARLIEST, dry_run=True)):
        with pytest.raises(BrokerError, match=f"{node.at.name}|{node.address}"):
            await one.runtime.progress.seek(NAME, to)
    living = tuple(
        Position(tp.topic, tp.partition, 0) for tp in tps if tp.partition // BLOCK == lives
    )
    assert len(living) == QUEUES
    await seek(one, SeekRequest(SeekTo.POSITIONS, positions=living))
    assert set(await take_all(shop, blocks[1 - block])) == {1 - block}
    await asyncio.to_thread(pair.restart, node.process)
    await nothing_more(one)


async def test_r8_a_broker_that_dies_during_a_seek_holds_up_no_other_and_is_moved_later(
    shop: Shop, pair: RocketMQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The seek ends without it, and readiness tells what is left. One of its queues it brings by
    itself, as it has forgotten the acks there; it is moved in the other one.
    """
    one, blocks = await all_acked(shop)
    subscription, node = one.runtime._subscriptions[NAME], pair.nodes[1]
    block, move = block_at(shop, node.at.name), RocketMQPositions.move
    dead = {tp for tp in subscription.partitions.owned if tp.partition // BLOCK == block}
    positions = subscription.state.broker_positions
    assert positions is not None
    ends = {tp.partition % BLOCK: (await positions.range(tp))[1] for tp in dead}

    async def dies(self: RocketMQPositions, positions: Mapping[TopicPartition, int]) -> None:
        if dead & positions.keys():
            await asyncio.to_thread(node.process.kill)
        await move(self, positions)

    monkeypatch.setattr(RocketMQPositions, "move", dies)
    await seek(one, EARLIEST)
    monkeypatch.undo()
    assert set(await take_all(shop, blocks[1 - block])) == {1 - block}
    for detail in (await waits_for(one, QUEUES)).values():
        assert "ackd moves it when it is back" in detail
    begins = {**ends, 0: 0}
    await asyncio.to_thread(offsets.write, node.at.store, shop.topic, shop.topic, begins)
    await asyncio.to_thread(pair.restart, node.process)
    assert set(await take_all(shop, blocks[block])) == {block}
    await waits_for(one, 0)
    await nothing_more(one)
    assert not [each for each in subscription.state.conditions if each.startswith("came-again/")]


async def test_i1_dead_letters_of_every_broker_are_listed_redriven_and_purged(
    shop: Shop, pair: RocketMQ
) -> None:
    """The broker that is met first has the numbers from 0 on, whatever its name: what was purged
    there hides no letter of a broker that gives up its first one later.
    """
    async with bare(pair, retries=1) as it, admin(pair.ports.names) as remote:
        shop.topic, group = it.topic, f"g{it.topic}"
        dead = f"%DLQ%{group}"
        await give_up(it, remote, dead, "broker-b", b"b0")
        one = await shop.start("one", group=group, dead_letter_topic=dead)
        (old,) = await letters(one, 1)
        assert old.id == "0-0"
        await done(one, Kind.PURGE, old.id)
        await shop.workers.pop().runtime.stop()
        await give_up(it, remote, dead, "broker-a", b"a0", b"a1")
        await give_up(it, remote, dead, "broker-b", b"b1", b"b2")
    two = await shop.start("two", group=group, dead_letter_topic=dead)
    found = await letters(two, 4)
    assert len({each.message for each in found}) == 4, "each is the letter of another message"
    views = {await peek(two, each): each.id for each in found}
    assert {views[b"a0"], views[b"a1"]} == {"16-0", "16-1"}
    assert {views[b"b1"], views[b"b2"]} == {"0-1", "0-2"}
    await done(two, Kind.REDRIVE, views[b"a0"], views[b"b1"], to=To.GROUP)
    await done(two, Kind.REDRIVE, views[b"b2"], to=To.ORIGIN)
    back = await two.collect(3)
    assert {each.record.value for each in back} == {b"a0", b"b1", b"b2"}
    assert await two.settle(SettleVerb.ACK, *back) == ["acked"] * 3
    (left,) = await letters(two, 1)
    assert left.id == views[b"a1"]
    await done(two, Kind.PURGE, left.id)
    assert await letters(two, 0) == []


async def give_up(it: Bare, remote: RemotingAdmin, dead: str, broker: str, *values: bytes) -> None:
    """Messages on this broker that a consumer gives up there at once."""
    queue = next(each for each in await queues_of(remote, it.topic) if each.broker == broker)
    it.queue = next(each for each in await it.client.route(it.topic) if each.broker.name == broker)

    async def lie() -> int:
        known = [each for each in await remote.queues(dead) if each.broker == broker]
        return (await remote.range(known[0]))[1] if known else 0

    wanted = await lie() + len(values)
    await send(remote, queue, values)
    for each in await it.take_some(len(values), 60_000):
        await it.client.give_up(it.topic, held(each), 1, 1)

    async def moved() -> bool:
        return await lie() == wanted

    await wait_until_async(moved, f"{broker} gives them up", timeout_s=60)
