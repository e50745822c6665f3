"""What becomes of leases when their message is dead, or its topic, on a real Kafka (R1, R25)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Message

from ackd.api.messages import SettleItem, SettleVerb, Status
from ackd.ports.own_topics import dead_letter_topic
from ackd.store.memory import Data
from tests.integration.engine.conftest import StartSidecar
from tests.support.kafka import Kafka
from tests.support.kafka.fill import fill
from tests.support.wait import wait_until

pytestmark = pytest.mark.kafka
MakeTopic = Callable[..., str]


def first_of(kafka: Kafka, topic: str) -> Message[bytes, bytes]:
    """The first message of a topic, as somebody's own tool reads it."""
    settings = {"bootstrap.servers": kafka.bootstrap, "group.id": f"reader.{topic}"}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])

        def poll() -> Message[bytes, bytes] | None:
            message = consumer.poll(0.2)
            # Until the first copy there is no such topic.
            return None if message is None or message.error() else message

        message = wait_until(poll, f"a message of {topic}", timeout_s=60)
        assert message is not None
        return message
    finally:
        consumer.close()


async def test_r25_a_dead_message_is_in_its_groups_own_topic(
    kafka: Kafka, start: StartSidecar, topic: MakeTopic
) -> None:
    name = topic()
    # Kafka takes `a.b` and `a_b` for the same topic, so one of the two groups gets another name.
    groups = [f"{name}.b", f"{name}_b"]
    await asyncio.to_thread(fill, kafka.bootstrap, name, 0, [b"bad"])
    for group in groups:
        sidecar = await start(name, group, store=Data())
        (message,) = await sidecar.receive()
        item = SettleItem(message.lease, SettleVerb.DEAD, reason="no such order")
        (result,) = await sidecar.runtime.settle([item])
        assert result.status is Status.DEAD
        copy = await asyncio.to_thread(first_of, kafka, dead_letter_topic(group))
        headers = dict(copy.headers() or [])
        origin = headers["ackd-origin"]
        assert copy.value() == b"bad"
        assert isinstance(origin, bytes)
        assert origin.endswith(f"/{name}/0/0".encode())
        assert headers["ackd-reason"] == b"no such order"
        await sidecar.runtime.stop()


async def test_r1_a_lease_of_a_topic_that_is_gone_is_lost(
    kafka: Kafka, start: StartSidecar, topic: MakeTopic, data: Data
) -> None:
    name = topic()
    await asyncio.to_thread(fill, kafka.bootstrap, name, 0, [b"1", b"2"])
    first = await start(name, name)
    held = await first.collect(2)
    (old,) = data.records
    await asyncio.to_thread(kafka.delete_topics, [name])
    await asyncio.to_thread(kafka.create_topic, name, partitions=1, config={})
    await asyncio.to_thread(fill, kafka.bootstrap, name, 0, [b"other"])
    assert await first.drain() == [0]
    # As long as the record is kept an ack is true; nobody will open one again for this topic.
    del data.records[old]
    results = await first.settle(held, SettleVerb.ACK)
    assert [(each.status, each.now_state) for each in results] == [(Status.LOST, "deleted")] * 2
    assert (await first.runtime.lease(held[0].lease)).state == "lost"
