"""Receive and settle of ackd beside the broker's bare client, on Pulsar and RocketMQ.

    python -m tests.bench.bench_beside [--only pulsar,rocketmq] [--quick] [--json FILE]

Both read the same topic of one broker, in turn, in groups of their own: ackd over HTTP with its
embedded store (16 connections, 32 messages a call), the bare client in a process of its own. CPU
is that of what a message costs beside the broker: sidecar and store, or the bare client. RocketMQ
has two such clients: gRPC calls with nothing around them (`bare`), and its own Python client
(`official`). So has Pulsar: its client (`bare`), and the same with a logger of Python's (`logged`),
with which the library writes several lines of debugging for each message.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from ackd_adapters.rocketmq.client import GroupClient
from ackd_adapters.rocketmq.config import RocketMQOptions
from ackd_adapters.rocketmq.message import MessageIds, MessageToSend
from ackd_adapters.rocketmq.rpc import Rpc
from ackd_torture.child import BrokerPart
from ackd_torture.parts import EmbeddedStore, Sidecar, SidecarPlan
from tests.bench.load import Job
from tests.bench.measure import cpu_us, drive, machine, median
from tests.support.other import ROCKETMQ_CLIENT, packages
from tests.support.paths import REPO, remove_run_dir, run_dir
from tests.support.pulsar import Pulsar, bare
from tests.support.pulsar.part import PulsarAt
from tests.support.rocketmq import RocketMQ
from tests.support.rocketmq.part import RocketMQAt

BODY = json.dumps({"at_us": 1, "pad": "x" * 80}).encode()
QUEUES = 4
HOLD_MS = 30_000
SENDERS = 64
BATCHES = {32: 20_000, 1: 4_000}
Figures = dict[str, float]


def sidecar_run(sidecar: Sidecar, batch: int, count: int) -> Figures:
    """Receive and settle `count` messages by ackd."""
    store = EmbeddedStore(sidecar).pid
    before = cpu_us(sidecar.pid), cpu_us(store)
    load = drive(Job(sidecar.port, "bench", 16, batch, "separate", count, wait_ms=2_000), 2)
    after = cpu_us(sidecar.pid), cpu_us(store)
    if load.done < count * 0.95:
        raise RuntimeError(f"only {load.done} of {count} messages were acked")
    return {
        "messages_per_s": load.done / load.seconds,
        "sidecar_us": (after[0] - before[0]) / load.done,
        "store_us": (after[1] - before[1]) / load.done,
    }


def bare_run(kind: str, address: str, topic: str, group: str, count: int) -> Figures:
    """The same by the bare client."""
    return figures_of("tests.bench.bare_consumer", kind, address, topic, group, count)


def official_run(address: str, topic: str, group: str, count: int) -> Figures:
    """The same by RocketMQ's own Python client."""
    return figures_of(
        "tests.bench.official_rocketmq", address, topic, group, count, path=rocketmq_client()
    )


def rocketmq_client() -> str:
    """Where its packages are."""
    return str(packages(ROCKETMQ_CLIENT))


def figures_of(module: str, *words: object, path: str = "") -> Figures:
    """What a consumer that is a process of its own prints, for each message."""
    argv = [sys.executable, "-m", module, *map(str, words)]
    output = subprocess.run(
        argv,
        stdout=subprocess.PIPE,
        check=True,
        cwd=REPO,
        timeout=600,
        env=os.environ | {"PYTHONPATH": path},
    ).stdout
    done = json.loads(output)
    return {
        "messages_per_s": done["messages"] / done["seconds"],
        "client_us": done["cpu_us"] / done["messages"],
    }


def fill_pulsar(pulsar: Pulsar, topic: str, count: int) -> None:
    """None in batches."""
    with bare.client(pulsar.url) as made:
        producer = made.create_producer(
            f"persistent://public/default/{topic}", block_if_queue_full=True, batching_enabled=False
        )
        for _ in range(count):
            producer.send_async(BODY, None)
        producer.flush()


async def fill_rocketmq(rocketmq: RocketMQ, topic: str, count: int) -> None:
    """Many calls at a time: one call of the client sends one message."""
    options = RocketMQOptions(endpoints=rocketmq.endpoints, request_timeout_ms=60_000)
    rpc = Rpc(options, f"fill-{topic}")
    await rpc.start()
    client, ids, left = GroupClient(rpc, options), MessageIds(), iter(range(count))

    async def sender() -> None:
        for _ in left:
            now_ms = time.time_ns() // 1_000_000
            await client.send(MessageToSend(topic, BODY), ids.make(now_ms), now_ms, "127.0.0.1")

    try:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(SENDERS):
                tasks.create_task(sender())
    finally:
        await rpc.close()


def on_pulsar(folder: Path, runs: int, scale: float) -> list[Figures]:
    """All runs on a Pulsar of their own."""
    with Pulsar() as pulsar:
        topic = "beside"
        part = PulsarAt(pulsar)
        part.create_topic(topic, 1)
        fill_pulsar(pulsar, topic, needed(runs, scale))
        return compared(part, pulsar.url, folder, topic, runs, scale)


def on_rocketmq(folder: Path, runs: int, scale: float) -> list[Figures]:
    """All runs on a RocketMQ of their own."""
    with RocketMQ() as rocketmq:
        topic = "beside"
        part = RocketMQAt(rocketmq, hold_ms=HOLD_MS)
        part.create_topic(topic, QUEUES)
        for group in ("bare", "official"):
            rocketmq.admin.group(f"{topic}-{group}")
        asyncio.run(fill_rocketmq(rocketmq, topic, needed(runs, scale)))
        return compared(part, rocketmq.endpoints, folder, topic, runs, scale)


def needed(runs: int, scale: float) -> int:
    """Messages for all runs of one side: a run may take a batch too much for each connection."""
    return round(sum(BATCHES.values()) * scale) * runs + (len(BATCHES) * runs + 1) * 1_000


def compared(
    part: BrokerPart, address: str, folder: Path, topic: str, runs: int, scale: float
) -> list[Figures]:
    """A list entry for each batch size: medians, and how ackd is to the bare client."""
    plan = SidecarPlan(
        broker=part,
        store_url="embedded",
        topic=topic,
        sub="bench",
        group=f"{topic}-group",
        subscription={"lease_ms": 60_000, "in_flight_max": 300_000},
    )
    sidecar = Sidecar(f"{part.name}-beside", plan, folder)
    rows: dict[int, list[Figures]] = {batch: [] for batch in BATCHES}
    try:
        sidecar.start()
        drive(Job(sidecar.port, "bench", 16, 32, "separate", 500, wait_ms=5_000), 1)
        for _ in range(runs):
            for batch, count in BATCHES.items():
                own = sidecar_run(sidecar, batch, round(count * scale))
                # The bare client has no batches to ask for; it is measured at the same moment.
                plain = bare_run(part.name, address, topic, f"{topic}-bare", round(count * scale))
                row = own | {f"bare_{name}": each for name, each in plain.items()}
                if part.name == "pulsar":
                    its = bare_run(
                        "logged", address, topic, f"{topic}-logged", round(count * scale)
                    )
                    row |= {f"logged_{name}": each for name, each in its.items()}
                if part.name == "rocketmq":
                    its = official_run(address, topic, f"{topic}-official", round(count * scale))
                    row |= {f"official_{name}": each for name, each in its.items()}
                rows[batch].append(row)
    finally:
        sidecar.stop()
    return [summary(batch, found) for batch, found in rows.items()]


def summary(batch: int, found: list[Figures]) -> Figures:
    """Medians of the runs and two ratios of them."""
    row = {name: median([each[name] for each in found]) for name in found[0]}
    row["rate_ratio"] = round(row["messages_per_s"] / row["bare_messages_per_s"], 2)
    own_us = row["sidecar_us"] + row["store_us"]
    row["cpu_ratio"] = round(own_us / max(row["bare_client_us"], 0.1), 2)
    for name in ("official", "logged"):
        if f"{name}_client_us" in row:
            row[f"{name}_cpu_ratio"] = round(own_us / max(row[f"{name}_client_us"], 0.1), 2)
    return {"batch": batch, **row}


def beside(
    folder: Path, runs: int, scale: float, only: str = "pulsar,rocketmq"
) -> dict[str, object]:
    """All that is asked for, one broker after the other."""
    found: dict[str, object] = {}
    for name, measured in (("pulsar", on_pulsar), ("rocketmq", on_rocketmq)):
        if name in only.split(","):
            load = machine()["load_1min_at_start"]
            found[name] = {"load_1min": load, "rows": measured(folder, runs, scale)}
    return found


def main() -> None:
    """Start brokers, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", default="pulsar,rocketmq")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    runs, scale = (1, 0.1) if given.quick else (given.runs, 1.0)
    folder = run_dir("beside")
    try:
        found = {"machine": machine(), **beside(folder, runs, scale, given.only)}
    finally:
        remove_run_dir(folder)
    text = json.dumps(found, indent=2)
    sys.stdout.write(text + "\n")
    if given.json is not None:
        given.json.write_text(text)


if __name__ == "__main__":
    main()
