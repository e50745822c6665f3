"""What it costs and brings that messages reach any sidecar: `python -m tests.bench.bench_peers`.

Sidecars in one process on one Valkey, one local queue and one partition (`--kafka`: on Kafka;
`--sidecars N`: so many, 10 if nothing is said).
*Rate*: a worker of 20 ms with `max` 1 beside each; messages a second beside one sidecar's, and the
busiest worker beside the idlest. *Latency*: from publishing to the answer of a receive that waits,
beside the owner and beside another one. *CPU*: of the whole process for a message that is received
32 at a time and acked, in both ways. Medians of all rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections import Counter
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

from ackd.api.messages import SettleVerb
from tests.integration.engine.linked import Linked, Ring, begin
from tests.support.kafka import Kafka, KafkaOptions
from tests.support.paths import remove_run_dir, run_dir
from tests.support.redis import Flavour, RedisOptions, RedisServer, binary

WORK_S = 0.02
SECONDS = 10.0
ROUNDS = 3
TRIPS = 100
BATCH = 32
MESSAGES = 3_200
SIDECARS = 10


async def rate(workers: list[Linked], seconds: float) -> Counter[str]:
    """How many messages the worker beside each sidecar got."""
    served: Counter[str] = Counter()
    end_s = time.monotonic() + seconds

    async def work(linked: Linked) -> None:
        while time.monotonic() < end_s:
            got = (await linked.receive(1, wait_ms=1_000)).messages
            if got:
                await asyncio.sleep(WORK_S)
                await linked.settle(got, SettleVerb.ACK)
                served[linked.name] += 1

    await asyncio.gather(*(work(each) for each in workers))
    return served


async def drain(linked: Linked) -> None:
    """Ack what is left."""
    while got := (await linked.receive(500, wait_ms=500)).messages:
        await linked.settle(got, SettleVerb.ACK)


async def latency_ms(owner: Linked, at: Linked) -> float:
    """Median from publishing to the answer."""
    taken: list[float] = []
    for _ in range(TRIPS):
        waiting = begin(at.receive(1))
        await asyncio.sleep(WORK_S)  # until it waits where it should
        start_s = time.perf_counter()
        await owner.publish(1)
        got = (await waiting).messages
        taken.append((time.perf_counter() - start_s) * 1e3)
        await at.settle(got, SettleVerb.ACK)
    return statistics.median(taken)


async def cpu_us(owner: Linked, at: Linked) -> float:
    """CPU of all sidecars for a message, without publishing it."""
    await owner.publish(MESSAGES, size=1_000)
    warm = (await at.receive(BATCH)).messages
    await at.settle(warm, SettleVerb.ACK)
    done, start_s = 0, time.process_time()
    while done < MESSAGES - len(warm):
        got = (await at.receive(BATCH)).messages
        await at.settle(got, SettleVerb.ACK)
        done += len(got)
    return (time.process_time() - start_s) / done * 1e6


def tell(what: str, value: float, unit: str) -> None:
    """One line."""
    sys.stdout.write(f"{what:52} {value:8.2f} {unit}\n")
    sys.stdout.flush()


async def measure(ring: Ring, seconds: float, sidecars: int) -> None:
    """Print all figures. No worker ever waits for a message to be published."""
    alone = await ring.start(in_flight_max=1_000)
    enough = int(seconds / WORK_S)
    one: list[float] = []
    for _ in range(ROUNDS):
        await alone.publish(enough)
        one.append(sum((await rate([alone], seconds)).values()) / seconds)
    tell("1 sidecar", statistics.median(one), "messages/s")
    for _ in range(sidecars - 1):
        await ring.start(in_flight_max=1_000)
    owner, others = await ring.sorted()
    rates: list[float] = []
    spreads: list[float] = []
    for _ in range(ROUNDS):
        await owner.publish(enough * sidecars)
        served = await rate(ring.members, seconds)
        rates.append(sum(served.values()) / seconds)
        counts = [served[each.name] for each in ring.members]
        spreads.append(max(counts) / max(min(counts), 1))
    tell(
        f"{sidecars} sidecars, beside one",
        statistics.median(rates) / statistics.median(one),
        "times",
    )
    tell("busiest worker beside the idlest", statistics.median(spreads), "times")
    await drain(owner)
    rounds = [
        (
            await latency_ms(owner, owner),
            await latency_ms(owner, others[0]),
            await cpu_us(owner, owner),
            await cpu_us(owner, others[0]),
        )
        for _ in range(ROUNDS)
    ]
    own_ms, peer_ms, own_us, peer_us = map(statistics.median, zip(*rounds, strict=True))
    tell("publish to answer, beside the owner", own_ms, "ms (p50)")
    tell("added through a peer", peer_ms - own_ms, "ms (p50)")
    tell(f"CPU of a message at {BATCH} a call, beside the owner", own_us, "us")
    tell("through a peer", peer_us / own_us, "times")


async def run(folder: Path, url: str, kafka: Kafka | None, seconds: float, sidecars: int) -> None:
    """On a ring of its own."""
    async with AsyncExitStack() as stack:
        ring = Ring(stack, folder, url, kafka)
        if kafka is not None:
            await asyncio.to_thread(kafka.create_topic, ring.topic, partitions=1, config={})
        await measure(ring, seconds, sidecars)


def main() -> None:
    """Start what is needed, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kafka", action="store_true", help="on Kafka")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each round")
    parser.add_argument("--sidecars", type=int, default=SIDECARS, help="how many share a partition")
    asked = parser.parse_args()
    folder = run_dir("bench-peers")
    try:
        with ExitStack() as stack:
            valkey = stack.enter_context(RedisServer(RedisOptions(binary(Flavour.VALKEY))))
            kafka = stack.enter_context(Kafka(KafkaOptions())) if asked.kafka else None
            asyncio.run(run(folder, valkey.url, kafka, asked.seconds, asked.sidecars))
    finally:
        remove_run_dir(folder)


if __name__ == "__main__":
    main()
