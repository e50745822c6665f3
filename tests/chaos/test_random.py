"""Random kills, freezes and cuts under load (I1, I2, I3, I4, I7). Longer: `make torture`.

The seed is the same in each run, so that a failure is news; `CHAOS_SEED` takes another one.
"""

import os
import random
from pathlib import Path

import pytest

from ackd_torture.nemesis import Temper
from ackd_torture.parts import LocalQueue
from ackd_torture.run import Course
from tests.chaos.judged import CALM_S, assert_kept, judge, setup_for
from tests.chaos.traced import assert_traced
from tests.chaos.world import KafkaAt
from tests.conftest import PulsarFactory
from tests.support.pulsar import PulsarOptions
from tests.support.pulsar.part import PulsarAt

pytestmark = [pytest.mark.slow, pytest.mark.timeout(480)]

SEED = int(os.environ.get("CHAOS_SEED", "2101"))
TEMPER = Temper(pause_ms=1_200, frozen_ms=2_500)


@pytest.mark.kafka
def test_ten_kills_on_kafka(at_kafka: KafkaAt, folder: Path) -> None:
    setup = setup_for(at_kafka, folder, f"random-{random.randrange(10**6)}", sidecars=2)
    course = Course(seed=SEED, kills=10, temper=TEMPER, calm_s=CALM_S)
    verdict = judge(setup, course, hurt_broker=True, name="random-kafka")
    assert_kept(verdict, seed=SEED)
    assert verdict.faults >= 10
    assert_traced(folder)


@pytest.mark.pulsar
def test_six_kills_on_pulsar(own_pulsar: PulsarFactory, folder: Path) -> None:
    """Brokers, sidecars, store at random, with ackd's defaults, so with a retry topic. The broker
    writes cursors down as rarely as it is shipped to.
    """
    broker = PulsarAt(own_pulsar(PulsarOptions(persist_at_once=False)))
    setup = setup_for(broker, folder, f"random-{random.randrange(10**6)}", sidecars=2)
    course = Course(seed=SEED, kills=6, temper=TEMPER, calm_s=CALM_S)
    verdict = judge(setup, course, hurt_broker=True, name="random-pulsar")
    assert_kept(verdict, seed=SEED, acked_min=10)
    assert verdict.faults >= 6


def test_six_kills_of_a_sidecar_with_its_own_store(folder: Path) -> None:
    """The default set-up: embedded store, local queue, one sidecar, nothing else."""
    setup = setup_for(LocalQueue(folder), folder, "random", sidecars=1, store="embedded")
    course = Course(seed=SEED, kills=6, temper=TEMPER, calm_s=CALM_S)
    verdict = judge(setup, course, name="random-local")
    assert_kept(verdict, seed=SEED)
    assert_traced(folder)
    biggest = max((folder / "traces").glob("ackd-*"), key=lambda path: path.stat().st_size)
    biggest.unlink()
    with pytest.raises(AssertionError):
        assert_traced(folder)
