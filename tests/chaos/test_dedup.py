"""Repeats by business key under kill -9: a repeat may slip through, a loss may not (R18)."""

import json
import os
import random
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from ackd_torture.parts import Sidecar
from tests.chaos.world import Http, KafkaAt, world
from tests.support.wait import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(480)]

KEYS = 120
COPIES = 3
PARTITIONS = 2
SEED = int(os.environ.get("CHAOS_SEED", "18"))


class Workers:
    """Applications that fail in all the ways there are, and what they know to be acked."""

    def __init__(self, sidecars: list[Sidecar], seed: int) -> None:
        self.acked: dict[str, int] = {}
        self.over = threading.Event()
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._work, args=(each, random.Random(seed + at)))
            for at, each in enumerate(sidecars)
        ]
        for thread in self._threads:
            thread.start()

    def _work(self, sidecar: Sidecar, chance: random.Random) -> None:
        client = Http(sidecar, timeout_s=5.0)
        while not self.over.is_set():
            for message in client.receive(most=5, wait_ms=200, lease_ms=1_500):
                self._handle(client, message, chance)

    def _handle(self, client: Http, message: dict[str, Any], chance: random.Random) -> None:
        fate = chance.random()
        if fate < 0.15:
            return  # it died: the lease runs out
        do = "retry" if fate < 0.3 else "ack"
        item = {"lease": message["lease"], "do": do}
        for _ in range(100):
            status, answer = client.post("/v1/settle", {"items": [item]})
            if status == 200:
                if answer["results"][0]["status"] in {"acked", "already_acked"}:
                    with self._lock:
                        order = message["json"]["order"]
                        self.acked[order] = self.acked.get(order, 0) + 1
                return
            time.sleep(0.1)

    def stop(self) -> None:
        """Wait for them."""
        self.over.set()
        for thread in self._threads:
            thread.join()


def publish(kafka: KafkaAt, topic: str, chance: random.Random) -> None:
    """Each order several times, anywhere."""
    orders = [f"o{n}" for n in range(KEYS)] * COPIES
    chance.shuffle(orders)
    producer = Producer({"bootstrap.servers": kafka.kafka.bootstrap, "log_level": 0})
    for number, order in enumerate(orders):
        value = json.dumps({"order": order, "n": number}).encode()
        producer.produce(topic, value, partition=chance.randrange(PARTITIONS))
        producer.poll(0)
    assert producer.flush(60) == 0


def test_every_order_is_acked_by_somebody(at_kafka: KafkaAt, folder: Path) -> None:
    seed = SEED
    chance = random.Random(seed)
    dedup: dict[str, dict[str, str | int | bool | list[int] | list[str]]] = {
        "subscriptions.orders.dedup": {"key": "pointer:/order", "window_ms": 600_000}
    }
    with world(at_kafka, folder, partitions=PARTITIONS, sections=dedup) as deployment:
        one, two = deployment.sidecar("s1"), deployment.sidecar("s2")
        publish(at_kafka, deployment.topic, chance)
        workers = Workers([one, two], seed)
        try:
            for victim in (one, two, deployment.store, one):
                assert victim is not None
                time.sleep(chance.uniform(0.3, 1.0))
                victim.kill()
                time.sleep(chance.uniform(0.0, 0.5))
                victim.start()

            def finished() -> bool:
                rows: dict[int, dict[str, Any]] = {}
                for each in (one, two):
                    for row in lag(each):
                        if row["watermark"] >= 0:
                            rows[row["partition"]] = row
                ends = [row["watermark"] == row["end"] for row in rows.values()]
                return len(ends) >= PARTITIONS and all(ends)

            wait_until(finished, f"every message to be finished (seed {seed})", timeout_s=240)
        finally:
            workers.stop()
        missing = {f"o{n}" for n in range(KEYS)} - set(workers.acked)
        assert not missing, f"settled without anybody's ack (seed {seed})"
        acks = sum(workers.acked.values())
        assert acks <= KEYS * COPIES * 3 // 4, f"few repeats were found (seed {seed})"


def lag(sidecar: Sidecar) -> list[dict[str, Any]]:
    """Progress of the partitions of the topic."""
    address = f"{sidecar.url}/v1/subscriptions/{sidecar.plan.sub}/lag"
    try:
        with urllib.request.urlopen(address, timeout=60) as answer:  # noqa: S310 - our own
            rows: list[dict[str, Any]] = json.loads(answer.read())["partitions"]
    except (OSError, ValueError):
        return []
    return [row for row in rows if row["topic"] == sidecar.plan.topic]
