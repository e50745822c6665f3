"""R1: a topic that is deleted and made again while a sidecar reads it, with a longer log."""

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaException

from ackd.api.messages import Delivery, SettleVerb, Status
from tests.integration.engine.conftest import Sidecar, StartSidecar
from tests.support.kafka import Kafka
from tests.support.kafka.fill import fill
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]
PARTITIONS = 2
OLD, NEW = 300, 350


def write(kafka: Kafka, topic: str, kind: bytes, count: int) -> None:
    """So many messages in each partition, that say which topic they belong to."""
    for partition in range(PARTITIONS):
        fill(kafka.bootstrap, topic, partition, [b"%s %d" % (kind, n) for n in range(count)])


async def make_again(kafka: Kafka, topic: str, pause_s: float) -> None:
    """Delete it, wait so long, make it."""
    await asyncio.to_thread(kafka.delete_topics, [topic])
    await asyncio.sleep(pause_s)

    async def made() -> bool:
        try:
            await asyncio.to_thread(kafka.create_topic, topic, partitions=PARTITIONS)
        except KafkaException:
            return False
        return True

    await wait_until_async(made, "the topic to be made again", timeout_s=60)


async def ack_all(sidecar: Sidecar, least: int, quiet_ms: int) -> list[Delivery]:
    """Receive and ack at least so many, then until nothing comes for so long; what was acked."""
    acked: list[Delivery] = []
    while messages := await sidecar.receive(wait_ms=60_000 if len(acked) < least else quiet_ms):
        results = await sidecar.settle(messages, SettleVerb.ACK)
        acked += [
            message
            for message, result in zip(messages, results, strict=True)
            if result.status is Status.ACKED
        ]
    return acked


@pytest.mark.parametrize("pause_s", [0.0, 0.3, 1.0, 3.0, 6.0])
async def test_r1_i2_each_message_of_a_longer_topic_made_again_is_acked_once(
    kafka: Kafka, start: StartSidecar, topic: Callable[..., str], pause_s: float
) -> None:
    name = topic(PARTITIONS)
    write(kafka, name, b"old", OLD)
    # With a retry topic and questions for topics as often as by default.
    sidecar = await start(name, name, retry_topic=True, topics_refresh_ms=5_000)
    assert len(await sidecar.collect(PARTITIONS * OLD)) == PARTITIONS * OLD
    await sidecar.settle(sidecar.seen, SettleVerb.ACK)
    await make_again(kafka, name, pause_s)
    write(kafka, name, b"new", NEW)
    acked = await ack_all(sidecar, PARTITIONS * NEW, quiet_ms=9_000)
    times = Counter((each.partition, each.record.value) for each in acked)
    wanted = [(part, b"new %d" % n) for part in range(PARTITIONS) for n in range(NEW)]
    assert times == Counter(wanted)
    assert {each.attempt for each in acked} == {1}
