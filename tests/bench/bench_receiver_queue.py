"""What `receiver_queue` costs and brings on Pulsar: sidecars with several sizes read one backlog.

    python -m tests.bench.bench_receiver_queue [--sizes 1,10,100,500,2000,10000] [--count 10000]
        [--runs 3] [--json FILE]

Each run is a new sidecar with an embedded store and a group of its own, on a topic of 4 partitions
with messages of 4 KiB, none in batches. First nobody receives for some seconds: how much memory it
takes then. Then 16 connections receive and settle, 32 messages a call. Memory is `VmHWM`; CPU is
that of a message, of all threads, those that have ended too.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

from ackd_torture.parts import EmbeddedStore, Sidecar, SidecarPlan
from tests.bench.load import Job
from tests.bench.measure import drive, machine, median
from tests.support.paths import remove_run_dir, run_dir
from tests.support.pulsar import Pulsar, bare
from tests.support.pulsar.part import PulsarAt

SIZES = "1,10,100,500,2000,10000"
PARTITIONS = 4
BODY = json.dumps({"at_us": 1, "pad": "x" * 4_000}).encode()
TOPIC = "queues"
IDLE_S = 5.0
Figures = dict[str, float]


class Queued(PulsarAt):
    """With so large a receiver queue."""

    def __init__(self, pulsar: Pulsar, size: int) -> None:
        super().__init__(pulsar)
        self.size = size

    def options(self) -> dict[str, str | int]:
        """How to connect."""
        return {**super().options(), "receiver_queue": self.size}


def fill(pulsar: Pulsar, count: int) -> None:
    """Messages in all partitions in turn."""
    with bare.client(pulsar.url) as made:
        producer = made.create_producer(
            f"persistent://public/default/{TOPIC}",
            block_if_queue_full=True,
            batching_enabled=False,
        )
        for _ in range(count):
            producer.send_async(BODY, None)
        producer.flush()


def all_cpu_us(pid: int) -> float:
    """CPU time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1e6 / os.sysconf("SC_CLK_TCK")


def peak_mib(pid: int) -> float:
    """The most memory that a process ever had resident."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"{pid} has no memory")


def measured(pulsar: Pulsar, size: int, count: int, folder: Path) -> Figures:
    """One run."""
    plan = SidecarPlan(
        broker=Queued(pulsar, size),
        store_url="embedded",
        topic=TOPIC,
        sub="bench",
        group=folder.name,
        subscription={"lease_ms": 60_000, "in_flight_max": 300_000},
    )
    sidecar = Sidecar(folder.name, plan, folder)
    try:
        sidecar.start()
        time.sleep(IDLE_S)  # what it draws ahead while nobody asks
        idle = peak_mib(sidecar.pid)
        pids = {
            "sidecar": sidecar.pid,
            "store": EmbeddedStore(sidecar).pid,
            "broker": pulsar.process.pid,
        }
        before = {name: all_cpu_us(pid) for name, pid in pids.items()}
        load = drive(Job(sidecar.port, "bench", 16, 32, "separate", count, wait_ms=5_000), 2)
        if load.done < count * 0.95:
            raise RuntimeError(f"only {load.done} of {count} messages were acked")
        cpu = {
            f"{name}_us": (all_cpu_us(pid) - before[name]) / load.done for name, pid in pids.items()
        }
        rate = load.done / load.seconds
        return {"messages_per_s": rate, **cpu, "idle_mib": idle, "peak_mib": peak_mib(sidecar.pid)}
    finally:
        sidecar.stop()


def main() -> None:
    """Start a broker, measure each size in turn, print medians."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--sizes", default=SIZES)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    sizes = [int(each) for each in given.sizes.split(",")]
    rows: dict[int, list[Figures]] = {size: [] for size in sizes}
    folder = run_dir("receiver-queue")
    try:
        with Pulsar() as pulsar:
            PulsarAt(pulsar).create_topic(TOPIC, PARTITIONS)
            fill(pulsar, given.count + 2_000)  # a run may take a batch too much
            for run in range(given.runs):
                for size in sizes:
                    own = folder / f"queue-{size}-{run}"
                    own.mkdir()
                    rows[size].append(measured(pulsar, size, given.count, own))
    finally:
        remove_run_dir(folder)
    table = {
        size: {name: round(median([each[name] for each in found]), 1) for name in found[0]}
        for size, found in rows.items()
    }
    text = json.dumps({"machine": machine(), "receiver_queue": table}, indent=2)
    sys.stdout.write(text + "\n")
    if given.json is not None:
        given.json.write_text(text)


if __name__ == "__main__":
    main()
