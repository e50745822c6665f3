"""A partition that librdkafka forgets to fetch, as it does when no leader is there for a moment."""

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any

import pytest
from confluent_kafka import TopicPartition as ClientPartition

from ackd.core.ids import TopicPartition
from ackd.ports import Broker, Fetched, Outgoing
from ackd_adapters.kafka import KafkaOptions, adapter
from ackd_adapters.kafka.consumer import KafkaConsumer
from ackd_adapters.kafka.worker import settled
from ackd_testing import Reader
from tests.integration.kafka.conftest import Join, MakeTopic
from tests.support import kafka as kafka_support
from tests.support.kafka import Kafka
from tests.support.kafka.fill import fill, store
from tests.support.require import require

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(240)]

PARTITIONS = 24
CYCLES = int(os.environ.get("ACKD_TEST_FREEZES", "4"))
"""Some one in ten stops partitions of a client that nobody watches."""


async def forget(
    consumer: object, partition: TopicPartition, patch: pytest.MonkeyPatch
) -> Callable[[], None]:
    """Let the fetching client ask for nothing of a partition, and say nothing of it, until it is
    assigned anew; and not before what is returned was called, however slow the machine is.
    """
    assert isinstance(consumer, KafkaConsumer)
    fetcher = consumer._fetcher
    begin, client, one = fetcher._begin, fetcher._client, [ClientPartition(*partition)]
    free, late = False, list[Any]()  # the client's thread alone looks at both
    paused: Future[None] = Future()

    def begun(which: TopicPartition, made: Any) -> None:
        if which != partition:
            begin(which, made)
        elif free:
            client.resume(one)
            begin(which, made)
        else:
            late.append(made)

    def freed() -> None:
        nonlocal free
        free = True
        for made in late:
            begun(partition, made)

    def pause() -> None:
        client.pause(one)
        paused.set_result(None)

    patch.setattr(fetcher, "_begin", begun)
    fetcher.commands.put(pause)
    await settled(paused)
    return lambda: fetcher.commands.put(freed)


async def test_a_forgotten_partition_is_fetched_again_and_nothing_comes_twice(
    broker: Broker,
    join: Join,
    topic: MakeTopic,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = topic(2)
    forgotten, other = TopicPartition(name, 0), TopicPartition(name, 1)
    reader = await join(broker, [name], name)
    for each in (forgotten, other):
        reader.fetch_from(each, 0)
        await store(broker, Outgoing(name, None, b"before", (), each.partition))
    await reader.until(lambda: reader.records[forgotten] and reader.records[other], "both")
    free = await forget(reader.consumer, forgotten, monkeypatch)
    for number in range(3):
        for each in (forgotten, other):
            await store(broker, Outgoing(name, None, b"%d" % number, (), each.partition))
    await reader.until(lambda: len(reader.values(other)) == 4, "the other partition")
    assert reader.values(forgotten) == [b"before"]
    free()
    await reader.until(lambda: len(reader.values(forgotten)) == 4, "the forgotten one", 20.0)
    await reader.during(3.0)
    assert reader.values(forgotten) == [b"before", b"0", b"1", b"2"]
    sessions = {event.session for event in reader.of(Fetched) if event.partition == forgotten}
    assert len(sessions) == 1
    told = [each.message for each in caplog.records if "stands still" in each.message]
    assert len(told) == 1
    assert str(forgotten) in told[0]


@pytest.fixture
def fragile() -> Iterator[Kafka]:
    """A Kafka that this test may hurt."""
    require(kafka_support.missing())
    with Kafka() as started:
        yield started


async def test_every_partition_goes_on_after_a_kill_and_a_freeze(
    fragile: Kafka, join: Join
) -> None:
    """A broker that wakes up after its session ended leads nothing for a moment."""
    name = await asyncio.to_thread(fragile.create_topic, "forgotten", partitions=PARTITIONS)
    broker = adapter.open("fragile", KafkaOptions(bootstrap_servers=fragile.bootstrap))
    await broker.start()
    try:
        reader = await join(broker, [name], name)
        partitions = [TopicPartition(name, number) for number in range(PARTITIONS)]
        for each in partitions:
            reader.fetch_from(each, 0)
        due: set[bytes | None] = set()
        for cycle in range(CYCLES):
            await asyncio.to_thread(hurt, fragile, cycle)
            values = [b"%d %d" % (cycle, number) for number in range(3)]
            await asyncio.gather(
                *(asyncio.to_thread(fill, fragile.bootstrap, *each, values) for each in partitions)
            )
            due.update(values)
            await reader.until(
                partial(came, reader, partitions, due),
                f"all messages of cycle {cycle}",
                timeout_s=30.0,
            )
    finally:
        await broker.close()


def came(reader: Reader, partitions: list[TopicPartition], due: set[bytes | None]) -> bool:
    """Whether what is due of each partition is there, also if the producer had to repeat some."""
    return all(set(reader.values(each)) == due for each in partitions)


def hurt(kafka: Kafka, cycle: int) -> None:
    """SIGKILL, a start, and a freeze that is longer than the broker's session."""
    kafka.node.kill()
    kafka.node.start()
    time.sleep((0.0, 0.3, 1.0)[cycle % 3])
    kafka.node.freeze()
    time.sleep(3.0)
    kafka.node.thaw()
