"""RocketMQ and the sidecar on it, both killed with -9 in the middle of the work."""

import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ackd_torture.checker import BROKEN
from ackd_torture.nemesis import Temper
from ackd_torture.run import Course
from tests.chaos.judged import assert_kept, judge, setup_for
from tests.chaos.kept import kept_over_a_kill
from tests.chaos.world import Http, long_job, ready, world
from tests.support.rocketmq import RocketMQ
from tests.support.rocketmq.part import RocketMQAt
from tests.support.rocketmq.timers import judged
from tests.support.wait import wait_until

pytestmark = [pytest.mark.rocketmq, pytest.mark.slow, pytest.mark.timeout(360)]

COUNT = 300
ACKED = 200
COMES_LATER = {"lost", "stranded"}
LEASE_MS = 30_000
COME_S = 120.0
SEED = int(os.environ.get("CHAOS_SEED", "2101"))
TEMPER = Temper(pause_ms=1_200, frozen_ms=2_500)
CALM_S = 9.0
"""Longer than a lease, a hold, and what the broker takes to bring a message again."""


def test_i2_broker_and_sidecar_killed_nothing_acked_comes_again_and_leases_live_on(
    rocketmq: RocketMQ, folder: Path
) -> None:
    broker = RocketMQAt(rocketmq)
    with world(broker, folder, partitions=4, lease_ms=LEASE_MS) as deployment:
        sidecar = deployment.sidecar()
        client = Http(sidecar)
        wait_until(lambda: '"fail' not in ready(sidecar), "the sidecar is ready")
        client.publish(deployment.topic, COUNT)
        first = client.receive_until(
            lambda found: len(found) >= ACKED, COME_S, most=50, lease_ms=4 * LEASE_MS
        )
        rest = client.receive_until(
            lambda found: len({_value(each) for each in first + found}) >= COUNT, COME_S, most=100
        )
        assert set(client.settle([each["lease"] for each in first])) == {"acked"}
        sidecar.kill()
        broker.kill()
        broker.start()
        sidecar.start()
        again = Http(sidecar)
        # The leases that were open can be settled, if their time has not run out meanwhile.
        late = again.settle([each["lease"] for each in rest[:10]])
        assert set(late) <= {"acked", "lost"}
        over = {_value(each) for each in first}
        over |= {_value(each) for each, how in zip(rest, late, strict=False) if how == "acked"}
        seen: Counter[str] = Counter()

        def all_came(found: list[dict[str, Any]]) -> bool:
            fresh = found[seen.total() :]
            seen.update(_value(each) for each in fresh)
            assert set(again.settle([each["lease"] for each in fresh])) <= {"acked"}
            return len(seen) >= COUNT - len(over)

        with judged(rocketmq):
            again.receive_until(all_came, COME_S, most=100)
        seen.update(_value(each) for each in again.quiet(broker.hold_ms / 1000 + 3))
    assert not over & seen.keys(), "an acked message came again"
    assert over | seen.keys() == {f"m{number}" for number in range(COUNT)}, "a message is lost"
    assert set(seen.values()) == {1}


def test_i3_a_lease_extended_thirty_times_is_one_delivery(rocketmq: RocketMQ, folder: Path) -> None:
    """Work that lasts five leases, and as many of the broker's holds."""
    with world(RocketMQAt(rocketmq, hold_ms=3_000), folder) as deployment:
        client = Http(deployment.sidecar())
        client.publish(deployment.topic, 1)
        long_job(client, 3_000, 30)


def test_i2_i7_what_a_killed_sidecar_promised_is_kept(rocketmq: RocketMQ, folder: Path) -> None:
    kept_over_a_kill(RocketMQAt(rocketmq), folder)


def test_six_kills_on_rocketmq(rocketmq: RocketMQ, folder: Path) -> None:
    """Brokers, sidecars, store at random, as `ackd torture --start rocketmq` does it longer."""
    topic = f"random-{random.randrange(10**6)}"
    # The sidecars' group is called after their subscription.
    setup = setup_for(RocketMQAt(rocketmq, group="orders"), folder, topic, sidecars=2)
    course = Course(seed=SEED, kills=6, temper=TEMPER, calm_s=CALM_S)
    verdict = judge(setup, course, hurt_broker=True, name="random-rocketmq")
    # The rest does not depend on what the broker brings back.
    assert not any(verdict.count(word) for word in BROKEN if word not in COMES_LATER)
    # Each publish waits for a broker that is killed and takes a minute to be known again.
    with judged(rocketmq):
        assert_kept(verdict, seed=SEED, acked_min=10)
    assert verdict.faults >= 6


def _value(message: dict[str, Any]) -> str:
    return str(message["json"]["msg"])
