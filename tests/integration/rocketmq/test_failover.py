"""A RocketMQ master dies, and its replica is made master: no ack is forgotten, and nothing new is
swallowed (I1, I2, R32), whether both have what was published (`allAckInSyncStateSet`) or not.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from ackd.api.messages import SettleVerb
from ackd.errors import AckdError
from ackd.ports import Stored
from ackd_adapters.rocketmq.remoting import ensure
from tests.integration.rocketmq.shop import HOLD_MS, Shop, Worker
from tests.integration.rocketmq.test_log_cut import acked, new_ones_come
from tests.support.redis import RedisServer
from tests.support.require import require
from tests.support.rocketmq import RocketMQ, RocketMQOptions, missing
from tests.support.rocketmq.admin import RocketMQAdminError
from tests.support.rocketmq.broker import Node
from tests.support.rocketmq.remote import admin
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.rocketmq, pytest.mark.slow, pytest.mark.timeout(300)]

NAME = "broker-a"
COUNT = 40


@pytest.fixture(scope="module")
def replicated() -> Iterator[RocketMQ]:
    """One broker with a replica, and a controller."""
    require(missing())
    with RocketMQ(RocketMQOptions(cluster=True, replica=True)) as started:
        yield started


@pytest.fixture
async def shop(replicated: RocketMQ, valkey: RedisServer, tmp_path: Path) -> AsyncIterator[Shop]:
    """Everything started in it is stopped at the end."""
    async with AsyncExitStack() as stack:
        shop = Shop(stack, tmp_path, replicated, valkey)
        yield shop
        assert sum(each.metric("ackd_log_cuts_total") for each in shop.workers) == shop.cuts


async def both_serve(rocketmq: RocketMQ) -> None:
    """Both have all messages, without which no replica is made master. Topics and groups are made
    at the master.
    """

    async def so() -> bool:
        synced = await asyncio.to_thread(rocketmq.in_sync, NAME)
        master = await asyncio.to_thread(rocketmq.master, NAME)
        rocketmq.admin.at = [master.address]
        return synced == 2 and master.process.running

    ignoring = (RocketMQAdminError, StopIteration, ValueError)
    await wait_until_async(so, "master and replica", timeout_s=120, ignoring=ignoring)


async def published(worker: Worker, first: int) -> set[bytes]:
    """Publish until COUNT are certainly stored; those, and no others, have to come."""
    sure: set[bytes] = set()
    number = first

    async def enough() -> bool:
        nonlocal number
        value = b"%d" % number
        number += 1
        [answer] = await worker.publish(value)
        if isinstance(answer, Stored):
            sure.add(value)
        return len(sure) >= COUNT

    await wait_until_async(enough, f"{COUNT} are stored", timeout_s=120)
    return sure


async def come(worker: Worker, wanted: set[bytes]) -> Counter[bytes]:
    """All of these come, and are acked; whatever else comes, too."""
    got: Counter[bytes] = Counter()

    async def all_came() -> bool:
        found = await worker.receive(100, wait_ms=1_000)
        got.update(each.record.value or b"" for each in found)
        assert set(await worker.settle(SettleVerb.ACK, *found)) <= {"acked"}
        return got.keys() >= wanted

    await wait_until_async(all_came, "all", timeout_s=120, ignoring=(AckdError,))
    return got


async def test_i1_i2_a_replica_becomes_master_and_back(shop: Shop, replicated: RocketMQ) -> None:
    await both_serve(replicated)
    await shop.open(2)
    one = await shop.start()
    acked: set[bytes] = set()
    for turn in (1, 2):
        await both_serve(replicated)
        wanted = await published(one, turn * 10_000)
        first = await one.collect(COUNT // 2, lease_ms=240_000)
        done, left = first[: COUNT // 4], first[COUNT // 4 :]
        assert await one.settle(SettleVerb.ACK, *done) == ["acked"] * len(done)
        acked |= {each.record.value or b"" for each in done}
        master = await asyncio.to_thread(replicated.master, NAME)
        master.process.kill()
        new = await published(one, turn * 10_000 + 5_000)
        assert await asyncio.to_thread(replicated.master, NAME) is not master
        # A lease lives on: its message is held in the ledger, whatever the new master knows of it.
        assert await one.settle(SettleVerb.ACK, *left) == ["acked"] * len(left)
        acked |= {each.record.value or b"" for each in left}
        got = await come(one, (wanted | new) - acked)
        assert not got.keys() & acked, "an acked message came again"
        assert set(got.values()) == {1}
        acked |= got.keys()
        quiet = await one.receive(100, wait_ms=HOLD_MS + 4_000)
        assert not {each.record.value for each in quiet} & acked
        await asyncio.to_thread(master.process.start)


UPDATE_CONTROLLER = 1009


async def test_i1_r32_a_replica_that_is_behind_becomes_master(
    shop: Shop, replicated: RocketMQ, caplog: pytest.LogCaptureFixture
) -> None:
    """What only the dead master had is gone, and its offsets are used again. All that is new is
    delivered, nothing of it is taken for what was acked there, and readiness tells.
    """
    await both_serve(replicated)
    await shop.open(1)
    one = await shop.start()
    await acked(one, "both have")
    master = await asyncio.to_thread(replicated.master, NAME)
    (replica,) = [node for node in replicated.nodes if node is not master]
    await made_there(replica, shop.topic)
    await asyncio.to_thread(replica.process.kill)

    async def alone() -> bool:
        return await asyncio.to_thread(replicated.in_sync, NAME) == 1

    await wait_until_async(alone, "the master goes on alone", timeout_s=60)
    await acked(one, "only the master has")
    await asyncio.to_thread(master.process.kill)
    # Else the controller would wait for the old master, which has all messages.
    async with admin(replicated.ports.controller) as controller:
        body = b"enableElectUncleanMaster=true"
        ensure("controller", await controller.names(UPDATE_CONTROLLER, {}, body))
    await asyncio.to_thread(replica.process.start)

    async def serves() -> bool:
        return await asyncio.to_thread(replicated.master, NAME) is replica

    ignoring = (RocketMQAdminError, StopIteration, ValueError)
    await wait_until_async(serves, "the replica is master", timeout_s=120, ignoring=ignoring)
    await new_ones_come(one, "new", caplog)


async def made_there(node: Node, topic: str) -> None:
    """A replica asks its master now and then which topics and groups there are."""
    files = [node.at.store / "config" / name for name in ("topics.json", "subscriptionGroup.json")]

    async def written() -> bool:
        return all(topic in each.read_text() for each in files)

    await wait_until_async(written, "the replica knows the topic", ignoring=(OSError,))
