"""R6: what retention deletes under the group's position is told, counted, and stops nothing."""

import asyncio
from collections.abc import Callable

import pytest
from confluent_kafka import TopicPartition

from ackd.api.messages import SettleVerb
from tests.integration.engine.conftest import NAME, Sidecar, StartSidecar
from tests.support.kafka import Kafka
from tests.support.kafka.fill import fill
from tests.support.wait import wait_until_async

pytestmark = pytest.mark.kafka
MakeTopic = Callable[..., str]


async def delete_below(kafka: Kafka, topic: str, offset: int) -> None:
    """Delete records as retention does: the log starts at `offset` from here on."""

    def ask() -> None:
        asked = kafka.admin().delete_records([TopicPartition(topic, 0, offset)])
        for future in asked.values():
            future.result(60)

    await asyncio.to_thread(ask)


def expired(sidecar: Sidecar) -> float:
    """The metric."""
    registry = sidecar.runtime.metrics.registry
    name = "ackd_messages_expired_by_retention_total"
    return registry.get_sample_value(name, {"subscription": NAME}) or 0.0


async def over(sidecar: Sidecar, end: int) -> None:
    """Wait until the position is at the end."""

    async def there() -> bool:
        return await sidecar.committed() == {0: end}

    await wait_until_async(there, "the position to reach the end")


async def test_r6_the_log_is_cut_above_the_position_while_nobody_reads(
    kafka: Kafka, start: StartSidecar, topic: MakeTopic, caplog: pytest.LogCaptureFixture
) -> None:
    """Of 50 messages 5 and 7 others are acked, then all below 30 is deleted: 18 are lost, no ack
    is, and what is left comes once.
    """
    name = topic(1)
    await asyncio.to_thread(fill, kafka.bootstrap, name, 0, [b"%d" % n for n in range(50)])
    one = await start(name, name, name="one", lease_ms=8_000)
    got = await one.receive(20)
    while len(got) < 20:
        got += await one.receive(20 - len(got))
    acked = [each for each in got if each.record.offset < 5 or each.record.offset >= 13]
    await one.settle(acked, SettleVerb.ACK)
    await one.runtime.stop()
    await delete_below(kafka, name, 30)
    two = await start(name, name, name="two")
    assert sorted(await two.drain()) == list(range(30, 50))
    assert expired(two) == 18  # 5 to 12, which were handed out, and 20 to 29, which never were
    assert "retention deleted 18 unfinished messages" in caplog.text
    await over(two, 50)  # once the leases on what is gone have ended


async def test_r6_a_lease_outlives_the_deletion_of_its_message(
    kafka: Kafka, start: StartSidecar, topic: MakeTopic
) -> None:
    """Who has the message may settle it; the position goes on."""
    name = topic(1)
    await asyncio.to_thread(fill, kafka.bootstrap, name, 0, [b"%d" % n for n in range(20)])
    one = await start(name, name, name="one", lease_ms=60_000)
    (held,) = await one.receive(1)
    await delete_below(kafka, name, 10)
    await one.settle([held], SettleVerb.ACK)  # fetched before: nothing has changed for it
    assert len(await one.drain()) == 19
    assert expired(one) == 0
    await over(one, 20)
