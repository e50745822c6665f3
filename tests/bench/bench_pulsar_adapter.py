"""How fast the Pulsar adapter is beside the bare client, on a real broker that this starts itself.

    python -m tests.bench.bench_pulsar_adapter [--count 20000] [--json FILE]

Reading: a backlog of messages of 100 bytes, none in batches, by `Consumer.events()` alone; the bare
client receives and acknowledges them. Publishing: in calls of 100, ten under way; the bare client
sends without batches, as the adapter does. Then single publishes, 32 at a time and one at a time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path

from ackd.core.ids import TopicPartition
from ackd.ports import Broker, ConsumerSpec, Fetched, Outgoing, Stored
from ackd_adapters.pulsar import PulsarOptions, adapter
from tests.support.pulsar import Pulsar, bare

BODY = b'{"at": "%s"}' % (b"x" * 89)
Figures = dict[str, float]


def bare_reading(pulsar: Pulsar, topic: str, count: int) -> Figures:
    """Receive and acknowledge one after the other."""
    with bare.client(pulsar.url) as made:
        consumer = bare.join(made, f"persistent://public/default/{topic}", "bare")
        began = time.perf_counter()
        for _ in range(count):
            consumer.acknowledge(consumer.receive(20_000))
        return {"messages_per_s": round(count / (time.perf_counter() - began))}


def bare_publishing(pulsar: Pulsar, topic: str, count: int) -> Figures:
    """As fast as the client takes them."""
    with bare.client(pulsar.url) as made:
        began = time.perf_counter()
        bare.produce(made, f"persistent://public/default/{topic}", count)
        return {"messages_per_s": round(count / (time.perf_counter() - began))}


async def reading(broker: Broker, topic: str, count: int) -> Figures:
    """Read a backlog as fast as events come."""
    consumer = broker.consumer(ConsumerSpec(f"bench-{topic}", (topic,), "bench", joins=False))
    await consumer.start()
    began, seen = time.perf_counter(), 0
    consumer.fetch_from(TopicPartition(topic, 0), 0)
    while seen < count:
        for event in await consumer.events():
            if isinstance(event, Fetched):
                seen += len(event.records)
    took = time.perf_counter() - began
    await consumer.close()
    return {"messages_per_s": round(count / took)}


async def publishing(broker: Broker, topic: str, count: int, *, size: int, callers: int) -> Figures:
    """Calls of `size` messages by so many callers at once."""
    taken: list[float] = []

    async def caller() -> None:
        for _ in range(count // size // callers):
            began = time.perf_counter()
            found = await broker.publish([Outgoing(topic, None, BODY)] * size)
            taken.append(time.perf_counter() - began)
            if not all(isinstance(each, Stored) for each in found):
                raise RuntimeError(f"not stored: {found[0]}")

    began = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(callers):
            tasks.create_task(caller())
    took = time.perf_counter() - began
    taken.sort()
    return {
        "messages_per_s": round(len(taken) * size / took),
        "call_ms_p50": round(taken[len(taken) // 2] * 1e3, 2),
        "call_ms_p99": round(taken[len(taken) * 99 // 100] * 1e3, 2),
    }


async def measure(pulsar: Pulsar, count: int) -> dict[str, Figures]:
    """All figures, one after the other."""
    options = PulsarOptions(service_url=pulsar.url, admin_url=pulsar.web_url, batch_messages_max=1)
    broker = adapter.open("bench", options)
    await broker.start()
    found: dict[str, Figures] = {}
    try:
        for topic in ("bare", "calls", "singles"):
            await asyncio.to_thread(pulsar.admin.create_topic, f"public/default/{topic}")
            # Connecting is not measured.
            await broker.publish([Outgoing(topic, None, BODY)])
        found["publish, bare"] = await asyncio.to_thread(bare_publishing, pulsar, "bare", count)
        for name, topic, part, size, callers in (
            ("publish, calls of 100", "calls", 1, 100, 10),
            ("publish, 32 callers", "singles", 4, 1, 32),
            ("publish, one caller", "singles", 40, 1, 1),
        ):
            found[name] = await publishing(broker, topic, count // part, size=size, callers=callers)
        found["read, bare"] = await asyncio.to_thread(bare_reading, pulsar, "bare", count)
        found["read"] = await reading(broker, "bare", count)
    finally:
        await broker.close()
    return found


def main() -> None:
    """Start a broker, measure, print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with Pulsar() as pulsar:
        found = asyncio.run(measure(pulsar, given.count))
    for name, figures in found.items():
        shown = ", ".join(f"{key} {value:g}" for key, value in figures.items())
        sys.stdout.write(f"{name:24} {shown}\n")
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
