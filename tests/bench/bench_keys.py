"""A million keys in order: what they cost in memory and time, beside no order at all."""

import json
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer

from tests.bench.bench_http import sidecar_on
from tests.bench.bench_window import Talk
from tests.bench.measure import rss_mb
from tests.support.kafka import Kafka

KEYS = 1_000_000
SAMPLES = 10
BATCH = 1_000
PARTITIONS = 4
STILL_S = 60.0


def keys(kafka: Kafka, folder: Path, scale: float) -> dict[str, object]:
    """Every key twice, in random order; acked as fast as one plain client can."""
    count = int(KEYS * scale)
    found: dict[str, object] = {"keys": count, "messages": 2 * count}
    for ordering in ("none", "key"):
        topic = f"bench-keys-{ordering}"
        with sidecar_on(kafka, folder, topic, PARTITIONS, ordering=ordering) as sidecar:
            fill(kafka, topic, count)
            sidecar.start()
            talk = Talk(sidecar)
            memory_mb = [rss_mb(sidecar.pid)]
            started = time.monotonic()
            with draining(talk, 2 * count) as done:
                for part in range(1, SAMPLES + 1):
                    until(done, 2 * count * part // SAMPLES)
                    memory_mb.append(rss_mb(sidecar.pid))
            seconds = time.monotonic() - started
            found[ordering] = {
                "messages_per_s": round(2 * count / seconds),
                "memory_mb": [round(each) for each in memory_mb],
            }
    return found


def fill(kafka: Kafka, topic: str, count: int) -> None:
    """Two messages a key."""
    names = list(range(count)) * 2
    random.Random(7).shuffle(names)
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap, "linger.ms": 20, "log_level": 0}
        | {"queue.buffering.max.messages": 1_000_000}
    )
    for number, name in enumerate(names):
        if number % 5_000 == 0:
            producer.poll(0)
        while len(producer) > 900_000:
            producer.poll(0.1)
        producer.produce(topic, json.dumps({"n": number}).encode(), key=b"customer-%d" % name)
    if producer.flush(300):
        raise RuntimeError("not everything was stored")


@contextmanager
def draining(talk: Talk, count: int) -> Iterator[list[int]]:
    """A thread that acks `count` messages, joined call by joined call; counts in the list."""
    done = [0]

    def work() -> None:
        settle: list[dict[str, str]] = []
        while done[0] < count or settle:
            body: dict[str, object] = {"max": BATCH, "wait_ms": 1_000}
            if settle:
                body["settle"] = settle
            got = talk.post("/v1/subscriptions/bench/receive", body)["messages"]
            done[0] += len(settle)
            settle = [{"lease": each["lease"], "do": "ack"} for each in got]

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    yield done
    thread.join(STILL_S)


def until(done: list[int], count: int) -> None:
    """Wait for so many acks; an error when nothing moves."""
    seen, since = done[0], time.monotonic()
    while done[0] < count:
        time.sleep(0.05)
        if done[0] != seen:
            seen, since = done[0], time.monotonic()
        elif time.monotonic() - since > STILL_S:
            raise RuntimeError(f"nothing is acked any more after {seen}")
