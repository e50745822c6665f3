"""The data of the store and a sidecar go in one moment: of what was acked at the dead one, what its
last commit did not have comes again.
"""

import random
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ackd_torture.parts import Sidecar
from tests.chaos.judged import told
from tests.chaos.world import Http, KafkaAt, produce, world
from tests.support.wait import wait_until

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.slow,
    pytest.mark.alone,
    pytest.mark.timeout(480),
]

PARTITIONS = 4
MESSAGES = 24_000
FAULT_AT = 14_000
WORK_S = 0.07
"""How long a worker works on its messages: they go at some 2,000 a second."""
HELD = 0.005
"""The part of the messages with which applications are busy for long: they hold each partition."""
KEPT_S = 1.5
"""What was acked this long before the fault must not come again: commits are a second apart."""
QUIET_S = 5.0
COMMITS_A_SECOND = 10
"""Most commits of one sidecar, whatever it owns and however much finishes."""
COMMITS = "ackd_commits_total{"


@dataclass
class Acks:
    """`acked`: when each message was answered `acked`. `again`: ids that came after that."""

    acked: dict[str, float] = field(default_factory=dict)
    came: set[str] = field(default_factory=set)
    again: set[str] = field(default_factory=set)
    _over: threading.Event = field(default_factory=threading.Event)

    def worker(self, sidecar: Sidecar, seed: int) -> None:
        client, draw = Http(sidecar, timeout_s=5), random.Random(seed)
        while not self._over.is_set():
            found = client.receive(50, 300, lease_ms=600_000)
            for each in found:
                self.came.add(each["id"])
                if each["id"] in self.acked:
                    self.again.add(each["id"])
            leases = {e["lease"]: e["id"] for e in found if draw.random() >= HELD}
            items = [{"lease": lease, "do": "ack"} for lease in leases]
            status, answer = client.post("/v1/settle", {"items": items}) if items else (0, None)
            now = time.monotonic()
            if status != 200 or answer is None:
                time.sleep(0.02)
                continue
            for result, name in zip(answer["results"], leases.values(), strict=True):
                if result["status"] == "acked":
                    self.acked.setdefault(name, now)
            time.sleep(WORK_S)
        client.close()

    @contextmanager
    def workers(self, sidecars: Sequence[Sidecar]) -> Iterator[None]:
        self._over.clear()
        with ThreadPoolExecutor(len(sidecars)) as pool:
            done = [pool.submit(self.worker, each, seed) for seed, each in enumerate(sidecars)]
            try:
                yield
            finally:
                self._over.set()
        for each in done:
            each.result()


def _owned(sidecar: Sidecar, topic: str) -> int:
    """How many partitions of the topic the sidecar owns."""
    lines = told(sidecar, "/metrics").splitlines()
    return sum(
        each.startswith("ackd_watermark_offset{") and f'topic="{topic}"' in each for each in lines
    )


def _commits(sidecar: Sidecar) -> float:
    """How many commits the broker has taken from the sidecar."""
    lines = told(sidecar, "/metrics").splitlines()
    return sum(float(each.rsplit(" ", 1)[1]) for each in lines if each.startswith(COMMITS))


def test_acks_of_a_second_before_survive_the_loss_of_store_and_owner(
    at_kafka: KafkaAt, folder: Path
) -> None:
    with world(at_kafka, folder, partitions=PARTITIONS) as deployment:
        produce(at_kafka.kafka, deployment.topic, MESSAGES, partitions=PARTITIONS)
        sidecars = [deployment.sidecar(name) for name in ("s1", "s2")]
        work = Acks()
        with work.workers(sidecars * 2):
            wait_until(lambda: len(work.acked) > FAULT_AT, "work is under way", timeout_s=60)
            owned = _owned(sidecars[0], deployment.topic)
            begun_s = min(work.acked.values())
            commits = [_commits(each) for each in sidecars]
            worked_s = time.monotonic() - begun_s
            sidecars[0].kill()
            assert deployment.store is not None
            assert deployment.store.ask("FLUSHALL").startswith(b"+OK")
            fault_s = time.monotonic()
        before = dict(work.acked)
        sidecars[0].start()
        with work.workers(sidecars * 2):
            wait_until(lambda: len(work.came) == MESSAGES, "I1: all have come", timeout_s=180)
            time.sleep(QUIET_S)
        again = work.again & before.keys()
        ages = sorted((fault_s - before[each] for each in again), reverse=True)
        print(  # noqa: T201
            f"{owned} partitions of {PARTITIONS} lost their owner; acked {len(before)} in "
            f"{fault_s - min(before.values()):.1f} s, of these again {len(again)}, the oldest "
            f"{ages[0] if ages else 0:.2f} s before the fault; commits of each: {commits} in "
            f"{worked_s:.1f} s"
        )
        assert all(0 < each <= COMMITS_A_SECOND * (worked_s + 1) for each in commits)
        assert owned
        assert not [age for age in ages if age > KEPT_S]
