"""Dead letters on RocketMQ: ackd's in `ackd-dead-<group>`, and with one setting the broker's."""

import pytest

from ackd.api.dead_letters import DeadRequest, DryRun, Kind, To
from ackd.api.messages import SettleVerb
from ackd.errors import BadParameterError, ConfigError, NotSupportedError, UnknownDeadLetterError
from ackd.ports import ConsumerSpec
from ackd_adapters.rocketmq import RocketMQBroker, RocketMQOptions
from ackd_adapters.rocketmq.remoting_admin import LogQueue, RemotingAdmin
from ackd_adapters.rocketmq.remoting_message import LogMessage
from tests.integration.rocketmq.letters import done, letters, peek
from tests.integration.rocketmq.shop import NAME, Shop, Worker
from tests.support.rocketmq import RocketMQ
from tests.support.rocketmq.bare import Bare, bare, held
from tests.support.rocketmq.remote import admin, filed, queues_of
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.rocketmq, pytest.mark.slow, pytest.mark.timeout(240)]

SEND_BACK = 36
CONFIRM = 15


async def test_dead_letters_of_ackd_are_listed_redriven_and_purged(shop: Shop) -> None:
    """To the group alone: no other group gets it. The origin topic is kept."""
    async with bare(shop.rocketmq) as other:
        shop.topic = topic = other.topic
        one = await shop.start(group=f"work-{topic}")
        await _all_ways(one, other, topic)


async def _all_ways(one: Worker, other: Bare, topic: str) -> None:
    await one.stored(b"zero", b"one", b"two")
    assert await other.ack(*await other.take_some(3, 60_000)) == ["OK"] * 3
    taken = await one.collect(3)
    await one.settle(SettleVerb.DEAD, *taken, reason="planted")
    views = await letters(one, 3)
    assert {each.last_error for each in views} == {"planted"}
    assert {each.message for each in views} == {each.id for each in taken}
    assert all(each.message.startswith(f"{topic}/") for each in views)
    by_value = {(await peek(one, each)): each.id for each in views}
    assert set(by_value) == {b"zero", b"one", b"two"}
    dry = await one.runtime.dead.begin(NAME, DeadRequest(Kind.PURGE, dry_run=True))
    assert isinstance(dry, DryRun)
    assert (dry.matched, dry.complete) == (3, True)
    await done(one, Kind.REDRIVE, by_value[b"zero"], to=To.GROUP)
    (back,) = await one.collect(1)
    assert back.record.value == b"zero"
    assert await one.settle(SettleVerb.ACK, back) == ["acked"]
    assert await other.take() == []
    await done(one, Kind.REDRIVE, by_value[b"one"], to=To.ORIGIN)
    (again,) = await one.collect(1)
    assert again.record.value == b"one"
    assert await one.settle(SettleVerb.ACK, again) == ["acked"]
    (theirs,) = await other.take_some(1, 60_000)
    assert theirs.body == b"one"
    assert await other.ack(theirs) == ["OK"]
    (left,) = await letters(one, 1)
    assert left.id == by_value[b"two"]
    await done(one, Kind.PURGE, left.id)
    assert await letters(one, 0) == []
    with pytest.raises(UnknownDeadLetterError):
        await one.runtime.dead.peek(NAME, left.id)


async def test_with_one_setting_the_brokers_dead_letters_count(shop: Shop) -> None:
    """`%DLQ%<group>` has those that the broker gave up (at once, and after lost holds), and ackd's
    own beside them; the origin topic is told of each.
    """
    async with bare(shop.rocketmq, retries=1) as it:
        shop.topic, group = it.topic, f"g{it.topic}"
        for body in (b"given up", b"held too often"):
            await it.send(body, tag="t")
        first, second = sorted(await it.take_some(2, 60_000), key=lambda each: each.offset)
        await it.client.give_up(it.topic, held(first), 1, 1)
        await it.client.change(it.topic, held(second), 1_000)
        async with admin(shop.rocketmq.ports.names) as remote:

            async def moved() -> bool:
                await it.take(hold_ms=1_000)
                queues = await remote.queues(f"%DLQ%{group}")
                return bool(queues) and await remote.range(queues[0]) == (0, 2)

            await wait_until_async(moved, "the broker gives both up", timeout_s=60)
    one = await shop.start(group=group, dead_letter_topic=f"%DLQ%{group}")
    await one.stored(b"by ackd")
    (mine,) = await one.collect(1)
    await one.settle(SettleVerb.DEAD, mine, reason="planted")
    views = await letters(one, 3)
    by_value = {(await peek(one, each)): each for each in views}
    assert set(by_value) == {b"given up", b"held too often", b"by ackd"}
    assert {each.message.split("/")[0] for each in views} == {shop.topic}
    assert by_value[b"by ackd"].message == mine.id
    assert by_value[b"held too often"].attempts > by_value[b"given up"].attempts
    assert second.body == b"held too often"
    await done(one, Kind.REDRIVE, by_value[b"given up"].id, to=To.GROUP)
    await done(one, Kind.REDRIVE, by_value[b"held too often"].id, to=To.ORIGIN)
    back = await one.collect(2)
    assert {each.record.value for each in back} == {b"given up", b"held too often"}
    assert all(dict(each.record.headers)["rocketmq-tag"] == b"t" for each in back)
    assert not any(name.startswith("ackd-rocketmq") for x in back for name, _ in x.record.headers)
    assert await one.settle(SettleVerb.ACK, *back) == ["acked", "acked"]
    await done(one, Kind.PURGE, by_value[b"by ackd"].id)
    assert await letters(one, 0) == []


async def test_what_ordinary_consumers_put_back_is_listed_and_redriven(
    rocketmq: RocketMQ, shop: Shop
) -> None:
    """A message that a push consumer gave back waits in `%RETRY%<group>`. What these consumers
    have confirmed there is over.
    """
    async with bare(rocketmq) as it, admin(rocketmq.ports.names) as remote:
        shop.topic, group = it.topic, f"g{it.topic}"
        (queue,) = await queues_of(remote, it.topic)
        for number, body in enumerate((b"retried since", b"put back")):
            await it.send(body, tag="t")
            await filed(remote, queue, number + 1)
            (stored,) = (await remote.pull(group, queue, number)).messages
            await _put_back(remote, queue, group, stored)
            (retry,) = await queues_of(remote, f"%RETRY%{group}")

            await filed(remote, retry, number + 1)  # its delay is over
        assert await it.ack(*await it.take_some(2, 60_000)) == ["OK"] * 2
        (retry,) = await queues_of(remote, f"%RETRY%{group}")
        confirmed = {"consumerGroup": group, "commitOffset": "1"}
        assert (await remote.ask(retry, CONFIRM, confirmed)).code == 0
    one = await shop.start(group=group, dead_letter_topic=f"%RETRY%{group}")
    (view,) = await letters(one, 1)
    assert view.message.startswith(f"{shop.topic}/")
    assert await peek(one, view) == b"put back"
    await done(one, Kind.REDRIVE, view.id, to=To.GROUP)
    (back,) = await one.collect(1)
    assert back.record.value == b"put back"
    assert await one.settle(SettleVerb.ACK, back) == ["acked"]
    assert await letters(one, 0) == []


async def _put_back(remote: RemotingAdmin, queue: LogQueue, group: str, stored: LogMessage) -> None:
    """As an ordinary consumer gives a message back, for a second."""
    answer = await remote.ask(
        queue,
        SEND_BACK,
        {
            "group": group,
            "originTopic": queue.topic,
            "offset": str(stored.place),
            "delayLevel": "1",
            "originMsgId": stored.message.message_id,
            "unitMode": "false",
            "maxReconsumeTimes": "16",
        },
    )
    assert answer.code == 0, answer


async def test_a_retry_topic_is_no_topic_of_a_subscription(rocketmq: RocketMQ) -> None:
    """RocketMQ 5.5 looks for its hold in a topic that does not exist."""
    broker = RocketMQBroker("b", RocketMQOptions(endpoints=rocketmq.endpoints))
    with pytest.raises(ConfigError, match="`dead_letter_topic`"):
        broker.consumer(ConsumerSpec("group", ("%RETRY%group",), "reads"))
    await broker.close()


async def test_an_ordered_group_is_refused_a_redrive_of_its_own(shop: Shop) -> None:
    await shop.open(kind="FIFO")
    one = await shop.start(ordering="key")
    with pytest.raises(BadParameterError, match="ordered"):
        await one.runtime.dead.begin(NAME, DeadRequest(Kind.REDRIVE, to=To.GROUP))


async def test_without_name_servers_dead_letters_can_not_be_listed(rocketmq: RocketMQ) -> None:
    broker = RocketMQBroker("b", RocketMQOptions(endpoints=rocketmq.endpoints))
    with pytest.raises(NotSupportedError, match="`name_servers`"):
        broker.consumer(ConsumerSpec("group", ("topic",), "reads", joins=False))
    await broker.close()
