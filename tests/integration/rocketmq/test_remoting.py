"""The remoting client on a real broker, by its name server."""

import uuid

import pytest

from ackd.errors import BrokerError
from tests.support.rocketmq import RocketMQ
from tests.support.rocketmq.bare import bare, now_ms
from tests.support.rocketmq.remote import admin, filed, queues_of
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.rocketmq, pytest.mark.slow, pytest.mark.timeout(240)]


async def test_offsets_times_and_messages_of_a_queue(rocketmq: RocketMQ) -> None:
    async with bare(rocketmq) as one, admin(rocketmq.ports.names) as it:
        await one.send(b"zero", tag="t")
        middle_ms = now_ms() + 5
        await wait_until_async(lambda: _later(middle_ms), "time goes on")
        await one.send(b"one")
        await one.send(b"two")
        (queue,) = await queues_of(it, one.topic)
        await filed(it, queue, 3)
        assert await it.range(queue) == (0, 3)
        times = [0, middle_ms, now_ms() + 60_000]
        assert [await it.offset_at(queue, each) for each in times] == [0, 1, 3]
        pulled = await it.pull(f"g{one.topic}", queue, 1)
        assert [each.message.body for each in pulled.messages] == [b"one", b"two"]
        assert [each.message.offset for each in pulled.messages] == [1, 2]
        assert (pulled.next_offset, pulled.first, pulled.end) == (3, 0, 3)
        (first,) = (await it.pull(f"g{one.topic}", queue, 0, most=1)).messages
        assert (first.message.tag, first.message.topic) == ("t", one.topic)
        assert (await it.pull(f"g{one.topic}", queue, 3)).messages == []
        # Nothing of this was noted for the group: it gets everything.
        assert len(await one.take_some(3)) == 3


async def _later(unix_ms: int) -> bool:
    return now_ms() > unix_ms


async def test_a_topic_and_a_group_are_made_and_a_group_is_left_as_it_is(
    rocketmq: RocketMQ,
) -> None:
    name = f"made-{uuid.uuid4().hex[:12]}"
    async with admin(rocketmq.ports.names) as it:
        assert await it.queues(name) == []
        await it.make_topic(name, 3)
        assert len(await queues_of(it, name)) == 3
        assert await it.group_settings(name) == {}
        assert await it.make_group(name, retries=777, orderly=True) == ["broker-a"]
        assert await it.make_group(name, retries=1, orderly=False) == []
        settings = (await it.group_settings(name))["broker-a"]
        assert (settings["retryMaxTimes"], settings["consumeMessageOrderly"]) == (777, True)


async def test_over_tls_and_without_trust(rocketmq: RocketMQ) -> None:
    assert rocketmq.certs is not None
    async with admin(rocketmq.ports.names, tls=True) as it:
        with pytest.raises(BrokerError) as refused:
            await it.queues("no-such-topic")
    assert refused.value.facts["code"] == "UNREACHABLE"
