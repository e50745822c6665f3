"""Broker and proxy are two processes. The proxy alone is killed: the broker behind it lives and
knows nothing of it; leases do not need it; and receiving goes on as soon as it answers again. The
broker's clock alone is set back: nothing new is taken for something old.
"""

import asyncio
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest

from ackd.api.messages import Delivery, SettleVerb
from ackd.core.log_generations import GENERATION
from ackd.errors import BrokerError
from tests.integration.rocketmq.shop import HOLD_MS, NAME, Shop, Worker
from tests.support import faketime
from tests.support import rocketmq as rocketmq_support
from tests.support.limits import limit
from tests.support.paths import CACHE
from tests.support.redis import RedisServer
from tests.support.require import require
from tests.support.rocketmq import RocketMQ, RocketMQOptions
from tests.support.rocketmq.bare import Bare, bare, now_ms
from tests.support.rocketmq.remote import admin, filed, queues_of
from tests.support.wait import wait_until_async

pytestmark = [
    pytest.mark.rocketmq,
    pytest.mark.slow,
    pytest.mark.timeout(300),
]

FIGURES = CACHE / "rocketmq-proxy-killed.txt"
HEALED_S = limit(10, busy=60)
"""From the proxy's first answer to anybody; below 1 s when nothing else runs. The official client
needs ten minutes.
"""
FEW = 12
LEASE_MS = 200_000
QUIET_MS = 2 * HOLD_MS
"""What the broker would bring again has come by then: a hold, and about two seconds."""


@pytest.fixture(scope="module")
def apart() -> Iterator[RocketMQ]:
    """Broker and proxy as two processes; the broker's clock can be set."""
    require(rocketmq_support.missing() or faketime.missing())
    with RocketMQ(RocketMQOptions(cluster=True, clock=True)) as started:
        yield started


@pytest.fixture
async def shop(apart: RocketMQ, valkey: RedisServer, tmp_path: Path) -> AsyncIterator[Shop]:
    """On that broker."""
    async with AsyncExitStack() as stack:
        yield Shop(stack, tmp_path, apart, valkey)


async def test_a_proxy_in_the_place_of_a_name_server_reads_and_makes_nothing(
    apart: RocketMQ,
) -> None:
    async with bare(apart) as one, admin(apart.ports.remoting) as it:
        await one.send(b"zero")
        (queue,) = await queues_of(it, one.topic)
        assert queue.address == f"127.0.0.1:{apart.ports.remoting}"
        await filed(it, queue, 1)
        assert await it.range(queue) == (0, 1)
        assert await it.offset_at(queue, 0) == 0
        pulled = await it.pull(f"g{one.topic}", queue, 0)
        assert [each.message.body for each in pulled.messages] == [b"zero"]
        with pytest.raises(BrokerError) as refused:
            await it.make_topic(f"{one.topic}-more", 1)
        assert refused.value.facts["code"] == "REQUEST_CODE_NOT_SUPPORTED"


async def test_i2_a_killed_proxy_costs_no_lease_and_receiving_goes_on_at_once(
    apart: RocketMQ, shop: Shop
) -> None:
    await shop.open()
    worker = await shop.start(lease_ms=LEASE_MS)
    await worker.stored(*(b"%d" % n for n in range(4 * FEW)))
    found = await worker.collect(4 * FEW)
    before, away, longer, again = (found[n::4] for n in range(4))
    async with bare(apart) as it:
        it.topic = shop.topic
        broker = apart.broker.pid
        assert set(await worker.settle(SettleVerb.ACK, *before)) == {"acked"}
        async with _killed(apart) as killed:
            repeated = await _settled_without_proxy(worker, away, longer, again)
            assert not apart.proxy.running
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(worker.receive(100, wait_ms=60_000))
            sent = await _first_answer(it)
            back = time.monotonic()
            came = await waiting
            healed_s = time.monotonic() - back
    assert apart.broker.running
    assert apart.broker.pid == broker, "the broker was to live"
    # What had its lease all along is settled now, by the tokens that it always had.
    assert set(await worker.settle(SettleVerb.ACK, *longer, *repeated, *came)) == {"acked"}
    await worker.broker_told()
    seen = Counter(each.record.value for each in came)
    while sent[-1] not in seen:  # one that was sent without an answer may have come before it
        more = await worker.receive(100, wait_ms=60_000)
        assert more, f"{sent[-1]!r} does not come"
        seen.update(each.record.value for each in more)
    seen.update(each.record.value for each in await worker.receive(100, wait_ms=QUIET_MS))
    assert seen.keys() <= set(sent), "what was handed out before came again"
    assert set(seen.values()) == {1}, "a message came twice"
    text = (
        f"received {healed_s:.2f} s after the proxy's first answer, which came "
        f"{back - killed:.1f} s after the kill; "
        f"settled silently: {worker.metric('ackd_acked_again_total'):.0f}\n"
    )
    sys.stdout.write(text)
    await asyncio.to_thread(FIGURES.write_text, text)
    assert healed_s < HEALED_S


@asynccontextmanager
async def _killed(apart: RocketMQ) -> AsyncIterator[float]:
    """Kill the proxy; start it at the end, and do not wait for it. Yields when it was gone."""
    await asyncio.to_thread(apart.proxy.kill)
    yield time.monotonic()
    await asyncio.to_thread(apart.proxy.start)


async def _settled_without_proxy(
    worker: Worker, away: list[Delivery], longer: list[Delivery], again: list[Delivery]
) -> list[Delivery]:
    """Ack, extend and retry; what is retried is handed out again. Nothing of it asks the broker."""
    assert set(await worker.settle(SettleVerb.ACK, *away)) == {"acked"}
    assert set(await worker.settle(SettleVerb.EXTEND, *longer, lease_ms=LEASE_MS)) == {"extended"}
    assert set(await worker.settle(SettleVerb.RETRY, *again, delay_ms=0)) == {"retrying"}
    repeated = await worker.collect(len(again), lease_ms=LEASE_MS)
    assert {each.id for each in repeated} == {each.id for each in again}
    assert {each.attempt for each in repeated} == {2}
    return repeated


async def _first_answer(it: Bare) -> list[bytes]:
    """Send until the proxy says OK. All that was tried: also a send without an answer may count."""
    tried: list[bytes] = []

    async def sent() -> bool:
        tried.append(b"after %d" % len(tried))
        try:
            await it.send(tried[-1])
        except BrokerError:
            return False
        return True

    await wait_until_async(sent, "the proxy's first answer", timeout_s=120)
    return tried


HOUR_MS = 3_600_000
OLD = 8 * FEW
"""More offsets were finished before the topic was made again than are used after that."""


@dataclass
class Comes:
    """What is published comes, once."""

    worker: Worker
    number: Iterator[int] = field(default_factory=count)
    partition: int = GENERATION

    async def new(self, many: int) -> list[Delivery]:
        """So many messages are published; these and no others come, for the first time."""
        values = [b"%d" % next(self.number) for _ in range(many)]
        await self.worker.stored(*values)
        found = await self.worker.collect(many)
        assert sorted(each.record.value or b"" for each in found) == sorted(values)
        assert {(each.partition, each.attempt) for each in found} == {(self.partition, 1)}
        return found

    async def ack(self, *messages: Delivery) -> None:
        assert set(await self.worker.settle(SettleVerb.ACK, *messages)) == {"acked"}

    async def stored_before(self, time_ms: Callable[[], int]) -> None:
        """Until the broker stores messages at a time before this one."""

        async def so() -> bool:
            [probe] = await self.new(1)
            await self.ack(probe)
            return probe.record.timestamp_ms < time_ms()

        await wait_until_async(so, "the broker's clock to be behind")


async def test_i1_i2_a_clock_that_is_set_back_makes_nothing_new_old(
    apart: RocketMQ, shop: Shop
) -> None:
    """After its topic was made again, by an hour while the broker runs, then by one more while it
    is down. By its time, what is new would be of the old log, where all its offsets are finished.
    """
    await shop.open(1)
    worker = await shop.start(lease_ms=LEASE_MS)
    it = Comes(worker, partition=0)
    await it.ack(*await it.new(OLD))
    await worker.broker_told()
    await asyncio.to_thread(apart.admin.drop_topic, shop.topic)
    await asyncio.to_thread(apart.admin.topic, shop.topic, 1)
    it.partition = GENERATION
    await it.ack(*await it.new(FEW))
    for hours in (1, 2):
        held = await it.new(FEW)
        apart.clock.set_back(hours * HOUR_MS // 1_000)
        if hours == 2:
            await asyncio.to_thread(apart.broker.kill)
            await asyncio.to_thread(apart.restart, apart.broker)
            async with bare(apart) as other:
                await _first_answer(other)
        await it.stored_before(lambda: now_ms() - hours * HOUR_MS + HOUR_MS // 2)  # noqa: B023 -- awaited in this turn
        await it.ack(*held, *await it.new(FEW))
    assert await worker.receive(100, wait_ms=QUIET_MS) == []
    assert worker.metric("ackd_log_cuts_total") == 1, "that the topic was made again"
    conditions = worker.runtime._subscriptions[NAME].state.conditions
    assert {each.partition("/")[0] for each in conditions} <= {"log-cut", "came-again"}
    assert all(reason.ok for reason in worker.runtime.readiness())
