"""The proxy alone is killed. The broker behind it lives and knows nothing of it; leases do not need
it; and receiving goes on as soon as it answers again.
"""

import asyncio
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from ackd.api.messages import Delivery, SettleVerb
from ackd.errors import BrokerError
from tests.integration.rocketmq.shop import HOLD_MS, Shop, Worker
from tests.support import rocketmq as rocketmq_support
from tests.support.paths import CACHE
from tests.support.redis import RedisServer
from tests.support.require import require
from tests.support.rocketmq import RocketMQ, RocketMQOptions
from tests.support.rocketmq.bare import Bare, bare
from tests.support.rocketmq.remote import admin, queues_of
from tests.support.wait import wait_until_async

pytestmark = [
    pytest.mark.rocketmq,
    pytest.mark.slow,
    pytest.mark.timeout(300),
]

FIGURES = CACHE / "rocketmq-proxy-killed.txt"
HEALED_S = 10.0
"""From the proxy's first answer to anybody; below 1 s when nothing else runs. The official client
needs ten minutes.
"""
FEW = 12
LEASE_MS = 200_000
QUIET_MS = 2 * HOLD_MS
"""What the broker would bring again has come by then: a hold, and about two seconds."""


@pytest.fixture(scope="module")
def apart() -> Iterator[RocketMQ]:
    """Broker and proxy as two processes."""
    require(rocketmq_support.missing())
    with RocketMQ(RocketMQOptions(cluster=True)) as started:
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
