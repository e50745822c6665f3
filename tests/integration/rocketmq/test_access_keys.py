"""A broker that demands access keys (ACL 2.0): the right one and a wrong one."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from ackd.api.messages import SettleVerb
from ackd.api.progress import Position, SeekRequest, SeekTo
from ackd.core.ids import TopicPartition
from ackd.errors import BrokerError
from ackd_adapters.rocketmq.positions import QueueName, RocketMQPositions
from tests.integration.rocketmq.seeking import plan, seek
from tests.integration.rocketmq.shop import NAME, Shop
from tests.integration.rocketmq.test_resets import acked, nothing_more, told, told_no_more
from tests.support import rocketmq as rocketmq_support
from tests.support.redis import RedisServer
from tests.support.require import require
from tests.support.rocketmq import RocketMQ, RocketMQOptions
from tests.support.rocketmq.config import ACCESS_KEY, SECRET_KEY
from tests.support.rocketmq.remote import admin, queues_of

pytestmark = [pytest.mark.rocketmq, pytest.mark.slow, pytest.mark.timeout(240)]

COUNT = 20


@pytest.fixture(scope="module")
def guarded() -> Iterator[RocketMQ]:
    """Broker and proxy in one process, with one user."""
    require(rocketmq_support.missing())
    with RocketMQ(RocketMQOptions(access_keys=True)) as started:
        yield started


async def test_the_right_key_works_and_readiness_tells_of_a_wrong_one(
    guarded: RocketMQ, valkey: RedisServer, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        shop = Shop(stack, tmp_path, guarded, valkey)
        await shop.open()
        right, wrong = tmp_path / "right", tmp_path / "wrong"
        await asyncio.to_thread(right.write_text, SECRET_KEY + "\n")
        await asyncio.to_thread(wrong.write_text, "not-the-secret\n")
        worker = await shop.start(keys=(ACCESS_KEY, right))
        await worker.stored(b"one", b"two")
        found = await worker.collect(2)
        assert await worker.settle(SettleVerb.ACK, *found) == ["acked", "acked"]
        await worker.broker_told()
        refused = await shop.start("wrong", keys=(ACCESS_KEY, wrong), unready="signature")
        assert not [each for each in refused.unready if "not-the-secret" in each]
        assert not [each for each in refused.unready if SECRET_KEY in each]


async def test_r8_without_the_right_to_move_the_group_readiness_names_the_command(
    guarded: RocketMQ, valkey: RedisServer, tmp_path: Path
) -> None:
    """The seek ends, and what it brings again comes once somebody with more rights has run it."""
    await asyncio.to_thread(guarded.admin.user, "weak", SECRET_KEY, "Pub", "Sub", "Get")
    async with AsyncExitStack() as stack:
        shop = Shop(stack, tmp_path, guarded, valkey)
        await shop.open(1)
        await asyncio.to_thread(guarded.admin.topic, f"ackd-dead-{shop.topic}", 1)
        right = tmp_path / "right"
        await asyncio.to_thread(right.write_text, SECRET_KEY + "\n")
        one = await shop.start(keys=("weak", right))
        await acked(one, "m", COUNT)
        to = SeekRequest(SeekTo.POSITIONS, positions=(Position(shop.topic, 0, 3),))
        assert (await plan(one, to)).again == COUNT - 3
        await seek(one, to)
        detail = await told(one, kind="seek")
        assert f"mqadmin resetOffsetByTime -n <name servers> -g {shop.topic}" in detail
        assert detail.endswith("-o 3 -s 0")
        await asyncio.to_thread(guarded.admin.reset, shop.topic, shop.topic, 0, 3)
        found = await one.collect(COUNT - 3)
        assert {each.record.offset for each in found} == {*range(3, COUNT)}
        assert set(await one.settle(SettleVerb.ACK, *found)) == {"acked"}
        await told_no_more(one, kind="seek")
        await nothing_more(one)
        conditions = one.runtime._subscriptions[NAME].state.conditions
        assert not [each for each in conditions if each.startswith("came-again/")]


async def test_the_remoting_client_signs_with_the_same_key(
    guarded: RocketMQ, tmp_path: Path
) -> None:
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    await asyncio.to_thread(right.write_text, SECRET_KEY + "\n")
    await asyncio.to_thread(wrong.write_text, "not-the-secret\n")
    name, port = "made-with-a-key", guarded.ports.names
    async with admin(port, access_key=ACCESS_KEY, secret_key_file=right) as it:
        await it.make_topic(name, 1)
        assert await it.make_group(name, retries=1_000, orderly=False) == ["broker-a"]
        (queue,) = await queues_of(it, name)
        assert await it.range(queue) == (0, 0)
    async with admin(port, access_key=ACCESS_KEY, secret_key_file=wrong) as it:
        with pytest.raises(BrokerError, match="signature") as refused:
            await it.range(queue)
    assert "not-the-secret" not in str(refused.value)


async def test_what_each_question_to_a_broker_needs(guarded: RocketMQ, tmp_path: Path) -> None:
    """When it was started it tells any user; first and end offsets need `Get`."""
    name, right = "rights", tmp_path / "right"
    await asyncio.to_thread(right.write_text, SECRET_KEY + "\n")
    async with admin(guarded.ports.names, access_key=ACCESS_KEY, secret_key_file=right) as it:
        await it.make_topic(name, 1)
        await it.make_group(name, retries=1_000, orderly=False)
    part = TopicPartition(name, 0)
    for user, rights in (("sends", ["Pub"]), ("consumes", ["Pub", "Sub"]), ("asks", ["Get"])):
        await asyncio.to_thread(guarded.admin.user, user, SECRET_KEY, *rights)
        async with admin(guarded.ports.names, access_key=user, secret_key_file=right) as it:
            asks = RocketMQPositions(it, name, lambda _: QueueName("broker-a", 0), lambda _: [part])
            assert await asks.booted_ms(part) > 0
            if "Get" in rights:
                assert await asks.range(part) == (0, 0)
                continue
            with pytest.raises(BrokerError, match="no permission") as refused:
                await asks.range(part)
            assert asks.refused(refused.value)
