"""Receive and settle over HTTP on a real Kafka: what a message costs, and how late things are.

Everything is durable (AOF everysec, 100 % acked). CPU time comes from the scheduler's counters of
the sidecar's and the store's processes; wall-clock rates depend on what else the machine does.
"""

import contextlib
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from confluent_kafka import Producer

from ackd_torture.child import Child, answers
from ackd_torture.parts import EmbeddedStore, Sidecar, SidecarPlan, Value
from ackd_torture.ports import free_port
from tests.bench.load import Job
from tests.bench.measure import cpu_us, drive, folder_bytes, median, percentile_ms
from tests.chaos.world import KafkaAt
from tests.support.kafka import Kafka

VALUE_BYTES = 150
STAMPED = {"message.timestamp.type": "LogAppendTime"}
TRACED = (sys.executable, "-m", "tests.bench.traced", "--config")
SHAPES = (("separate", 32), ("separate", 10), ("separate", 1), ("joined", 32), ("joined", 1))
# CPU time of the sidecar per message that the project aims at.
AIMS_US = {("separate", 32): 20.0, ("separate", 10): 35.0, ("joined", 1): 100.0}


@dataclass
class Row:
    """One shape on one number of partitions: a list entry for each run."""

    partitions: int
    shape: str
    batch: int
    messages_s: list[float] = field(default_factory=list)
    sidecar_us: list[float] = field(default_factory=list)
    store_us: list[float] = field(default_factory=list)
    aof_bytes: list[float] = field(default_factory=list)
    p50_ms: list[float] = field(default_factory=list)
    p99_ms: list[float] = field(default_factory=list)
    bad: int = 0

    def medians(self) -> dict[str, object]:
        """For the table and the JSON."""
        aim = AIMS_US.get((self.shape, self.batch))
        cost = median(self.sidecar_us)
        return {
            "partitions": self.partitions,
            "shape": self.shape,
            "batch": self.batch,
            "runs": len(self.sidecar_us),
            "messages_per_s": round(median(self.messages_s)),
            "sidecar_us": cost,
            "store_us": median(self.store_us, 2),
            "aof_bytes": median(self.aof_bytes),
            "p50_ms": median(self.p50_ms, 2),
            "p99_ms": median(self.p99_ms, 2),
            "bad_answers": self.bad,
            "aim_us": aim,
            "within_aim": None if aim is None else cost <= aim,
        }


def produce(kafka: Kafka, topic: str, count: int, pad_bytes: int = VALUE_BYTES) -> None:
    """Fill a topic with JSON values of `pad_bytes` and a little more."""
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap, "linger.ms": 20, "log_level": 0}
        | {"queue.buffering.max.messages": 1_000_000}
    )
    pad = "x" * pad_bytes
    for number in range(count):
        producer.produce(topic, json.dumps({"at_us": number, "pad": pad}).encode())
        if number % 5000 == 0:
            producer.poll(0)
    if producer.flush(120):
        raise RuntimeError("not everything was stored")


@contextlib.contextmanager
def sidecar_on(
    kafka: Kafka, folder: Path, topic: str, partitions: int, **subscription: Value
) -> Iterator[Sidecar]:
    """A sidecar with its embedded store on a new topic. Not started yet."""
    kafka.create_topic(topic, partitions=partitions)
    sidecar = Sidecar(topic, plan_of(kafka, topic, **subscription), folder)
    try:
        yield sidecar
    finally:
        sidecar.stop()


@contextlib.contextmanager
def traced_on(kafka: Kafka, folder: Path, topic: str, partitions: int) -> Iterator[Sidecar]:
    """The same with a stopwatch in it (`traced`), and the broker's clock in the records."""
    kafka.create_topic(topic, partitions=partitions, config=STAMPED)
    plan = replace(plan_of(kafka, topic), command=TRACED)
    sidecar = Sidecar(topic, plan, folder)
    try:
        yield sidecar
    finally:
        sidecar.stop()


def plan_of(kafka: Kafka, topic: str, **subscription: Value) -> SidecarPlan:
    """How sidecars are measured."""
    return SidecarPlan(
        broker=KafkaAt(kafka),
        store_url="embedded",
        topic=topic,
        sub="bench",
        group=f"{topic}-group",
        subscription={"lease_ms": 60_000, "in_flight_max": 300_000, **subscription},
    )


def throughput(kafka: Kafka, folder: Path, partitions: int, runs: int, scale: float) -> list[Row]:
    """All shapes on one topic; each run takes its messages from a backlog that is large enough."""
    rows = [Row(partitions, shape, batch) for shape, batch in SHAPES]
    counts = {32: round(60_000 * scale), 10: round(40_000 * scale), 1: round(12_000 * scale)}
    topic = f"bench-{partitions}"
    with sidecar_on(kafka, folder, topic, partitions) as sidecar:
        # A run may take a batch too much for each connection.
        produce(kafka, topic, sum((counts[row.batch] + 1000) * (runs + 1) for row in rows))
        sidecar.start()
        warm = Job(sidecar.port, "bench", 16, 32, "separate", round(5_000 * scale), wait_ms=5_000)
        drive(warm, 2)
        for _ in range(runs):
            for row in rows:
                one_run(sidecar, row, counts[row.batch])
    return rows


def one_run(sidecar: Sidecar, row: Row, count: int) -> None:
    """Measure one shape once."""
    store = EmbeddedStore(sidecar).pid
    aof = sidecar.folder / "state"
    before = cpu_us(sidecar.pid), cpu_us(store), folder_bytes(aof)
    job = Job(sidecar.port, "bench", 16, row.batch, row.shape, count, wait_ms=2_000)
    load = drive(job, 2)
    after = cpu_us(sidecar.pid), cpu_us(store), folder_bytes(aof)
    if load.done < count * 0.95:
        raise RuntimeError(f"only {load.done} of {count} messages were acked")
    row.messages_s.append(load.done / load.seconds)
    row.sidecar_us.append((after[0] - before[0]) / load.done)
    row.store_us.append((after[1] - before[1]) / load.done)
    row.aof_bytes.append((after[2] - before[2]) / load.done)
    row.p50_ms.append(percentile_ms(load.took_us, 0.5))
    row.p99_ms.append(percentile_ms(load.took_us, 0.99))
    row.bad += load.bad


def baseline(folder: Path, runs: int, scale: float) -> dict[str, float]:
    """CPU us per message of the bare server, by shape."""
    port = free_port()
    argv = [sys.executable, "-m", "tests.bench.baseline", str(port)]
    server = Child("baseline", argv, folder / "baseline.log")
    found: dict[str, list[float]] = {}
    try:
        server.start()
        server.wait_until(lambda: answers(port), "the baseline listens", 20)
        for run in range(runs + 1):
            for shape, batch in SHAPES:
                count = round({32: 60_000, 10: 30_000, 1: 10_000}[batch] * scale)
                before = cpu_us(server.pid)
                load = drive(Job(port, "bench", 16, batch, shape, count), 2)
                if run:  # the first one warms up
                    cost = (cpu_us(server.pid) - before) / load.done
                    found.setdefault(f"{shape} {batch}", []).append(cost)
    finally:
        server.stop()
    return {name: median(values) for name, values in found.items()}


def latency(
    kafka: Kafka, folder: Path, rate_per_s: int, seconds: float, *, traced: bool = False
) -> dict[str, object]:
    """Publish-to-lease: how old a message is when a waiting long poll gets it.

    `traced`: and where it was for how long; the stopwatch itself costs time.
    """
    topic = f"bench-latency{'-traced' if traced else ''}"
    with (traced_on if traced else sidecar_on)(kafka, folder, topic, 8) as sidecar:
        produce(kafka, topic, 2_000)
        sidecar.start()
        drive(Job(sidecar.port, "bench", 16, 32, "joined", 2_000, wait_ms=3_000), 1)
        argv = [sys.executable, "-m", "tests.bench.pace", kafka.bootstrap, topic]
        pace = Child("pace", [*argv, str(rate_per_s), str(seconds + 4)], folder / "pace.log")
        before = cpu_us(sidecar.pid)
        pace.start()
        try:
            time.sleep(1.0)
            job = Job(sidecar.port, "bench", 16, 32, "joined", 10**9, seconds, 2_000, latency=True)
            load = drive(job, 1)
        finally:
            pace.stop()
        found: dict[str, object] = {
            "rate_per_s": rate_per_s,
            "messages": len(load.age_us),
            "p50_ms": percentile_ms(load.age_us, 0.5),
            "p99_ms": percentile_ms(load.age_us, 0.99),
            "max_ms": percentile_ms(load.age_us, 1.0),
            "sidecar_us": round((cpu_us(sidecar.pid) - before) / max(1, load.done), 1),
            "bad_answers": load.bad,
        }
        if traced:
            sidecar.terminate()
            found["split_ms"] = json.loads(sidecar.config.with_suffix(".split.json").read_text())
        return found
