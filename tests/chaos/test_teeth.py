"""The torture has teeth: an ackd that forgets is found out, by the same run that blames no other.

With `store.url = "memory"` a killed sidecar forgets every ack that the broker was not told yet.
That is a broken I2, made of real parts: load, kill -9, histories, checker.
"""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from ackd_torture.checker import Verdict
from ackd_torture.parts import LocalQueue
from ackd_torture.run import Course, Setup, deployed, torture
from tests.chaos.judged import LEASE_MS, plan_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def test_forgetful_store_is_found_out(folder: Path) -> None:
    setup = Setup(
        broker=LocalQueue(folder),
        topic="teeth",
        folder=folder,
        store="embedded",
        sidecars=1,
        proxied=False,
        plan=lambda plan: replace(
            plan,
            store_url="memory",
            subscription={"lease_ms": LEASE_MS, "commit_interval_ms": 5_000},
        ),
    )

    async def run() -> Verdict:
        async with deployed(setup) as deployment:
            course = Course(seed=4, kills=2, workers=0, calm_s=2.0)
            plan = plan_of(setup, deployment, course.seed, 150)
            verdict, _ = await torture(deployment, [*deployment.sidecars], plan, course)
            return verdict

    verdict = asyncio.run(run())
    assert verdict.count("acked_then_redelivered") > 10
    assert not verdict.kept
    assert verdict.count("lost") == 0, "the broker kept them all"
