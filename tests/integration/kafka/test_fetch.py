"""Fetching: sessions, order, pause, bounds, ends, what is out of range, topics made again."""

import asyncio
import random
import time
from contextlib import suppress

import psutil
import pytest
from confluent_kafka import TopicPartition as ClientPartition

from ackd.core.ids import TopicPartition
from ackd.ports import Broker, EndReached, Fetched, Outgoing, OutOfRange, TopicReplaced
from ackd_adapters.kafka.consumer import KafkaConsumer
from tests.integration.kafka.conftest import Connect, Join, MakeTopic
from tests.support.kafka import Kafka
from tests.support.kafka.fill import fill, store
from tests.support.wait import wait_until

pytestmark = pytest.mark.kafka


async def test_record_comes_as_it_was_published(
    broker: Broker, join: Join, topic: MakeTopic
) -> None:
    name = topic()
    where = TopicPartition(name, 0)
    headers = (("a", b"1"), ("a", b"2"), ("é", None), ("empty", b""))
    sent = [
        Outgoing(name, b"key", b"value", headers, 0),
        Outgoing(name, None, None, (), 0),
        Outgoing(name, b"", b"", (), 0),
        Outgoing(name, b"\x00\xff", bytes(range(256)) * 400, (), 0),
    ]
    before_ms = int(time.time_ns() // 1_000_000)
    await store(broker, *sent)
    reader = await join(broker, [name], name)
    reader.fetch_from(where, 0)
    await reader.until(lambda: len(reader.records[where]) == 4, "four records")
    for record, message in zip(reader.records[where], sent, strict=True):
        assert (record.key, record.value) == (message.key, message.value)
        assert record.headers == message.headers
        assert before_ms - 1000 <= record.timestamp_ms <= before_ms + 60_000


async def test_r5_fetches_what_another_member_is_assigned_for(
    broker: Broker, join: Join, topic: MakeTopic
) -> None:
    name = topic()
    where = TopicPartition(name, 0)
    await store(broker, Outgoing(name, None, b"x", (), 0))
    first = await join(broker, [name], name)
    await first.until(lambda: first.assigned, "the first is assigned")
    second = await join(broker, [name], name)
    second.fetch_from(where, 0)
    await second.until(lambda: second.ended(where, 1), "the second reads all the same")
    assert second.offsets(where) == [0]
    assert not second.assigned


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_r7_no_record_of_an_earlier_session_comes_under_a_new_number(
    kafka: Kafka, broker: Broker, join: Join, topic: MakeTopic
) -> None:
    count = 30_000
    name = topic(3)
    parts = [TopicPartition(name, each) for each in range(3)]
    for part in parts:
        fill(kafka.bootstrap, name, part.partition, [b"%d" % each for each in range(count)])
    reader = await join(broker, [name], name)
    for part in parts:
        reader.fetch_from(part, 0)
    seeded = random.Random(7)
    sessions = set()
    for _ in range(150):
        part = seeded.choice(parts)
        start = seeded.randrange(count)
        sessions.add(reader.fetch_from(part, start))
        # Sometimes the first record is awaited, sometimes the session is cut while it begins.
        if seeded.random() < 0.6:
            await reader.until(lambda part=part: reader.records[part], "records")  # type: ignore[misc]
            assert reader.offsets(part)[0] == start
        else:
            await reader.during(seeded.random() * 0.01)
    assert len(sessions) == 150
    for part in parts:
        reader.fetch_from(part, count - 10_000)
    await reader.until(lambda: all(reader.ended(part, count) for part in parts), "all ends")
    for part in parts:
        assert reader.offsets(part) == list(range(count - 10_000, count))
        values = [record.value for record in reader.records[part]]
        assert values == [b"%d" % offset for offset in reader.offsets(part)]


async def test_r7_pause_holds_back_and_resume_goes_on_in_the_same_session(
    kafka: Kafka, broker: Broker, join: Join, topic: MakeTopic
) -> None:
    count = 60_000
    name = topic(2)
    held, free = TopicPartition(name, 0), TopicPartition(name, 1)
    for part in (held, free):
        fill(kafka.bootstrap, name, part.partition, [b"x" * 50] * count)
    reader = await join(broker, [name], name)
    reader.fetch_from(held, 0)
    reader.fetch_from(free, 0)
    seeded = random.Random(3)
    pauses = 0
    while not reader.ended(held, count):
        reader.consumer.pause(held)
        pauses += 1
        seen = len(reader.records[held])
        await reader.during(seeded.random() * 0.02)
        assert len(reader.records[held]) == seen, "a record came while paused"
        reader.consumer.resume(held)
        more = min(seen + seeded.randrange(4000), count)
        await reader.until(
            lambda more=more: len(reader.records[held]) >= more,  # type: ignore[misc]
            "records after resume",
        )
        if len(reader.records[held]) == count:
            await reader.until(lambda: reader.ended(held, count), "the end")
    assert reader.offsets(held) == list(range(count))
    await reader.until(lambda: reader.ended(free, count), "the other one was not disturbed")
    assert reader.offsets(free) == list(range(count))
    assert pauses > 10


async def test_stopped_partition_sends_nothing_more(
    kafka: Kafka, broker: Broker, join: Join, topic: MakeTopic
) -> None:
    name = topic()
    where = TopicPartition(name, 0)
    fill(kafka.bootstrap, name, 0, [b"x"] * 20_000)
    reader = await join(broker, [name], name)
    for _ in range(5):
        reader.fetch_from(where, 0)
        await reader.until(lambda: reader.records[where], "records")
        reader.stop_fetch(where)
        # The reader fails on any record that nobody asked for.
        await reader.during(0.1)


async def test_r7_gaps_of_a_compacted_topic_lie_within_one_session(
    broker: Broker, join: Join, topic: MakeTopic
) -> None:
    name = topic(
        cleanup_policy="compact",
        segment_ms="100",
        min_cleanable_dirty_ratio="0.01",
        max_compaction_lag_ms="200",
    )
    where = TopicPartition(name, 0)

    async def write() -> int:
        keyed = [Outgoing(name, b"k%d" % (each % 5), b"v", (), 0) for each in range(50)]
        return (await store(broker, *keyed))[-1].offset + 1

    end = await write()
    reader = await join(broker, [name], name)

    async def holes() -> bool:
        nonlocal end
        # A new segment makes the one before it cleanable.
        end = await write()
        reader.fetch_from(where, 0)
        await reader.until(lambda: reader.ended(where, end), f"end {end}")
        return len(reader.offsets(where)) < end

    until = time.monotonic() + 90
    while not await holes():
        assert time.monotonic() < until, "the broker compacted nothing"
        await reader.during(0.3)
    # What is left of the compacted part is the newest of each key; the Reader checked the order.
    assert reader.offsets(where)[-1] == end - 1
    reader.fetch_from(where, 1)
    await reader.until(lambda: reader.ended(where, end), "the end again")
    assert reader.offsets(where)[0] > 1, "the first existing one at or after the start"


async def test_out_of_range_says_what_there_is(
    kafka: Kafka, broker: Broker, join: Join, topic: MakeTopic
) -> None:
    name = topic(2)
    old, beyond = TopicPartition(name, 0), TopicPartition(name, 1)
    fill(kafka.bootstrap, name, 0, [b"x"] * 100)
    fill(kafka.bootstrap, name, 1, [b"x"] * 10)
    asked = kafka.admin().delete_records([ClientPartition(name, 0, 40)])
    next(iter(asked.values())).result(60)
    reader = await join(broker, [name], name)
    sessions = {old: reader.fetch_from(old, 7), beyond: reader.fetch_from(beyond, 5000)}
    await reader.until(lambda: len(reader.of(OutOfRange)) == 2, "two answers")
    assert {event.partition: event for event in reader.of(OutOfRange)} == {
        old: OutOfRange(old, sessions[old], 40, 100),
        beyond: OutOfRange(beyond, sessions[beyond], 0, 10),
    }
    assert not reader.of(Fetched)
    reader.fetch_from(old, 40)
    reader.fetch_from(beyond, 10)
    await reader.until(lambda: reader.ended(old, 100) and reader.ended(beyond, 10), "ends")
    assert reader.offsets(old) == list(range(40, 100))


async def test_retention_under_a_running_session_is_out_of_range(
    kafka: Kafka, broker: Broker, join: Join, topic: MakeTopic
) -> None:
    name = topic()
    where = TopicPartition(name, 0)
    fill(kafka.bootstrap, name, 0, [b"x"] * 100)
    reader = await join(broker, [name], name)
    reader.fetch_from(where, 0)
    await reader.until(lambda: reader.ended(where, 100), "the end")
    reader.consumer.pause(where)
    fill(kafka.bootstrap, name, 0, [b"y"] * 100)
    asked = kafka.admin().delete_records([ClientPartition(name, 0, 150)])
    next(iter(asked.values())).result(60)
    reader.consumer.resume(where)
    await reader.until(lambda: reader.of(OutOfRange), "out of range")
    found = reader.of(OutOfRange)[0]
    assert (found.log_start, found.log_end) == (150, 200)


async def test_r1_topic_made_again_ends_its_sessions(
    kafka: Kafka, broker: Broker, join: Join, topic: MakeTopic
) -> None:
    name = topic(2)
    where = TopicPartition(name, 0)
    fill(kafka.bootstrap, name, 0, [b"old"] * 10)
    reader = await join(broker, [name], name)
    (before,) = await reader.consumer.topics()
    assert (before.topic, before.partitions, len(before.topic_id)) == (name, 2, 16)
    reader.fetch_from(where, 0)
    await reader.until(lambda: reader.ended(where, 10), "the end of the old one")
    kafka.delete_topics([name])
    await reader.until(lambda: reader.condition(f"topics/unknown/{name}"), "its absence is told")
    # More records than the position that the client still has.
    wait_until(lambda: _made_again(kafka, name), "made again")
    fill(kafka.bootstrap, name, 0, [b"new"] * 30)
    await reader.until(lambda: reader.of(TopicReplaced), "another identity")
    (after,) = await reader.consumer.topics()
    assert after.topic_id != before.topic_id
    assert reader.of(TopicReplaced) == [TopicReplaced(name, after.topic_id)]
    await reader.until(lambda: reader.condition("topics/unknown", cleared=True), "and is over")
    reader.stop_fetch(where)
    fill(kafka.bootstrap, name, 0, [b"new"] * 5)
    await reader.during(0.5)
    reader.fetch_from(where, 0)
    await reader.until(lambda: reader.ended(where, 35), "the new one from its start")
    assert {record.value for record in reader.records[where]} == {b"new"}


async def test_r1_no_record_of_a_topic_made_again_comes_under_an_old_session(
    kafka: Kafka, connect: Connect, join: Join, topic: MakeTopic
) -> None:
    name = topic(2)
    where = TopicPartition(name, 0)
    fill(kafka.bootstrap, name, 0, [b"old"] * 10)
    # The client finds out first, by its failed fetch; ackd's own question comes much later.
    broker = await connect(topics_refresh_ms=60_000)
    reader = await join(broker, [name], name)
    (before,) = await reader.consumer.topics()
    session = reader.fetch_from(where, 0)
    await reader.until(lambda: reader.ended(where, 10), "the end of the old one")
    kafka.delete_topics([name])
    wait_until(lambda: _made_again(kafka, name), "made again")
    fill(kafka.bootstrap, name, 0, [b"new"] * 30)
    await reader.until(lambda: reader.of(TopicReplaced), "another identity, without being asked")
    (after,) = await reader.consumer.topics()
    assert after.topic_id != before.topic_id
    fetched = [event for event in reader.of(Fetched) if event.session == session]
    assert {record.value for event in fetched for record in event.records} == {b"old"}
    reader.fetch_from(where, 0)
    await reader.until(lambda: reader.ended(where, 30), "the new one")
    assert reader.offsets(where) == list(range(30))


async def test_r1_client_says_which_topic_it_reads(
    kafka: Kafka, broker: Broker, join: Join, topic: MakeTopic
) -> None:
    """The client's log tells it; without that line nobody would notice that it reads on."""
    name = topic()
    where = TopicPartition(name, 0)
    fill(kafka.bootstrap, name, 0, [b"x"])
    reader = await join(broker, [name], name)
    (found,) = await reader.consumer.topics()
    reader.fetch_from(where, 0)
    await reader.until(lambda: reader.ended(where, 1), "the end")
    consumer = reader.consumer
    assert isinstance(consumer, KafkaConsumer)
    assert consumer.read_ids == {name: found.topic_id}


def _made_again(kafka: Kafka, name: str) -> bool:
    with suppress(Exception):
        kafka.create_topic(name, partitions=2)
        return True
    return False


async def test_i8_slow_engine_keeps_memory_flat(
    kafka: Kafka, connect: Connect, join: Join, topic: MakeTopic
) -> None:
    name = topic(2)
    parts = [TopicPartition(name, each) for each in range(2)]
    for part in parts:
        fill(kafka.bootstrap, name, part.partition, [b"x" * 10_000] * 10_000)
    broker = await connect(fetch_records_max=1000, fetch_bytes_max=2 * 1024 * 1024)
    reader = await join(broker, [name], name)
    consumer = reader.consumer
    assert isinstance(consumer, KafkaConsumer)
    for part in parts:
        reader.fetch_from(part, 0)
    await reader.until(lambda: reader.records[parts[0]] or reader.records[parts[1]], "records")
    # 200 MB lie in the topic and nobody takes them.
    process = psutil.Process()
    start_bytes = process.memory_info().rss
    wait_until(lambda: min(consumer.room()) <= 0, "the buffer is full")
    await asyncio.sleep(1)
    waiting = [event for event in await consumer.events() if isinstance(event, Fetched)]
    size = sum(record.size() for event in waiting for record in event.records)
    # At most one batch over the bound.
    assert 2 * 1024 * 1024 <= size <= 2 * 1024 * 1024 + 500 * 10_000
    assert process.memory_info().rss - start_bytes < 40 * 1024 * 1024
    reader.take(list(waiting))
    await reader.until(lambda: all(reader.ended(part, 10_000) for part in parts), "all")
    for part in parts:
        assert reader.offsets(part) == list(range(10_000))


async def test_end_is_told_again_after_more_came(
    broker: Broker, join: Join, topic: MakeTopic
) -> None:
    name = topic()
    where = TopicPartition(name, 0)
    reader = await join(broker, [name], name)
    session = reader.fetch_from(where, 0)
    for end in (0, 1, 2):
        await reader.until(lambda end=end: reader.ended(where, end), f"end {end}")  # type: ignore[misc]
        await store(broker, Outgoing(name, None, b"x", (), 0))
    assert EndReached(where, session, 1) in reader.events
