"""The outbox under kill -9: nothing accepted is lost, order per key, doubles are told (I1, R20)."""

import contextlib
import http.client
import json
import os
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from ackd_torture.parts import Sidecar
from tests.chaos.world import KafkaAt, World, ready, world
from tests.support.wait import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(480)]

PARTITIONS = 3
SOON = 20
SOON_MS, LATER_MS = 1_000, 20_000


def call(
    sidecar: Sidecar, method: str, path: str, body: bytes = b"", **headers: str
) -> tuple[int, Any]:
    """(status, answer); status 0 when there was none."""
    connection = http.client.HTTPConnection("127.0.0.1", sidecar.port, timeout=60)
    try:
        connection.request(method, path, body or None, headers)
        answer = connection.getresponse()
        raw = answer.read()
        return answer.status, json.loads(raw) if raw else None
    except (OSError, http.client.HTTPException):
        return 0, None
    finally:
        connection.close()


@dataclass
class Writer:
    """Publishes the numbers of one key, one after the other, at whichever sidecar answers."""

    deployment: World
    key: str
    count: int
    delay_ms: int = 0
    ids: dict[int, str] = field(default_factory=dict)

    def publish(self, number: int, sidecar: Sidecar) -> int:
        """One try; the status."""
        headers = {
            "Prefer": "respond-async",
            "Ackd-Key": self.key,
            "Idempotency-Key": f"{self.key}-{number}",
        }
        path = f"/v1/topics/{self.deployment.topic}/messages"
        value = f"{self.key}:{number}".encode()
        status, answer = call(sidecar, "POST", path, value, **headers)
        if status == 202:
            self.ids[number] = answer["status_url"]
        return status

    def run(self) -> None:
        """All of them; each is tried until it is accepted."""
        sidecars = list(self.deployment.sidecars.values())
        end = time.monotonic() + 300
        for number in range(self.count):
            turn = number
            while self.publish(number, sidecars[turn % len(sidecars)]) != 202:
                assert time.monotonic() < end, f"{self.key}:{number} is not accepted"
                turn += 1
                time.sleep(0.05)
            time.sleep(0.02)


def log_of(kafka: KafkaAt, topic: str) -> list[str]:
    """All values on the topic, each partition in its order."""
    consumer = Consumer({"bootstrap.servers": kafka.kafka.bootstrap, "group.id": "none"})
    found: list[str] = []
    try:
        for partition in range(PARTITIONS):
            place = TopicPartition(topic, partition)
            low, high = consumer.get_watermark_offsets(place, timeout=60)
            consumer.assign([TopicPartition(topic, partition, low)])
            seen = low
            end = time.monotonic() + 60
            while seen < high and time.monotonic() < end:
                for message in consumer.consume(1000, timeout=1.0):
                    assert message.error() is None
                    value, seen = message.value() or b"", (message.offset() or 0) + 1
                    found.append(value.decode())
    finally:
        consumer.close()
    return found


def judge(kafka: KafkaAt, deployment: World, writers: list[Writer], sidecar: Sidecar) -> None:
    """Everything is there, in order per key; what is there twice says so."""
    wanted = {f"{w.key}:{n}": url for w in writers for n, url in w.ids.items()}
    assert len(set(wanted.values())) == len(wanted), "each has an id of its own"

    def all_there() -> bool:
        return set(wanted) <= set(log_of(kafka, deployment.topic))

    wait_until(all_there, "everything to be on the topic", timeout_s=60, interval_s=0.5)
    log = log_of(kafka, deployment.topic)
    for writer in writers:
        firsts = list(dict.fromkeys(v for v in log if v.startswith(f"{writer.key}:")))
        assert firsts == [f"{writer.key}:{n}" for n in range(writer.count)], "order of the key"
    twice = {value for value in log if log.count(value) > 1}
    for value in twice:
        status, answer = call(sidecar, "GET", wanted[value])
        assert status == 200, answer
        assert answer["in_doubt"], f"{value} is there twice and nobody says so"


@contextlib.contextmanager
def writing(writers: list[Writer]) -> Iterator[None]:
    """Writers in threads; a failure of one is the test's."""
    failures: list[BaseException] = []

    def run(writer: Writer) -> None:
        try:
            writer.run()
        except BaseException as error:  # noqa: BLE001 - told below
            failures.append(error)

    threads = [threading.Thread(target=run, args=(each,)) for each in writers]
    for each in threads:
        each.start()
    try:
        yield
    finally:
        for each in threads:
            each.join()
    assert not failures, failures


def test_kills_of_sidecars_and_store_lose_nothing(at_kafka: KafkaAt, folder: Path) -> None:
    seed = int(os.environ.get("CHAOS_SEED", "20"))
    chance = random.Random(seed)
    with world(at_kafka, folder, partitions=PARTITIONS) as deployment:
        one, two = deployment.sidecar("s1"), deployment.sidecar("s2")
        writers = [Writer(deployment, f"k{n}", 80) for n in range(6)]
        store = deployment.store
        assert store is not None
        with writing(writers):
            for victim in (one, two, store, one):
                time.sleep(chance.uniform(0.4, 1.2))
                victim.kill()
                time.sleep(chance.uniform(0.0, 0.5))
                victim.start()
        try:
            judge(at_kafka, deployment, writers, one)
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise


def test_another_sidecar_takes_over_a_dead_ones_outbox(at_kafka: KafkaAt, folder: Path) -> None:
    """The one that accepted and was sending never comes back; within seconds the other sends."""
    with world(at_kafka, folder, partitions=PARTITIONS) as deployment:
        one, two = deployment.sidecar("s1"), deployment.sidecar("s2")
        path = f"/v1/topics/{deployment.topic}/messages:batch"
        body = {
            "messages": [
                {
                    "key": f"k{n % 5}",
                    "text": f"v{n}",
                    "delay_ms": n + (SOON_MS if n < SOON else LATER_MS),
                }
                for n in range(300)
            ]
        }
        json_type = {"content-type": "application/json"}
        status, answer = call(one, "POST", path, json.dumps(body).encode(), **json_type)
        assert status == 202, answer
        assert {each["status"] for each in answer["results"]} == {"accepted"}
        wait_until(lambda: len(log_of(at_kafka, deployment.topic)) >= SOON, "the first ones")
        one.kill()

        def all_there() -> bool:
            return len(set(log_of(at_kafka, deployment.topic))) == 300

        assert not all_there(), "it was killed before the others were due"
        wait_until(all_there, "the other one to send the rest", timeout_s=100, interval_s=0.2)
        log = log_of(at_kafka, deployment.topic)
        for key in range(5):
            seen = list(dict.fromkeys(int(v[1:]) for v in log if int(v[1:]) % 5 == key))
            assert seen == sorted(seen)
        status, answer = call(two, "GET", "/v1/outbox")
        assert answer["outboxes"][0]["sender"] == "s2", answer


def test_while_the_broker_is_away_messages_wait_in_the_store(
    at_kafka: KafkaAt, folder: Path
) -> None:
    """`when_away`: accepted without being asked for, over a kill of the sidecar, in order."""
    away = {"publish": {"outbox": "when_away"}}
    with world(at_kafka, folder, partitions=PARTITIONS, sections=away) as deployment:
        one = deployment.sidecar("s1")
        path = f"/v1/topics/{deployment.topic}/messages"
        status, _ = call(one, "POST", path, b"k0:0", **{"Ackd-Key": "k0"})
        assert status == 201, "it is there"
        at_kafka.kill()
        wait_until(lambda: "connection" in ready(one), "the sidecar to notice", timeout_s=60)
        for number in range(1, 21):
            status, answer = call(one, "POST", path, b"k0:%d" % number, **{"Ackd-Key": "k0"})
            assert status == 202, answer
        one.kill()
        one.start()
        for number in range(21, 31):
            status, answer = call(one, "POST", path, b"k0:%d" % number, **{"Ackd-Key": "k0"})
            assert status == 202, answer
        at_kafka.start()
        wanted = [f"k0:{n}" for n in range(31)]

        def all_there() -> bool:
            return set(wanted) <= set(log_of(at_kafka, deployment.topic))

        try:
            # A broker that has just started does not lead its partitions yet.
            what, starting = "everything to be on the topic", (KafkaException,)
            wait_until(all_there, what, timeout_s=120, interval_s=0.5, ignoring=starting)
        except AssertionError as error:
            _, found = call(one, "GET", "/v1/outbox")
            error.add_note(f"{found} {ready(one)}\n{one.tail()}")
            raise
        assert list(dict.fromkeys(log_of(at_kafka, deployment.topic))) == wanted

        def at_once() -> bool:
            return call(one, "POST", path, b"k1:0", **{"Ackd-Key": "k1"})[0] == 201

        wait_until(at_once, "publishing at once again")
