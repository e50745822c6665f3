"""Kills and freezes with links in the path: one partition, three sidecars, and applications beside
all of them (I1, I2, I3, R21).
"""

import asyncio
import os
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from ackd_torture.child import BrokerPart, Part
from ackd_torture.history import histories, load
from ackd_torture.nemesis import Nemesis, Temper
from ackd_torture.parts import LocalQueue, Sidecar, SidecarPlan
from ackd_torture.run import Course
from ackd_torture.workload import WorkloadPlan
from tests.chaos.judged import CALM_S, assert_kept, judge, setup_for
from tests.chaos.stalls import flow
from tests.chaos.world import KafkaAt
from tests.support.limits import FIGURES, limit
from tests.support.pulsar import PulsarOptions
from tests.support.pulsar.part import PulsarAt
from tests.support.rocketmq.part import RocketMQAt
from tests.support.starved import Starved

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
KAFKA = pytest.param("kafka", marks=pytest.mark.kafka)
OTHERS = [
    "local",
    pytest.param("pulsar", marks=pytest.mark.pulsar),
    pytest.param("rocketmq", marks=pytest.mark.rocketmq),
]
"""`make figures` has these, too: `ARGS="-k 'owners_and_requesters and pulsar'"`."""

SEED = int(os.environ.get("CHAOS_SEED", "2101"))
KILLS = int(os.environ.get("CHAOS_KILLS", "60"))
RATE_PER_S = 1_000
PUBLISH_MAX = 50
PUBLISHERS = 10
AIM_PER_S = 2_000
"""What publishers try. A quarter of it goes to sidecars that are dead or frozen just then."""
PER_S_MIN = limit(1_000, busy=500)
"""So many are stored, and so many finished."""
TEMPER = Temper(pause_ms=3_000, frozen_ms=2_500, freeze=0.4)
FREEZE = 0.4
FROZEN_MS = 2_500
STALL_MAX_S = 3.0


def linked(plan: SidecarPlan) -> SidecarPlan:
    return replace(plan, sections={**plan.sections, "peers": {"on": True}})


def loaded(plan: WorkloadPlan) -> WorkloadPlan:
    """Messages in batches, and workers that are not slower than they come."""
    many = replace(plan, publish_max=PUBLISH_MAX, publishers=PUBLISHERS)
    return replace(many, work_ms_max=20, batch_max=100)


async def one_by_one(nemesis: Nemesis, _: Sequence[Part]) -> None:
    """Each fault hits one sidecar, whether it owns the partition or asks for its messages."""
    rng = random.Random(SEED)
    sidecars = [part for part in nemesis.parts if isinstance(part, Sidecar)]
    for _number in range(KILLS):
        each = rng.choice(sidecars)
        if rng.random() < FREEZE:
            await nemesis.freeze(each, frozen_ms=rng.randint(FROZEN_MS // 5, FROZEN_MS))
        else:
            await nemesis.kill(each, down_ms=rng.randint(0, 800))
        await asyncio.sleep(rng.uniform(0.5, 2.0))


@pytest.fixture(params=[KAFKA, *(OTHERS if FIGURES else [])])
def broker(request: pytest.FixtureRequest, folder: Path) -> BrokerPart:
    """One that is left alone."""
    if request.param == "local":
        return LocalQueue(folder)
    if request.param == "pulsar":
        make = request.getfixturevalue("own_pulsar")
        return PulsarAt(make(PulsarOptions(persist_at_once=False)))
    if request.param == "rocketmq":
        # The group of these sidecars is called after their subscription.
        return RocketMQAt(request.getfixturevalue("rocketmq"), group="orders")
    return cast("BrokerPart", request.getfixturevalue("at_kafka"))


def test_owners_and_requesters_are_killed_and_frozen(broker: BrokerPart, folder: Path) -> None:
    """Two of three sidecars own no partition of the topic: what they deliver comes over links. All
    the while messages come, and somebody gets some.
    """
    topic = f"peers-{random.randrange(10**6)}"
    setup = setup_for(broker, folder, topic, sidecars=3, partitions=1, proxied=False, plan=linked)
    starved = Starved()
    with starved.watched():
        verdict = judge(
            setup,
            Course(seed=SEED, calm_s=CALM_S),
            script=one_by_one,
            rate_per_s=AIM_PER_S,
            change=loaded,
            name=f"peers-{broker.adapter}",
        )
    assert_kept(verdict, seed=SEED)
    assert verdict.count("double_leases") == 0
    seen = flow(load(histories(folder / "history")), starved)
    print(seen, verdict.acked, verdict.confirmed, verdict.redelivered)  # noqa: T201
    assert verdict.faults >= KILLS
    assert seen.published >= PER_S_MIN * seen.seconds, seen
    assert seen.finished >= PER_S_MIN * seen.seconds, seen
    assert seen.stall_s <= STALL_MAX_S, seen


@pytest.mark.kafka
def test_the_store_and_ways_to_it_break_as_well(at_kafka: KafkaAt, folder: Path) -> None:
    """Up to two parts at a time; then nobody may get anything for a while."""
    topic = f"peers-{random.randrange(10**6)}"
    setup = setup_for(at_kafka, folder, topic, sidecars=3, partitions=1, plan=linked)
    course = Course(seed=SEED, kills=KILLS // 5, temper=TEMPER, calm_s=CALM_S)
    verdict = judge(setup, course, rate_per_s=RATE_PER_S, name="peers-store-kafka")
    assert_kept(verdict, seed=SEED)
    assert verdict.faults >= KILLS // 5
