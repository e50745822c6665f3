"""A thousand keys in order, whatever is killed and whoever owns the partitions (I6, R19).

Sidecars and consumers are killed with -9, sidecars are stopped and started (two rebalances each)
and frozen; messages are retried, given back, forgotten, acked too late and given up; keys that hang
are blocked after a second. The judge reads the clients' histories only.
"""

import asyncio
import os
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from ackd.ports.own_topics import retry_topic
from ackd_torture.checker import BROKEN, Verdict
from ackd_torture.child import BrokerPart, Part
from ackd_torture.nemesis import Nemesis, Temper
from ackd_torture.parts import LocalQueue, Sidecar, SidecarPlan, Value
from ackd_torture.run import Course
from ackd_torture.workload import Mood, WorkloadPlan
from tests.chaos.judged import assert_kept, judge, setup_for
from tests.chaos.world import KafkaAt

pytestmark = [pytest.mark.slow, pytest.mark.timeout(480)]

TOPIC = f"order-{random.randrange(10**9)}"
SEED = int(os.environ.get("CHAOS_SEED", "1906"))
KEYS = 1_000
MOOD = Mood(retry=0.05, release=0.02, forget=0.02, overdue=0.02, extend=0.04, dead=0.02)
CALM_S = 8.0
"""Longer than a retry copy waits before it asks for an origin record again whose lease was live."""


def ordered(plan: SidecarPlan) -> SidecarPlan:
    """In the order of keys; what hangs for a second is sent back."""
    settings: dict[str, Value] = {
        "ordering": "key",
        "retry_delays_ms": [300],
        "stuck_after_ms": 1_000,
        "stuck_min_age_ms": 1_000,
        "retry_topic_partitions": 2,
    }
    return replace(plan, group=TOPIC, subscription={**plan.subscription, **settings})


def run(broker: BrokerPart, folder: Path, name: str, keys: int, **more: object) -> Verdict:
    """One run with its own topic: ten messages of each key are there when it begins."""
    setup = replace(setup_for(broker, folder, TOPIC, **more), plan=ordered)
    course = Course(seed=SEED, kills=6, temper=Temper(pause_ms=1_000), calm_s=CALM_S)
    script = rebalances if setup.sidecars > 1 else None

    def change(plan: WorkloadPlan) -> WorkloadPlan:
        return replace(plan, keys=keys, backlog=keys * 10, ordering="key", mood=MOOD)

    return judge(setup, course, script=script, rate_per_s=200, change=change, name=name)


async def rebalances(nemesis: Nemesis, workers: Sequence[Part]) -> None:
    """Partitions move in every way there is, one after the other."""
    first, second = (part for part in nemesis.parts if isinstance(part, Sidecar))
    await nemesis.kill(first, down_ms=3_000)
    await asyncio.to_thread(second.terminate)
    await asyncio.sleep(3.0)
    await asyncio.to_thread(second.start)
    await asyncio.sleep(2.0)
    await nemesis.kill(second, down_ms=0)
    await nemesis.kill(workers[0], down_ms=500)
    await asyncio.sleep(2.0)
    await nemesis.freeze(first, frozen_ms=4_000)
    await nemesis.kill(second, down_ms=1_000)
    await nemesis.kill(first, down_ms=0)


def copies(broker: KafkaAt) -> int:
    """How many there are in the retry topic."""
    reader = Consumer({"bootstrap.servers": broker.kafka.bootstrap, "group.id": "looks"})
    try:
        parts = [TopicPartition(retry_topic(f"{TOPIC}~orders"), number) for number in (0, 1)]
        return sum(reader.get_watermark_offsets(part, timeout=60)[1] for part in parts)
    finally:
        reader.close()


@pytest.mark.kafka
def test_i6_a_thousand_keys_keep_their_order_under_kills_and_rebalances(
    at_kafka: KafkaAt, folder: Path
) -> None:
    verdict = run(at_kafka, folder, "order-kafka", KEYS, sidecars=2)
    assert_kept(verdict, seed=SEED)
    assert verdict.ordering_keys > KEYS * 0.95
    assert verdict.delivered >= 10 * KEYS
    assert verdict.redelivered > KEYS / 10
    assert copies(at_kafka) > 20, "keys were blocked"


def test_i6_on_the_local_queue_with_its_own_store(folder: Path) -> None:
    verdict = run(LocalQueue(folder), folder, "order-local", 100, sidecars=1, store="embedded")
    assert_kept(verdict, seed=SEED)
    assert verdict.ordering_keys > 90


def test_an_order_that_nobody_keeps_is_found_out(folder: Path) -> None:
    """The same run with `ordering = "none"`: the judge has teeth."""
    plan = replace(setup_for(LocalQueue(folder), folder, TOPIC), sidecars=1, store="embedded")
    setup = replace(plan, proxied=False)
    course = Course(seed=SEED, kills=0, workers=0, warm_s=1.0, calm_s=1.0)

    def change(plan: WorkloadPlan) -> WorkloadPlan:
        return replace(plan, keys=20, backlog=200, ordering="key", publishers=1)

    verdict = judge(setup, course, change=change, name="order-teeth")
    assert verdict.count("out_of_order") > 10
    broken = [word for word in BROKEN if verdict.count(word) and word != "out_of_order"]
    assert not broken
