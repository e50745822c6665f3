"""What traces cost: the same load without them, with 1 % and with all, in turn, in one run."""

import json
import random
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from confluent_kafka import Producer

from ackd_torture.parts import Sidecar, Value
from tests.bench.bench_http import plan_of
from tests.bench.load import Job
from tests.bench.measure import cpu_us, drive, folder_bytes, median
from tests.support.kafka import Kafka
from tests.support.otlp import spans

MODES: dict[str, dict[str, Value]] = {
    "off": {},
    "1 %": {"files": True, "sample": 0.01},
    "100 %": {"files": True},
}
BATCHES = {32: 40_000, 1: 8_000}
PARTITIONS = 8


def traces(kafka: Kafka, folder: Path, runs: int, scale: float) -> list[dict[str, object]]:
    """CPU us of the sidecar per message by mode and batch, beside off; bytes of the files."""
    counts = {batch: round(count * scale) for batch, count in BATCHES.items()}
    costs: dict[tuple[str, int], list[float]] = {}
    rates: dict[tuple[str, int], list[float]] = {}
    made: dict[str, int] = dict.fromkeys(MODES, 0)
    with ExitStack() as stack:
        sidecars = {}
        for number, (mode, settings) in enumerate(MODES.items()):
            topic = f"bench-traces-{number}"
            kafka.create_topic(topic, partitions=PARTITIONS)
            _produce(kafka, topic, sum((count + 1_000) * (runs + 1) for count in counts.values()))
            plan = replace(plan_of(kafka, topic), sections={"traces": settings} if settings else {})
            sidecars[mode] = Sidecar(topic, plan, folder)
            stack.callback(sidecars[mode].stop)
            sidecars[mode].start()
        for run in range(runs + 1):
            for batch, count in counts.items():
                for mode in random.Random(run).sample(list(MODES), len(MODES)):
                    cost, rate, done = _one(sidecars[mode], batch, count)
                    made[mode] += done
                    if run:  # the first one warms up
                        costs.setdefault((mode, batch), []).append(cost)
                        rates.setdefault((mode, batch), []).append(rate)
        for each in sidecars.values():
            each.terminate()
        sizes = {mode: folder_bytes(s.folder / "state" / "traces") for mode, s in sidecars.items()}
        every = spans(sidecars["100 %"].folder / "state" / "traces")
    acks = sum(each["ackd.event"] == "ack" for each in every)
    found: list[dict[str, object]] = [
        {
            "batch": batch,
            "traces": mode,
            "messages_per_s": round(median(rates[mode, batch])),
            "sidecar_us": median(costs[mode, batch]),
            "more_us": round(median(costs[mode, batch]) - median(costs["off", batch]), 1),
            "more_least_us": round(min(costs[mode, batch]) - min(costs["off", batch]), 1),
            "beside_off": round(median(costs[mode, batch]) / median(costs["off", batch]), 2),
            "file_bytes": round(sizes[mode] / made[mode], 1),
        }
        for batch in counts
        for mode in MODES
    ]
    found.append({"acked with all": made["100 %"], "ack spans": acks, "spans": len(every)})
    return found


def _one(sidecar: Sidecar, batch: int, count: int) -> tuple[float, float, int]:
    """CPU us a message, messages a second, messages."""
    before = cpu_us(sidecar.pid)
    load = drive(Job(sidecar.port, "bench", 16, batch, "separate", count, wait_ms=2_000), 2)
    time.sleep(1.5)  # the last flush belongs to it
    if load.done < count * 0.95:
        raise RuntimeError(f"only {load.done} of {count} messages were acked")
    return (cpu_us(sidecar.pid) - before) / load.done, load.done / load.seconds, load.done


def _produce(kafka: Kafka, topic: str, count: int) -> None:
    """Messages with a publisher's context each, as instrumented clients send them."""
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap, "linger.ms": 20, "log_level": 0}
        | {"queue.buffering.max.messages": 1_000_000}
    )
    rng = random.Random(2101)
    for number in range(count):
        parent = f"00-{rng.getrandbits(128):032x}-{rng.getrandbits(64):016x}-01"
        value = json.dumps({"at_us": number, "pad": "x" * 150}).encode()
        producer.produce(topic, value, headers={"traceparent": parent})
        if number % 5000 == 0:
            producer.poll(0)
    if producer.flush(120):
        raise RuntimeError("not everything was stored")
