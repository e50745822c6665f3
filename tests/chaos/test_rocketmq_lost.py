"""A sidecar is killed as messages come, many times. The broker loses some of what a poll draws that
is broken off so; ackd finds it (I1).

More kills: `ACKD_TEST_SIDECAR_KILLS=40`.
"""

import asyncio
import json
import os
import random
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from ackd.ports import Broker, Outgoing, Stored
from ackd_adapters.rocketmq import RocketMQOptions, adapter
from tests.chaos.judged import metric
from tests.chaos.world import Http, ready, world
from tests.support.rocketmq import RocketMQ
from tests.support.rocketmq.part import RocketMQAt
from tests.support.wait import wait_until, wait_until_async

KILLS = int(os.environ.get("ACKD_TEST_SIDECAR_KILLS", "5"))
SEED = int(os.environ.get("CHAOS_SEED", "17"))
BATCH = 200
RECOVERED = "ackd_recovered_from_log_total"
BATCHES_S = 1.0
"""As long as a poll waits, which goes on at the broker after the kill."""
COME_S = 150.0
"""A hold and 30 s, on a busy machine."""

pytestmark = [
    pytest.mark.rocketmq,
    pytest.mark.slow,
    pytest.mark.timeout(300 + 30 * KILLS),
]


async def test_i1_i2_nothing_is_lost_over_kills_of_the_sidecar_as_messages_come(
    rocketmq: RocketMQ, folder: Path, figure: Callable[[str, float], None]
) -> None:
    rng = random.Random(SEED)
    acked: Counter[str] = Counter()
    wanted: set[str] = set()
    recovered = 0.0
    publisher = adapter.open("b", RocketMQOptions(endpoints=rocketmq.endpoints))
    await publisher.start()
    try:
        with world(RocketMQAt(rocketmq), folder, partitions=4, lease_ms=30_000) as deployment:
            sidecar = deployment.sidecar()
            client = Http(sidecar)

            def is_ready() -> bool:
                return '"fail' not in ready(sidecar)

            def some() -> int:
                found = client.receive(most=100)
                told = client.settle([each["lease"] for each in found]) if found else []
                for each, how in zip(found, told, strict=True):
                    value = str(each["json"]["msg"])
                    assert not acked[value], f"{value} was acked, and came again (seed {SEED})"
                    acked[value] += how == "acked"
                return len(found)

            for kill in range(KILLS):
                await asyncio.to_thread(wait_until, is_ready, "the sidecar is ready")
                recovered += metric(sidecar, RECOVERED)
                if rng.random() < 0.5:
                    async with asyncio.TaskGroup() as tasks:
                        tasks.create_task(_publish(publisher, deployment.topic, kill, wanted))
                        await asyncio.sleep(rng.uniform(0, 0.05))
                        sidecar.kill()
                else:
                    sidecar.kill()
                    await asyncio.sleep(rng.uniform(0, BATCHES_S))
                    await _publish(publisher, deployment.topic, kill, wanted)
                sidecar.start()
                for _ in range(rng.randrange(6)):
                    await asyncio.to_thread(some)

            def all_came() -> bool:
                some()
                return wanted <= {value for value, times in acked.items() if times}

            try:
                await asyncio.to_thread(
                    wait_until, all_came, f"all have come (seed {SEED})", timeout_s=COME_S
                )
            finally:
                missing = wanted - {value for value, times in acked.items() if times}
                figure("rocketmq-lost: messages that never came", len(missing))
                recovered += metric(sidecar, RECOVERED)
                figure("rocketmq-lost: read from the log", recovered)
            await asyncio.to_thread(some)  # nothing that was acked
    finally:
        await publisher.close()


async def _publish(publisher: Broker, topic: str, kill: int, wanted: set[str]) -> None:
    """So many that are certainly stored. One of which nobody knows may come as well: the next try
    has a value of its own.
    """
    left, tries = [*range(kill * BATCH, (kill + 1) * BATCH)], count()

    async def stored() -> bool:
        nth = next(tries)
        values = [f"m{number}-{nth}" for number in left]
        said = await publisher.publish(
            [Outgoing(topic, None, json.dumps({"msg": each}).encode()) for each in values]
        )
        sure = [isinstance(each, Stored) for each in said]
        wanted.update(each for each, yes in zip(values, sure, strict=True) if yes)
        left[:] = [number for number, yes in zip(left, sure, strict=True) if not yes]
        return not left

    await wait_until_async(stored, "all is stored")
