"""Two RocketMQ brokers, their proxy and name server, three sidecars and the store are killed at
random, as `ackd torture` does it.

`CHAOS_KILLS=30 CHAOS_SEED=...` for the run of docs/guarantees.md.
"""

import asyncio
import os
import random
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import pytest

from ackd.errors import BrokerError
from ackd_torture.nemesis import Temper
from ackd_torture.run import Course
from tests.chaos.judged import assert_kept, judge, setup_for
from tests.support.require import require
from tests.support.rocketmq import RocketMQ, RocketMQOptions, missing
from tests.support.rocketmq.bare import bare
from tests.support.rocketmq.part import RocketMQClusterAt
from tests.support.wait import wait_until_async

KILLS = int(os.environ.get("CHAOS_KILLS", "6"))
SEED = int(os.environ.get("CHAOS_SEED", "2301"))
pytestmark = [
    pytest.mark.rocketmq,
    pytest.mark.slow,
    pytest.mark.timeout(300 + 40 * KILLS),
]
TEMPER = Temper(pause_ms=6_000, frozen_ms=2_500)
"""A broker, a proxy and a name server take longer than a sidecar until they serve again."""
QUICK_S = 1.0
CALM_S = 9.0
"""Longer than a lease, a hold, and what the broker takes to bring a message again."""


@pytest.fixture
def pair() -> Iterator[RocketMQ]:
    """Two brokers, which register with a new name server within 10 s."""
    require(missing())
    options = RocketMQOptions(cluster=True, brokers=2, broker={"registerNameServerPeriod": "10000"})
    with RocketMQ(options) as started:
        asyncio.run(_warm(started))
        yield started


async def _warm(rocketmq: RocketMQ) -> None:
    """Until messages are stored quickly: the first ones compile what brokers and proxy do."""
    async with bare(rocketmq) as it:
        took_s: deque[float] = deque(maxlen=20)

        async def quick() -> bool:
            began = time.monotonic()
            await it.send(b"warm")
            took_s.append(time.monotonic() - began)
            return len(took_s) == took_s.maxlen and max(took_s) < QUICK_S

        await wait_until_async(quick, "quick answers", timeout_s=120, ignoring=(BrokerError,))


def test_i1_i2_two_brokers_and_three_sidecars_killed_at_random(
    pair: RocketMQ, folder: Path
) -> None:
    """Nothing is lost and nothing acked comes again."""
    topic = f"random-{random.randrange(10**6)}"
    setup = setup_for(RocketMQClusterAt(pair, group="orders"), folder, topic, sidecars=3)
    course = Course(seed=SEED, kills=KILLS, temper=TEMPER, calm_s=CALM_S)
    verdict = judge(setup, course, hurt_broker=True, name="random-rocketmq-brokers")
    assert_kept(verdict, seed=SEED, acked_min=10)
    assert verdict.faults >= KILLS
