"""Several processes on one queue: what one publishes the other hears of soon, groups are shared."""

import asyncio
import signal
import statistics
import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from ackd.core.ids import TopicPartition
from ackd.ports import Assigned, Condition, ConsumerSpec, Outgoing, Stored
from ackd_adapters.local import LocalBroker
from ackd_testing import Bench, Reader
from tests.contract.brokers.test_local import LocalLab
from tests.integration.local.conftest import Open

TAKEOVER_S = 2.5
FROZEN_S = 3.0
"""The default of `session_ms`."""


@pytest.fixture
async def bench(tmp_path: Path, stack: AsyncExitStack) -> Bench:
    """Members in other processes, on the same folder as `opened`."""
    return await stack.enter_async_context(LocalLab(tmp_path).bench())


async def join(broker: LocalBroker, group: str, topic: str, static_id: str | None = None) -> Reader:
    consumer = broker.consumer(ConsumerSpec(group, (topic,), "test", static_id))
    await consumer.start()
    return Reader(consumer)


@pytest.mark.alone
@pytest.mark.slow
async def test_r5_killed_member_is_replaced_fast(opened: Open, bench: Bench) -> None:
    """R5: first assignment after kill -9 far below the three seconds of the promise."""
    broker = await opened()
    parts = set(await bench.topic(4))
    topic = next(iter(parts)).topic
    process = await bench.process("g", [topic])
    await process.until_assigned(parts, 60)
    reader = await join(broker, "g", topic)
    await reader.until(lambda: len(reader.assigned) == 2, "half")
    began = time.monotonic()
    await process.kill()
    await reader.until(lambda: reader.assigned == parts, "all", TAKEOVER_S)
    assert time.monotonic() - began < TAKEOVER_S


@pytest.mark.alone
@pytest.mark.slow
async def test_r5_frozen_member_is_replaced_after_its_session(opened: Open, bench: Bench) -> None:
    """R5: a frozen member keeps its partitions for `session_ms`, and not much longer."""
    broker = await opened()
    parts = set(await bench.topic(2))
    topic = next(iter(parts)).topic
    process = await bench.process("g", [topic])
    await process.until_assigned(parts, 60)
    reader = await join(broker, "g", topic)
    await reader.until(lambda: len(reader.assigned) == 1, "half")
    process.signal(signal.SIGSTOP)
    began = time.monotonic()
    await reader.until(lambda: reader.assigned == parts, "all", FROZEN_S + 8)
    assert FROZEN_S - 0.5 < time.monotonic() - began < FROZEN_S + 6
    process.signal(signal.SIGCONT)
    await process.until_assigned(parts - reader.assigned, 60)


@pytest.mark.alone
async def test_publish_is_heard_in_another_connection(opened: Open) -> None:
    """Without a shared thread, only through the file: soon enough for a long poll."""
    one, two = await opened(), await opened()
    await one.ensure_topic("t", {"partitions": "1"})
    part = TopicPartition("t", 0)
    reader = await join(two, "g", "t")
    reader.fetch_from(part, 0)
    late_ms: list[float] = []
    for number in range(40):
        began = time.perf_counter()
        (result,) = await one.publish([Outgoing("t", None, b"x")])
        assert result == Stored("t", 0, number)
        await reader.until(lambda n=number: len(reader.records[part]) > n, "heard")  # type: ignore[misc]
        late_ms.append((time.perf_counter() - began) * 1000)
    assert statistics.median(late_ms) < 50, late_ms


@pytest.mark.alone
async def test_publish_is_heard_in_the_same_connection(opened: Open) -> None:
    """Publish to event: p50 under 5 ms."""
    broker = await opened()
    await broker.ensure_topic("t", {"partitions": "1"})
    part = TopicPartition("t", 0)
    reader = await join(broker, "g", "t")
    reader.fetch_from(part, 0)
    late_ms: list[float] = []
    for number in range(100):
        began = time.perf_counter()
        await broker.publish([Outgoing("t", None, b"x")])
        await reader.until(lambda n=number: len(reader.records[part]) > n, "heard")  # type: ignore[misc]
        late_ms.append((time.perf_counter() - began) * 1000)
    assert statistics.median(late_ms) < 10, late_ms


async def test_r24_static_id_takes_over_and_fences(opened: Open) -> None:
    """R24: the later one of two with a static id has the partitions, the earlier one is told."""
    # Whoever waited for the end of the session would wait for longer than the test does.
    one, two = await opened(session_ms=60_000), await opened(session_ms=60_000)
    await one.ensure_topic("t", {"partitions": "2"})
    first = await join(one, "g", "t", "name")
    await first.until(lambda: len(first.assigned) == 2, "both")
    second = await join(two, "g", "t", "name")
    await second.until(lambda: len(second.assigned) == 2, "both, at once", 30)
    await first.until(lambda: first.of(Condition), "fenced")
    assert first.of(Condition)[-1].fatal
    assert not first.assigned
    await first.during(1.0)
    assert len(first.of(Assigned)) == 1, "it came back by itself"
    assert len(second.assigned) == 2


async def test_many_members_come_and_go(opened: Open) -> None:
    """Whatever the order, at rest every partition is with exactly one member, evenly."""
    broker = await opened()
    await broker.ensure_topic("t", {"partitions": "12"})
    readers: list[Reader] = []
    for step in (1, 1, 1, -1, 1, 1, -1, -1):
        if step > 0:
            readers.append(await join(await opened(), "g", "t"))
        else:
            await readers.pop(0).consumer.close()
        await settle(readers, 12)


async def settle(readers: list[Reader], partitions: int) -> None:
    """Take events until everything is given, evenly, and never twice."""
    async with asyncio.timeout(60):
        while True:
            for reader in readers:
                await reader.during(0.02)
            counts = [len(reader.assigned) for reader in readers]
            every = set().union(*(reader.assigned for reader in readers))
            assert len(every) == sum(counts), "with two members"
            if len(every) == partitions and max(counts) - min(counts) <= 1:
                return
