"""Kills with -9 while a thousand messages a second and more are stored and finished, whatever
a settle waits for: the store's memory, its disk, or a replica (I1, I2, I3, I4).

`make figures` does it in full; more kills: `CHAOS_KILLS=200`. At random, with freezes and with the
broker among what is killed: `make torture ARGS="--durability replicated"`.
"""

import asyncio
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from ackd_torture.child import Part
from ackd_torture.history import histories, load
from ackd_torture.nemesis import Nemesis
from ackd_torture.run import Course
from ackd_torture.workload import WorkloadPlan
from tests.chaos.judged import CALM_S, assert_kept, judge, setup_for
from tests.chaos.stalls import flow
from tests.chaos.world import KafkaAt
from tests.support.limits import limit

pytestmark = [
    pytest.mark.alone,
    pytest.mark.slow,
    pytest.mark.kafka,
    pytest.mark.timeout(600),
]

SEED = int(os.environ.get("CHAOS_SEED", "2101"))
KILLS = int(os.environ.get("CHAOS_KILLS", limit(50, busy=8)))
"""For each durability; a run of all tests has time for 51 of all three together."""
PER_S_MIN = limit(1_000, busy=500)
AIM_PER_S = 1_800
"""What publishers try while all parts live."""
PUBLISH_MAX = 50
DOWN_MS = 400
PAUSE_S = (0.5, 1.5)


def loaded(plan: WorkloadPlan) -> WorkloadPlan:
    """Messages in batches, and workers that are not slower than they come."""
    return replace(plan, publish_max=PUBLISH_MAX, publishers=8, work_ms_max=20, batch_max=100)


async def kill_one_by_one(nemesis: Nemesis, _: Sequence[Part]) -> None:
    """Sidecars, the store, its replica and the application, in random order."""
    rng = random.Random(SEED)
    for _number in range(KILLS):
        await nemesis.kill(rng.choice(nemesis.parts), down_ms=rng.randint(0, DOWN_MS))
        await asyncio.sleep(rng.uniform(*PAUSE_S))


@pytest.mark.parametrize("durability", ["everysec", "always", "replicated"])
def test_kills_under_load(
    at_kafka: KafkaAt, folder: Path, figure: Callable[[str, float], None], durability: str
) -> None:
    topic = f"loaded-{random.randrange(10**6)}"
    setup = setup_for(at_kafka, folder, topic, sidecars=2, proxied=False, durability=durability)
    course = Course(seed=SEED, calm_s=CALM_S)
    verdict = judge(
        setup,
        course,
        script=kill_one_by_one,
        rate_per_s=AIM_PER_S,
        change=loaded,
        name=f"loaded-{durability}",
    )
    assert_kept(verdict, seed=SEED)
    assert verdict.faults == KILLS
    seen = flow(load(histories(folder / "history")))
    figure(f"stored_under_kills_{durability}_per_s", round(seen.published / seen.seconds))
    figure(f"finished_under_kills_{durability}_per_s", round(seen.finished / seen.seconds))
    assert seen.published >= PER_S_MIN * seen.seconds, seen
    assert seen.finished >= PER_S_MIN * seen.seconds, seen
