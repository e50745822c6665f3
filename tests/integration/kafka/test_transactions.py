"""Transactions: aborted records are holes, markers do not hold the end back (rules R7, R33)."""

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as ClientPartition

from ackd.core.ids import TopicPartition
from ackd.ports import Broker, OutOfRange, SeesTransactions
from tests.integration.kafka.conftest import Connect, Join, MakeTopic
from tests.support.kafka import Kafka

pytestmark = pytest.mark.kafka


def transactional(kafka: Kafka, name: str) -> Producer:
    """A producer that is ready to begin."""
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap, "transactional.id": name, "log_level": 0}
    )
    producer.init_transactions(60)
    return producer


def write(producer: Producer, topic: str, values: range, *, commit: bool) -> None:
    """One whole transaction."""
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, b"%d" % value, partition=0)
    if commit:
        producer.commit_transaction(60)
    else:
        producer.flush(60)
        producer.abort_transaction(60)


async def test_r7_aborts_and_markers_count_as_finished_up_to_the_end(
    kafka: Kafka, broker: Broker, connect: Connect, join: Join, topic: MakeTopic
) -> None:
    name = topic()
    where = TopicPartition(name, 0)
    producer = transactional(kafka, name)
    # Offsets: 0-9 aborted, 10 marker, 11-20 committed, 21 marker, 22-31 aborted, 32 marker.
    write(producer, name, range(10), commit=False)
    write(producer, name, range(10, 20), commit=True)
    write(producer, name, range(20, 30), commit=False)
    reader = await join(broker, [name], name)
    assert await reader.consumer.log_range(where) == (0, 33)
    reader.fetch_from(where, 0)
    await reader.until(lambda: reader.ended(where, 33), "the end behind the last marker")
    assert reader.offsets(where) == list(range(11, 21))
    assert [record.value for record in reader.records[where]] == [b"%d" % n for n in range(10, 20)]
    # A start inside a hole.
    reader.fetch_from(where, 25)
    await reader.until(lambda: reader.ended(where, 33), "the end again")
    assert reader.offsets(where) == []
    dirty = await join(
        await connect(isolation_level="read_uncommitted"), [name], name + "-uncommitted"
    )
    dirty.fetch_from(where, 0)
    await dirty.until(lambda: dirty.ended(where, 33), "the end")
    assert dirty.offsets(where) == [*range(10), *range(11, 21), *range(22, 32)]


async def test_r7_end_behind_gaps_is_where_a_pause_goes_on(
    kafka: Kafka, broker: Broker, join: Join, topic: MakeTopic
) -> None:
    name = topic()
    where = TopicPartition(name, 0)
    producer = transactional(kafka, name)
    write(producer, name, range(5), commit=True)
    write(producer, name, range(10), commit=False)
    reader = await join(broker, [name], name)
    reader.fetch_from(where, 0)
    await reader.until(lambda: reader.ended(where, 17), "the end behind the aborted ones")
    reader.consumer.pause(where)
    asked = kafka.admin().delete_records([ClientPartition(name, 0, 17)])
    next(iter(asked.values())).result(60)
    reader.consumer.resume(where)
    write(producer, name, range(15, 16), commit=True)
    await reader.until(lambda: reader.ended(where, 19), "what came later")
    assert not reader.of(OutOfRange), "what was read to the end can't be missed"
    assert reader.offsets(where) == [*range(5), 17]


async def test_r33_open_transaction_holds_the_end(
    kafka: Kafka, broker: Broker, join: Join, topic: MakeTopic
) -> None:
    name = topic()
    where = TopicPartition(name, 0)
    producer = transactional(kafka, name)
    write(producer, name, range(5), commit=True)
    producer.begin_transaction()
    for value in range(5, 8):
        producer.produce(name, b"%d" % value, partition=0)
    producer.flush(60)
    reader = await join(broker, [name], name)
    session = reader.fetch_from(where, 0)
    await reader.until(lambda: reader.ended(where, 6), "the end before the open transaction")
    assert reader.offsets(where) == list(range(5))
    assert await reader.consumer.log_range(where) == (0, 6)
    assert isinstance(reader.consumer, SeesTransactions)
    assert await reader.consumer.log_end(where) == 9
    await reader.during(0.3)
    assert reader.offsets(where) == list(range(5))
    producer.commit_transaction(60)
    await reader.until(lambda: reader.ended(where, 10), "the rest")
    assert reader.offsets(where) == [0, 1, 2, 3, 4, 6, 7, 8]
    assert {event.session for event in reader.events if hasattr(event, "session")} == {session}
