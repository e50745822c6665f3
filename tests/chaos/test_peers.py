"""Kills, freezes and cuts with links in the path: one partition, three sidecars, and applications
beside all of them (I1, I2, I3, R21).
"""

import os
import random
from dataclasses import replace
from pathlib import Path

import pytest

from ackd_torture.nemesis import Temper
from ackd_torture.parts import SidecarPlan
from ackd_torture.run import Course
from tests.chaos.judged import CALM_S, assert_kept, judge, setup_for
from tests.chaos.world import KafkaAt

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.timeout(900)]

SEED = int(os.environ.get("CHAOS_SEED", "2101"))
KILLS = int(os.environ.get("CHAOS_KILLS", "60"))
RATE_PER_S = 1_000
TEMPER = Temper(pause_ms=3_000, frozen_ms=2_500, freeze=0.4)


def linked(plan: SidecarPlan) -> SidecarPlan:
    return replace(plan, sections={**plan.sections, "peers": {"on": True}})


def test_owners_and_requesters_are_killed_and_frozen(at_kafka: KafkaAt, folder: Path) -> None:
    """Two of three sidecars own no partition of the topic: what they deliver comes over links."""
    topic = f"peers-{random.randrange(10**6)}"
    setup = setup_for(at_kafka, folder, topic, sidecars=3, partitions=1, plan=linked)
    course = Course(seed=SEED, kills=KILLS, temper=TEMPER, calm_s=CALM_S)
    verdict = judge(setup, course, rate_per_s=RATE_PER_S, name="peers-kafka")
    assert_kept(verdict, seed=SEED)
    assert verdict.faults >= KILLS
