"""What it costs to publish through the outbox, how late delays are, and what dedup costs."""

import http.client
import json
import random
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from ackd_torture.parts import EmbeddedStore, Sidecar
from tests.bench.bench_growth import BATCH, Cost, collect, settle
from tests.bench.bench_http import plan_of, produce, sidecar_on
from tests.bench.bench_window import Talk
from tests.bench.measure import percentile_ms, rss_mb
from tests.support.kafka import Kafka

STEPS = (1_000, 10_000, 100_000)
SAMPLE = 1_000
"""So many fall due within one second, at random places of it."""
VALUE = "x" * 1024
HOUR_MS = 3_600_000
AHEAD_MS = 3_000
LIMIT_S = 120.0


class Publishing:
    """One connection that publishes batches."""

    def __init__(self, sidecar: Sidecar, topic: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", sidecar.port, timeout=60)
        self._path = f"/v1/topics/{topic}/messages:batch"

    def batch(self, messages: list[dict[str, object]], *, later: bool = True) -> Any:
        """Publish; the results."""
        headers = {"content-type": "application/json"}
        if later:
            headers["prefer"] = "respond-async"
        self._connection.request("POST", self._path, json.dumps({"messages": messages}), headers)
        answer = self._connection.getresponse()
        raw = answer.read()
        if answer.status != (202 if later else 200):
            raise RuntimeError(f"{answer.status} {raw[:300]!r}")
        return json.loads(raw)["results"]


def outbox(kafka: Kafka, folder: Path) -> dict[str, object]:
    """Publishing at once and through the outbox; delays with many waiting; dedup."""
    topic = "bench-outbox"
    kafka.create_topic(topic, partitions=1)
    more = {"publish": {"outbox_messages_max": 1_000_000, "outbox_bytes_max": 1 << 30}}
    plan = replace(plan_of(kafka, topic), sections=more)
    sidecar = Sidecar(topic, plan, folder)
    try:
        sidecar.start()
        return {
            "publish": _publish(kafka, sidecar, topic),
            "delays": _delays(kafka, sidecar, topic),
            "dedup": [_dedup(kafka, folder, on=on) for on in (False, True)],
        }
    finally:
        sidecar.stop()


def _publish(kafka: Kafka, sidecar: Sidecar, topic: str) -> dict[str, object]:
    """Batches of 100 with 500 keys, of 1 KiB each."""
    found: dict[str, object] = {}
    talk, count = Publishing(sidecar, topic), 10_000
    for later in (False, True, False, True):
        cost, end = Cost(sidecar.pid, EmbeddedStore(sidecar).pid), _end(kafka, topic)
        begin = time.monotonic()
        for at in range(0, count, BATCH):
            some: list[dict[str, object]] = [
                {"key": f"k{n % 500}", "text": VALUE} for n in range(at, at + BATCH)
            ]
            talk.batch(some, later=later)
        accepted_s = time.monotonic() - begin
        _until(kafka, topic, end + count)
        stored_s = time.monotonic() - begin
        found["outbox" if later else "at once"] = cost.each(count) | {
            "accepted_per_s": round(count / accepted_s),
            "stored_per_s": round(count / stored_s),
        }
    return found


def _delays(kafka: Kafka, sidecar: Sidecar, topic: str) -> list[dict[str, object]]:
    """1,000 due within one second, with ever more others that wait for an hour."""
    talk, chance, waiting = Publishing(sidecar, topic), random.Random(1), 0
    store = EmbeddedStore(sidecar).pid
    rows: list[dict[str, object]] = []
    empty_mb, idle_mb = rss_mb(store), rss_mb(sidecar.pid)
    for step in STEPS:
        cost = Cost(sidecar.pid, store)
        for _ in range(waiting, step, BATCH):
            talk.batch([{"text": VALUE, "delay_ms": HOUR_MS + chance.randrange(HOUR_MS)}] * BATCH)
        row: dict[str, object] = {"waiting": step, "accept": cost.each(step - waiting)}
        waiting, first = step, _end(kafka, topic)
        row["store_mb"] = round(rss_mb(store) - empty_mb, 1)
        row["sidecar_mb"] = round(rss_mb(sidecar.pid) - idle_mb, 1)
        due: dict[str, int] = {}
        cost = Cost(sidecar.pid, store)
        for at in range(0, SAMPLE, BATCH):
            names = [f"{step}-{n}" for n in range(at, at + BATCH)]
            results = talk.batch(
                [
                    {"text": f"{name} {VALUE}", "delay_ms": AHEAD_MS + chance.randrange(1_000)}
                    for name in names
                ]
            )
            due.update((n, each["due_ms"]) for n, each in zip(names, results, strict=True))
        _until(kafka, topic, first + SAMPLE)
        row["accept and send"] = cost.each(SAMPLE)
        late = [stored - due[name] for name, stored in _stored(kafka, topic, first)]
        row["late_p50_ms"] = percentile_ms([ms * 1000 for ms in late], 0.5)
        row["late_p99_ms"] = percentile_ms([ms * 1000 for ms in late], 0.99)
        row["late_max_ms"] = max(late)
        rows.append(row)
    return rows


def _dedup(kafka: Kafka, folder: Path, *, on: bool) -> dict[str, object]:
    """Receive and ack in batches of 100; none is a repeat."""
    topic, count = f"bench-dedup-{'on' if on else 'off'}", 20_000
    with sidecar_on(kafka, folder, topic, 1) as sidecar:
        if on:
            dedup = {"subscriptions.bench.dedup": {"key": "pointer:/at_us"}}
            sidecar.plan = replace(sidecar.plan, sections=dedup)
        produce(kafka, topic, count)
        sidecar.start()
        talk, store = Talk(sidecar), EmbeddedStore(sidecar).pid
        settle(talk, collect(talk, 2_000), {"do": "ack"})
        before_mb, cost, settled = rss_mb(store), Cost(sidecar.pid, store), 0
        while settled < count - 2_000:
            leases = collect(talk, BATCH)
            settle(talk, leases, {"do": "ack"})
            settled += len(leases)
        return {
            "dedup": on,
            "store_mb": round(rss_mb(store) - before_mb, 1),
            "each": cost.each(settled),
        }


def _end(kafka: Kafka, topic: str) -> int:
    """The end of its log."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "bench"})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)[1])
    finally:
        consumer.close()


def _until(kafka: Kafka, topic: str, end: int) -> None:
    limit = time.monotonic() + LIMIT_S
    while _end(kafka, topic) < end:
        if time.monotonic() > limit:
            raise RuntimeError(f"the log does not reach {end}")
        time.sleep(0.05)


def _stored(kafka: Kafka, topic: str, first: int) -> list[tuple[str, int]]:
    """Names and times of what was stored from `first` on, as the producer stamped it."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "bench"})
    found: list[tuple[str, int]] = []
    try:
        consumer.assign([TopicPartition(topic, 0, first)])
        while len(found) < SAMPLE:
            for message in consumer.consume(SAMPLE, timeout=5.0):
                name = (message.value() or b"").split(b" ")[0].decode()
                found.append((name, int(message.timestamp()[1])))
    finally:
        consumer.close()
    return found
