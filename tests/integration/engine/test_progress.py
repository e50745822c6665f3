"""A group's progress on a real Kafka: start, holes, retention, resets, lost store data (I1, I2)."""

import asyncio
import time
from collections.abc import Callable

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)

from ackd.api.dead_letters import OperationView
from ackd.api.messages import SettleItem, SettleVerb, Status
from ackd.api.progress import SeekRequest, SeekTo
from ackd.core.commit_metadata import decode
from ackd.store.memory import Data
from tests.integration.engine.conftest import NAME, Sidecar, StartSidecar
from tests.support.kafka import Kafka
from tests.support.kafka.fill import fill
from tests.support.wait import wait_until_async

pytestmark = pytest.mark.kafka
MakeTopic = Callable[..., str]


async def put(kafka: Kafka, topic: str, count: int, first: int = 0, partition: int = 0) -> None:
    """Publish `count` messages with their number as value."""
    values = [b"%d" % number for number in range(first, first + count)]
    await asyncio.to_thread(fill, kafka.bootstrap, topic, partition, values)


async def committed(kafka: Kafka, group: str, topic: str) -> TopicPartition:
    """The group's committed position as an operator's tool sees it."""

    def read() -> TopicPartition:
        asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0)])
        future = kafka.admin().list_consumer_group_offsets([asked])[group]
        return future.result(60).topic_partitions[0]  # type: ignore[no-any-return]

    return await asyncio.to_thread(read)


async def reset(kafka: Kafka, group: str, topic: str, offset: int) -> None:
    """What `kafka-consumer-groups --reset-offsets` does, as soon as the group is empty."""

    def write() -> bool:
        where = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, offset)])
        try:
            kafka.admin().alter_consumer_group_offsets([where])[group].result(60)
        except KafkaException as error:
            if error.args[0].code() not in (
                KafkaError.UNKNOWN_MEMBER_ID,
                KafkaError.NON_EMPTY_GROUP,
            ):
                raise
            return False
        return True

    await wait_until_async(lambda: asyncio.to_thread(write), "the group to be empty", timeout_s=60)


async def until_committed(kafka: Kafka, group: str, topic: str, offset: int) -> TopicPartition:
    """Wait for a committed offset."""
    last: list[TopicPartition] = []

    async def there() -> bool:
        last[:] = [await committed(kafka, group, topic)]
        return last[0].offset == offset

    await wait_until_async(there, f"offset {offset} to be committed", timeout_s=60)
    return last[0]


async def test_i1_compacted_topic_drains_and_commits_to_the_end(
    kafka: Kafka, start: StartSidecar, topic: MakeTopic
) -> None:
    name = topic(cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.01")

    def write() -> None:
        producer = Producer({"bootstrap.servers": kafka.bootstrap})
        for number in range(300):
            producer.produce(name, b"%d" % number, key=b"%d" % (number % 7))
        producer.flush(60)

    def survivors() -> list[int]:
        reader = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "look"})
        reader.assign([TopicPartition(name, 0, 0)])
        found: list[int] = []
        for _ in range(300):
            found += [m.offset() or 0 for m in reader.consume(1000, 0.1) if m.error() is None]
            if found and found[-1] >= 900:
                break
        reader.close()
        return found

    for _ in range(3):
        await asyncio.to_thread(write)
        await asyncio.sleep(0.2)  # a new segment begins with the next write

    async def compacted() -> bool:
        await asyncio.to_thread(write)
        left = await asyncio.to_thread(survivors)
        return bool(left) and len(left) < left[-1] // 2

    await wait_until_async(compacted, "Kafka to compact", timeout_s=60)
    sidecar = await start(name, name)
    came = await sidecar.drain()
    assert len(came) == len(set(came))
    end = (await sidecar.watermarks())[0]
    assert came[-1] == end - 1
    await until_committed(kafka, name, name, end)


async def test_i1_transactions_drain_to_the_end_behind_the_marker(
    kafka: Kafka, start: StartSidecar, topic: MakeTopic
) -> None:
    name = topic()

    def write() -> None:
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": name})
        producer.init_transactions(60)
        for round_ in range(6):
            producer.begin_transaction()
            for number in range(50):
                producer.produce(name, b"%d" % number, partition=0)
            producer.flush(60)
            if round_ % 2:
                producer.abort_transaction(60)
            else:
                producer.commit_transaction(60)

    await asyncio.to_thread(write)
    sidecar = await start(name, name)
    came = await sidecar.drain()
    assert len(came) == 150
    assert await sidecar.watermarks() == {0: 306}
    await until_committed(kafka, name, name, 306)


async def test_r6_latest_is_resolved_once_and_new_partitions_start_at_their_beginning(
    kafka: Kafka, start: StartSidecar, topic: MakeTopic
) -> None:
    name = topic()
    await put(kafka, name, 10)
    first = await start(name, name, start="latest")
    await first.runtime.stop()
    await put(kafka, name, 5, first=10)
    second = await start(name, name, start="latest")
    assert await second.drain() == [10, 11, 12, 13, 14]


async def test_i2_ranges_in_the_commit_narrow_what_comes_after_the_store_was_lost(
    kafka: Kafka, start: StartSidecar, topic: MakeTopic
) -> None:
    name = topic()
    await put(kafka, name, 50)
    first = await start(name, name)
    messages = await first.collect(50)
    done = [m for m in messages if m.record.offset not in (3, 20)]
    await first.settle(done, SettleVerb.ACK)

    async def told() -> bool:
        found = await committed(kafka, name, name)
        progress = decode((found.metadata or "").rstrip("\0"))
        seen = None if progress is None else progress.ranges
        return (found.offset, seen) == (3, ((4, 20), (21, 50)))

    await wait_until_async(told, "all acks to be in the commit", timeout_s=60)
    await first.runtime.stop()
    second = await start(name, name, store=Data())
    assert await second.drain() == [3, 20]
    lost = second.runtime.metrics.store_data_lost.at()
    assert lost.value == 1


async def test_r8_an_operators_reset_wins_once_and_acks_after_it_are_kept(
    kafka: Kafka, start: StartSidecar, topic: MakeTopic
) -> None:
    name = topic()
    await put(kafka, name, 20)
    first = await start(name, name)
    assert len(await first.drain()) == 20
    await until_committed(kafka, name, name, 20)
    await first.runtime.stop()
    await reset(kafka, name, name, 5)
    second = await start(name, name)
    assert await second.drain() == list(range(5, 20))
    await second.runtime.stop()
    third = await start(name, name)
    assert await third.receive(wait_ms=1500) == []


async def test_r8_a_copy_of_what_a_reset_brings_back_is_over(
    kafka: Kafka, start: StartSidecar, topic: MakeTopic
) -> None:
    """The copies of 15 and 5 wait in the retry topic, claimed, when the group is set to 10."""
    name = topic()
    await put(kafka, name, 20)
    settings: dict[str, object] = {
        "retry_topic": True,
        "retry_topic_partitions": 1,
        "stuck_after_ms": 500,
        "stuck_min_age_ms": 100,
        "lease_ms": 2_000,
    }
    first = await start(name, name, **settings)
    messages = await first.collect(20)
    late = [m for m in messages if m.record.offset in (5, 15)]
    await first.settle([m for m in messages if m not in late], SettleVerb.ACK)
    items = [SettleItem(m.lease, SettleVerb.RETRY, delay_ms=15_000) for m in late]
    results = await first.runtime.settle(items)
    assert [each.status for each in results] == [Status.RETRYING] * 2
    due_s = time.monotonic() + 15
    await until_committed(kafka, name, name, 20)
    claimed = first.runtime.metrics.claims.at(NAME, "claimed")

    async def both_wait() -> bool:
        return claimed.value == len(late)

    await wait_until_async(both_wait, "both copies to claim", timeout_s=30)
    await first.runtime.stop()
    await reset(kafka, name, name, 10)
    assert time.monotonic() < due_s, "the copies no longer waited"
    second = await start(name, name, **settings)
    again: list[tuple[int, int]] = []
    while len(again) < 11:
        some = await second.collect(1)
        again += [(m.record.offset, m.attempt) for m in some]
        await second.settle(some, SettleVerb.ACK)
    # By then the copy of 15 would have come, too.
    assert sorted(again) == [(5, 2), *((n, 1) for n in range(10, 20))]
    assert await second.receive(wait_ms=2_000) == []


async def test_r8_an_accepted_reset_is_undone(
    kafka: Kafka, start: StartSidecar, topic: MakeTopic
) -> None:
    name = topic()
    await put(kafka, name, 20)
    first = await start(name, name)
    messages = await first.collect(20)
    await first.settle([m for m in messages if m.record.offset not in (4, 9)], SettleVerb.ACK)
    await until_committed(kafka, name, name, 4)
    await first.runtime.stop()
    await reset(kafka, name, name, 15)
    second = await start(name, name)
    assert await second.drain(quiet_ms=500) == [15, 16, 17, 18, 19]
    await second.runtime.pause(NAME, "group", "undo", None)
    began = await second.runtime.progress.seek(NAME, SeekRequest(SeekTo.BEFORE_RESET))
    assert isinstance(began, OperationView)

    async def done() -> bool:
        return (await second.runtime.dead.operation(began.id)).state == "done"

    await wait_until_async(done, "the undo", timeout_s=60)
    await second.runtime.resume(NAME, "group")
    assert await second.drain() == [4, 9]
    await until_committed(kafka, name, name, 20)


async def test_r8_a_refused_external_commit_changes_nothing(
    kafka: Kafka, start: StartSidecar, topic: MakeTopic
) -> None:
    name = topic()
    await put(kafka, name, 20)
    first = await start(name, name)
    await first.drain()
    await first.runtime.stop()
    await reset(kafka, name, name, 5)
    second = await start(name, name, external_commit="refuse")
    assert await second.receive(wait_ms=1500) == []
    await until_committed(kafka, name, name, 20)


async def test_r1_a_topic_made_again_is_another_one(
    kafka: Kafka, start: StartSidecar, topic: MakeTopic
) -> None:
    name = topic()
    await put(kafka, name, 30)
    first = await start(name, name)
    assert len(await first.drain()) == 30
    await asyncio.to_thread(kafka.delete_topics, [name])
    await asyncio.to_thread(kafka.create_topic, name, partitions=1, config={})
    await put(kafka, name, 3, first=100)
    assert await first.drain() == [0, 1, 2]


async def test_i1_messages_deleted_by_retention_are_counted_and_progress_goes_on(
    kafka: Kafka, start: StartSidecar, topic: MakeTopic
) -> None:
    name = topic()
    await put(kafka, name, 10)
    first = await start(name, name)
    assert len(await first.drain()) == 10
    await first.runtime.stop()
    await put(kafka, name, 20, first=10)

    def delete() -> None:
        futures = kafka.admin().delete_records([TopicPartition(name, 0, 25)])
        for future in futures.values():
            future.result(60)

    await asyncio.to_thread(delete)
    second = await start(name, name)
    assert await second.drain() == [25, 26, 27, 28, 29]
    expired = second.runtime.metrics.expired_by_retention.at("work")
    assert expired.value == 15
    assert await second.watermarks() == {0: 30}


async def test_a_plain_group_is_adopted_where_it_stands(
    kafka: Kafka, start: StartSidecar, topic: MakeTopic
) -> None:
    name = topic()
    await put(kafka, name, 20)

    def consume() -> None:
        plain = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": name})
        plain.commit(offsets=[TopicPartition(name, 0, 12)], asynchronous=False)
        plain.close()

    await asyncio.to_thread(consume)
    sidecar = await start(name, name)
    assert await sidecar.drain() == list(range(12, 20))


async def test_i3_two_sidecars_share_and_settle_for_each_other(
    kafka: Kafka, start: StartSidecar, topic: MakeTopic
) -> None:
    name = topic(4)
    for partition in range(4):
        await put(kafka, name, 25, partition=partition)
    one = await start(name, name)
    messages = await one.collect(100)
    two = await start(name, name)

    def owned(sidecar: Sidecar) -> set[tuple[str, int]]:
        return set(sidecar.runtime._subscriptions["work"].partitions.owned)

    async def shared() -> bool:
        return len(owned(two)) == 2 and len(owned(one)) == 2

    await wait_until_async(shared, "both to own two partitions", timeout_s=60)
    assert not owned(one) & owned(two)
    # Each settles what the other one owns now; owners hear of it and move on (R16).
    await two.settle(messages[:50], SettleVerb.ACK)
    await one.settle(messages[50:], SettleVerb.ACK)

    async def all_done() -> bool:
        rows = await one.runtime.lag("work") + await two.runtime.lag("work")
        return all(row.watermark in (25, -1) for row in rows)

    await wait_until_async(all_done, "every watermark at the end", timeout_s=60)
    assert await one.receive(wait_ms=300) == []
    assert await two.receive(wait_ms=300) == []
