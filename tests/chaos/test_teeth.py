"""The torture has teeth: an ackd that forgets is found out, by the same run that blames no other.

With `store.url = "memory"` a killed sidecar forgets every ack that the broker was not told yet.
That is a broken I2, made of real parts: load, kill -9, histories, checker; Porcupine reads the
same histories and finds it too.
"""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from ackd_torture.checker import Verdict
from ackd_torture.history import histories, load
from ackd_torture.parts import LocalQueue
from ackd_torture.run import Course, Setup, deployed, torture
from tests.chaos.judged import LEASE_MS, plan_of
from tests.proof.porcupine import judge_all, missing
from tests.support.require import require

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def test_forgetful_store_is_found_out(folder: Path, tmp_path: Path) -> None:
    require(missing())
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
    [other] = judge_all([load(histories(folder / "history"))], tmp_path)
    ours = {f"place orders {each.id}" for each in verdict.findings["acked_then_redelivered"]}
    assert not other.undecided
    assert ours <= other.blamed
