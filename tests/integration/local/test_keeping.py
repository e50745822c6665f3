"""What the queue keeps and for how long: retention, delays, other layouts, a full disk."""

import asyncio
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ackd.core.ids import TopicPartition
from ackd.errors import BrokerError
from ackd.ports import (
    ConsumerSpec,
    Failure,
    Fetched,
    NotStored,
    Outgoing,
    OutOfRange,
    Stored,
    TopicReplaced,
)
from ackd_adapters.local import LocalBroker, LocalOptions, adapter
from ackd_adapters.local.log import Transaction
from ackd_testing import Reader
from tests.integration.local.conftest import Open
from tests.support.wait import wait_until_async

PART = TopicPartition("t", 0)


async def fill(broker: LocalBroker, count: int, size: int = 100, topic: str = "t") -> None:
    results = await broker.publish([Outgoing(topic, None, b"x" * size, (), 0)] * count)
    assert all(isinstance(each, Stored) for each in results), results


async def join(broker: LocalBroker, topic: str = "t") -> Reader:
    consumer = broker.consumer(ConsumerSpec("g", (topic,), "test"))
    await consumer.start()
    return Reader(consumer)


async def test_retention_by_age(opened: Open) -> None:
    """Old records go, also those that nobody has read; who reads from there is told (R6)."""
    broker = await opened(retention_ms=5_000, partitions=1)
    await fill(broker, 50)
    reader = await join(broker)

    async def gone() -> bool:
        return await reader.consumer.log_range(PART) == (50, 50)

    await wait_until_async(gone, "all too old", timeout_s=60)
    await fill(broker, 5)
    session = reader.fetch_from(PART, 10)
    await reader.until(lambda: reader.of(OutOfRange), "out of range")
    assert reader.of(OutOfRange) == [OutOfRange(PART, session, 50, 55)]


async def test_retention_by_size(opened: Open) -> None:
    """The newest stay, as many as fit, and at least one."""
    broker = await opened(retention_bytes=10_000, partitions=1)
    reader = await join(broker)
    await fill(broker, 300)

    async def is_range(first: int, end: int) -> bool:
        return await reader.consumer.log_range(PART) == (first, end)

    await wait_until_async(lambda: is_range(200, 300), "100 of 100 bytes", timeout_s=60)
    await fill(broker, 1, size=50_000)
    await wait_until_async(lambda: is_range(300, 301), "the last one stays", timeout_s=60)


async def test_topic_has_bounds_of_its_own(opened: Open) -> None:
    """Kafka's names; -1 keeps for ever whatever the options say."""
    broker = await opened(retention_ms=400, partitions=1)
    await broker.ensure_topic("kept", {"partitions": "1", "retention.ms": "-1"})
    await fill(broker, 10, topic="kept")
    await fill(broker, 10)
    reader = await join(broker, "^.*")

    async def gone() -> bool:
        return await reader.consumer.log_range(PART) == (10, 10)

    await wait_until_async(gone, "the other one is swept", timeout_s=60)
    assert await reader.consumer.log_range(TopicPartition("kept", 0)) == (0, 10)
    with pytest.raises(BrokerError):
        await broker.ensure_topic("compacted", {"cleanup.policy": "compact"})


@pytest.mark.alone
async def test_many_delays_are_on_time(opened: Open) -> None:
    """Each message within 250 ms of its due time (p99), in the order of due times, none early."""
    broker = await opened(partitions=1)
    reader = await join(broker)
    reader.fetch_from(PART, 0)
    delays = [100 + (number * 7919) % 1500 for number in range(1000)]
    began_ms = time.time_ns() // 1_000_000
    await broker.publish([Outgoing("t", None, b"%d" % each, delay_ms=each) for each in delays])
    stored_ms = time.time_ns() // 1_000_000
    await reader.until(lambda: len(reader.records[PART]) == 1000, "all")
    found = [(int(record.value or b""), record.timestamp_ms) for record in reader.records[PART]]
    assert [delay for delay, _ in found] == sorted(delays)
    assert all(stamp >= began_ms + delay for delay, stamp in found)
    late_ms = sorted(stamp - (stored_ms + delay) for delay, stamp in found)
    assert late_ms[989] < 250, late_ms[-20:]


async def test_r1_nothing_of_the_new_topic_in_the_old_session(opened: Open) -> None:
    """R1: a session is bound to the topic's identity, not to its name."""
    broker = await opened(partitions=1)
    await fill(broker, 10)
    reader = await join(broker)
    reader.fetch_from(PART, 0)
    await reader.until(lambda: reader.ended(PART, 10), "the old end")
    for _ in range(3):
        await broker.delete_topic("t")
        await fill(broker, 30)
    await reader.until(lambda: reader.of(TopicReplaced), "replaced")
    await reader.during(0.3)
    assert sum(len(event.records) for event in reader.of(Fetched)) == 10
    reader.fetch_from(PART, 0)
    await reader.until(lambda: reader.ended(PART, 30), "the new end")


async def test_deleted_records_are_removed_from_the_file(opened: Open, folder: Path) -> None:
    """A deleted topic's records are swept away in the background."""
    broker = await opened(partitions=1, retention_ms=1000)
    for _ in range(4):
        await fill(broker, 3000)
    await broker.delete_topic("t")

    def rows() -> int:
        with sqlite3.connect(folder / "queue.db") as db:
            found: int = db.execute("SELECT COUNT(*) FROM records").fetchone()[0]
        db.close()
        return found

    async def gone() -> bool:
        return await asyncio.to_thread(rows) == 0

    await wait_until_async(gone, "no record left", timeout_s=60)


async def test_full_disk(opened: Open) -> None:
    """Nothing is stored, and said so; readiness shows it; afterwards it goes on (section 8)."""
    broker = await opened(partitions=1)
    await fill(broker, 10)
    await broker.call(_limit(1))  # As large as it is now.
    results = await broker.publish([Outgoing("t", None, b"x" * 1000)] * 1000)
    assert {type(each) for each in results} == {NotStored}
    assert {(each.failure, each.code) for each in results if isinstance(each, NotStored)} == {
        (Failure.NOT_STORED, "disk-full")
    }
    assert [condition.code for condition in broker.conditions()] == ["queue"]
    await asyncio.sleep(1.2)  # Two probes later it is still full.
    assert [condition.code for condition in broker.conditions()] == ["queue"]
    await broker.call(_limit(1_000_000))

    async def well() -> bool:
        return broker.conditions() == []

    await wait_until_async(well, "readiness comes back by itself")
    await fill(broker, 10)
    reader = await join(broker)
    assert await reader.consumer.log_range(PART) == (0, 20)


async def test_i8_held_lock_gives_pressure_not_loss(opened: Open, folder: Path) -> None:
    """Another process holds the file (frozen in a transaction): bounded, definite, then on."""
    broker = await opened(partitions=1, publish_buffer_bytes=64 * 1024)
    await fill(broker, 1)
    other = await asyncio.to_thread(
        sqlite3.connect, folder / "queue.db", isolation_level=None, check_same_thread=False
    )
    try:
        await asyncio.to_thread(other.execute, "BEGIN IMMEDIATE")
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(broker.publish([Outgoing("t", None, b"x" * 60_000, (), 0)]))
            await asyncio.sleep(0)
            (full,) = await broker.publish([Outgoing("t", None, b"x" * 60_000, (), 0)])
        assert isinstance(full, NotStored)
        assert (full.failure, full.code) == (Failure.PRESSURE, "buffer-full")
        (busy,) = waiting.result()
        assert isinstance(busy, NotStored)
        assert (busy.failure, busy.code) == (Failure.PRESSURE, "busy")
        await asyncio.to_thread(other.execute, "ROLLBACK")
    finally:
        await asyncio.to_thread(other.close)
    await fill(broker, 1)
    reader = await join(broker)
    assert await reader.consumer.log_range(PART) == (0, 2)


async def test_another_layout_is_refused(opened: Open, folder: Path) -> None:
    """A file of a later version is left alone."""
    await (await opened()).close()
    with sqlite3.connect(folder / "queue.db") as db:
        db.execute("UPDATE meta SET value = 99 WHERE key = 'layout'")
    db.close()
    broker = adapter.open("test", LocalOptions(path=folder))
    with pytest.raises(BrokerError, match="layout 99"):
        await broker.start()


async def test_topics_are_made_only_if_wanted(opened: Open) -> None:
    """`auto_create` off: publishing is refused, a subscription waits and is told."""
    broker = await opened(auto_create=False, partitions=1)
    (result,) = await broker.publish([Outgoing("t", None, b"x")])
    assert isinstance(result, NotStored)
    assert (result.failure, result.code) == (Failure.REFUSED, "unknown-topic")
    reader = await join(broker)
    reader.fetch_from(PART, 0)
    await reader.during(0.3)
    assert not reader.assigned
    await broker.ensure_topic("t", {})
    await fill(broker, 3)
    await reader.until(lambda: reader.assigned == {PART} and reader.ended(PART, 3), "it begins")


def _limit(pages: int) -> Callable[[Transaction], None]:
    """Let the file have only so many pages: a disk that is full, without filling one."""

    def work(tx: Transaction) -> None:
        tx.db.execute(f"PRAGMA max_page_count={pages}")

    return work
