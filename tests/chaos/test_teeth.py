"""The torture has teeth: an ackd that forgets is found out, by the same run that blames no other.

With `store.url = "memory"` a killed sidecar forgets every ack that the broker was not told yet.
That is a broken I2, made of real parts: load, kill -9, histories, checker. And `test_store_loss.py`
says that nothing comes again after a rollback; sidecars that do not repair it must make that fail.
"""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from ackd.torture.checker import Verdict
from ackd.torture.parts import Local
from ackd.torture.run import Course, Setup, deployed, torture
from tests.chaos.judged import CALM_S, LEASE_MS, judge, plan_of, rolled_back, setup_for
from tests.chaos.mutant import command

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


def test_forgetful_store_is_found_out(folder: Path) -> None:
    setup = Setup(
        broker=Local(folder),
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


def test_rollback_that_nobody_repairs_is_found_out(folder: Path) -> None:
    """R10: acks of two seconds are gone, and the messages come again; a loss of data excuses it."""
    setup = setup_for(
        Local(folder),
        folder,
        "unrepaired",
        proxied=False,
        # The ranges in the commit metadata would mend most of it: nothing is committed meanwhile.
        plan=lambda plan: replace(
            plan,
            command=command("nothing is repaired after a rollback"),
            subscription={"commit_interval_ms": 60_000},
        ),
    )
    course = Course(seed=5, workers=0, calm_s=CALM_S)
    verdict = judge(setup, course, script=rolled_back(folder), name="store-unrepaired")
    assert verdict.count("excused") > 10, "test_store_loss.py asserts 0"
    assert verdict.count("lost") == 0, "the broker kept them all"
