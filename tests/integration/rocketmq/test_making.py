"""Topics and groups that ackd needs: made where it may, else named exactly in the error."""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from ackd.errors import BrokerError
from ackd.ports import Assigned, ConsumerSpec, Outgoing
from ackd_adapters.rocketmq import RocketMQBroker, RocketMQOptions
from tests.integration.rocketmq.shop import insist
from tests.support.rocketmq import RocketMQ
from tests.support.rocketmq.bare import bare
from tests.support.rocketmq.remote import admin

pytestmark = [pytest.mark.rocketmq, pytest.mark.slow, pytest.mark.timeout(240)]


@asynccontextmanager
async def connection(rocketmq: RocketMQ, names: str) -> AsyncIterator[RocketMQBroker]:
    """A started one. `names`: name servers."""
    options = RocketMQOptions(
        endpoints=rocketmq.endpoints, name_servers=names, request_timeout_ms=15_000
    )
    it = RocketMQBroker("b", options)
    await it.start()
    try:
        yield it
    finally:
        await it.close()


async def test_the_dead_letter_topic_and_the_group_are_made(rocketmq: RocketMQ) -> None:
    port = rocketmq.ports.names
    group = f"g{uuid.uuid4().hex[:12]}"
    async with (
        bare(rocketmq) as one,
        connection(rocketmq, f"127.0.0.1:{port}") as it,
        admin(port) as remote,
    ):
        assert it.capabilities.makes_topics
        for topic in (it.dead_letter_topic(group), f"%DLQ%{group}"):
            assert await it.partitions(topic) is None
            await it.ensure_topic(topic, {})
            await it.ensure_topic(topic, {})
            assert await it.partitions(topic) == 1
            await insist(lambda *these: it.publish(these), [Outgoing(topic, b"k", b"v")])
        consumer = it.consumer(ConsumerSpec(group, (one.topic,), "client"))
        await consumer.start()
        [event] = await consumer.events()
        assert isinstance(event, Assigned)
        await consumer.close()
        settings = (await remote.group_settings(group))["broker-a"]
        assert settings["retryMaxTimes"] == 1_000


@pytest.mark.parametrize("away", [False, True])
async def test_what_can_not_be_made_is_named_with_the_command(
    rocketmq: RocketMQ, *, away: bool
) -> None:
    """Without name servers, and with some that do not answer."""
    group = f"g{uuid.uuid4().hex[:12]}"
    why = "can't" if away else "`name_servers`"
    async with (
        bare(rocketmq) as one,
        connection(rocketmq, "127.0.0.1:1" if away else "") as it,
    ):
        assert it.capabilities.makes_topics is away
        command = f"mqadmin updateTopic -t ackd-dead-{group} "
        with pytest.raises(BrokerError, match=command) as told:
            await it.ensure_topic(it.dead_letter_topic(group), {})
        assert why in told.value.detail
        consumer = it.consumer(ConsumerSpec(group, (one.topic,), "client"))
        with pytest.raises(BrokerError, match=f"updateSubGroup -g {group} -r 1000") as told:
            await consumer.start()
        assert why in told.value.detail
        await consumer.close()
