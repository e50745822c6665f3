"""How much the Kafka adapter costs, on a real broker that this starts itself.

    python -m tests.bench.bench_kafka_adapter [--seconds 5] [--json FILE]

Throughput reads a backlog through `Consumer.events()` alone and counts the CPU of this process, all
threads, per record. Latency is from `publish()` to the event with that record, one message at a
time at a fixed rate; publishing and reading share this process, so it includes both ways.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import sys
import time
from pathlib import Path

from ackd.core.ids import TopicPartition
from ackd.ports import Broker, Consumer, ConsumerSpec, EndReached, Fetched, Outgoing
from ackd_adapters.kafka import KafkaOptions, adapter
from tests.support.kafka import Kafka
from tests.support.kafka.fill import fill

PARTITIONS = 8
Figures = dict[str, float]


def cpu_s() -> float:
    """CPU time of this process, all threads."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def percentile(values: list[float], share: float) -> float:
    """The value below which this share lies."""
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


async def consumer_of(broker: Broker, topic: str) -> Consumer:
    """A consumer that is started and reads all partitions from the start."""
    made = broker.consumer(ConsumerSpec(f"bench-{topic}", (topic,), "bench"))
    await made.start()
    return made


async def throughput(kafka: Kafka, broker: Broker, size: int, count: int) -> Figures:
    """Read a backlog of `count` records of `size` bytes as fast as events come."""
    topic = f"backlog-{size}"
    await asyncio.to_thread(kafka.create_topic, topic, partitions=PARTITIONS)
    for part in range(PARTITIONS):
        values = [b"x" * size] * (count // PARTITIONS)
        await asyncio.to_thread(fill, kafka.bootstrap, topic, part, values)
    consumer = await consumer_of(broker, topic)
    start, cpu = time.perf_counter(), cpu_s()
    for part in range(PARTITIONS):
        consumer.fetch_from(TopicPartition(topic, part), 0)
    seen = batches = 0
    while seen < count:
        for event in await consumer.events():
            if isinstance(event, Fetched):
                seen += len(event.records)
                batches += 1
    wall, cpu = time.perf_counter() - start, cpu_s() - cpu
    await consumer.close()
    return {
        "records_per_s": round(seen / wall),
        "cpu_us_per_record": round(cpu / seen * 1e6, 2),
        "records_per_event": round(seen / batches, 1),
    }


async def latency(kafka: Kafka, broker: Broker, rate_per_s: int, seconds: float) -> Figures:
    """Publish single messages of 100 bytes at a rate; time from the call to the event."""
    topic = f"latency-{rate_per_s}"
    await asyncio.to_thread(kafka.create_topic, topic, partitions=PARTITIONS)
    consumer = await consumer_of(broker, topic)
    parts = [TopicPartition(topic, part) for part in range(PARTITIONS)]
    for part in parts:
        consumer.fetch_from(part, 0)
    ends = 0
    while ends < PARTITIONS:
        ends += sum(isinstance(event, EndReached) for event in await consumer.events())
    # The first message to a partition waits for metadata and the producer's id: not measured.
    await broker.publish([Outgoing(topic, None, b"warm", (), part) for part in range(PARTITIONS)])
    warm = 0
    while warm < PARTITIONS:
        events = await consumer.events()
        warm += sum(len(event.records) for event in events if isinstance(event, Fetched))
    count = int(rate_per_s * seconds)
    taken: list[float] = []
    stored: list[float] = []

    async def one(number: int) -> None:
        began = time.perf_counter()
        body = b"%-100d" % time.perf_counter_ns()
        await broker.publish([Outgoing(topic, None, body, (), number % PARTITIONS)])
        stored.append((time.perf_counter() - began) * 1e3)

    async def write() -> None:
        begin = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for number in range(count):
                await asyncio.sleep(max(begin + number / rate_per_s - time.perf_counter(), 0))
                group.create_task(one(number))

    cpu = cpu_s()
    async with asyncio.TaskGroup() as group:
        group.create_task(write())
        while len(taken) < count:
            events = await consumer.events()
            now = time.perf_counter_ns()
            for event in events:
                if isinstance(event, Fetched):
                    taken += [(now - int(each.value or b"0")) / 1e6 for each in event.records]
    cpu = cpu_s() - cpu
    await consumer.close()
    return {
        "publish_to_event_ms_p50": round(percentile(taken, 0.50), 2),
        "publish_to_event_ms_p99": round(percentile(taken, 0.99), 2),
        "publish_to_stored_ms_p50": round(percentile(stored, 0.50), 2),
        "publish_to_stored_ms_p99": round(percentile(stored, 0.99), 2),
        "cpu_us_per_message": round(cpu / count * 1e6, 1),
    }


async def publishing(kafka: Kafka, broker: Broker, size: int, count: int) -> Figures:
    """Publish in calls of 100, ten calls under way at once."""
    topic = f"publish-{size}"
    await asyncio.to_thread(kafka.create_topic, topic, partitions=PARTITIONS)
    calls = count // 100
    start, cpu = time.perf_counter(), cpu_s()

    async def sender(own: int) -> None:
        for _ in range(own):
            await broker.publish([Outgoing(topic, None, b"x" * size) for _ in range(100)])

    async with asyncio.TaskGroup() as group:
        for _ in range(10):
            group.create_task(sender(calls // 10))
    wall, cpu = time.perf_counter() - start, cpu_s() - cpu
    done = calls // 10 * 1000
    return {"messages_per_s": round(done / wall), "cpu_us_per_message": round(cpu / done * 1e6, 2)}


async def idle(broker: Broker, topic: str, seconds: float) -> Figures:
    """What a subscription with nothing to do costs."""
    consumer = await consumer_of(broker, topic)
    for part in range(PARTITIONS):
        where = TopicPartition(topic, part)
        consumer.fetch_from(where, (await consumer.log_range(where))[1])
    await asyncio.sleep(1)
    cpu = cpu_s()
    await asyncio.sleep(seconds)
    cpu = cpu_s() - cpu
    await consumer.close()
    return {"cpu_percent": round(cpu / seconds * 100, 2)}


async def measure(kafka: Kafka, seconds: float) -> dict[str, Figures]:
    """All figures, one after the other."""
    broker = adapter.open("bench", KafkaOptions(bootstrap_servers=kafka.bootstrap))
    await broker.start()
    found = {}
    for size, count in ((100, 400_000), (1024, 200_000)):
        found[f"consume {size} B"] = await throughput(kafka, broker, size, count)
    for size, count in ((100, 100_000), (1024, 50_000)):
        found[f"publish {size} B"] = await publishing(kafka, broker, size, count)
    for rate in (100, 1000):
        found[f"latency at {rate}/s"] = await latency(kafka, broker, rate, seconds)
    found["idle, 8 partitions"] = await idle(broker, "latency-100", seconds)
    await broker.close()
    return found


def main() -> None:
    """Start a broker, measure, print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with Kafka() as kafka:
        found = asyncio.run(measure(kafka, given.seconds))
    for name, figures in found.items():
        shown = ", ".join(f"{key} {value:g}" for key, value in figures.items())
        sys.stdout.write(f"{name:20} {shown}\n")
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
