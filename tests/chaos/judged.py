"""Fault tests that end in a verdict: load, faults by script or at random, drain, checker."""

import asyncio
import json
import shutil
from dataclasses import replace
from pathlib import Path

from ackd.torture.checker import BROKEN, Verdict
from ackd.torture.child import BrokerPart, Part
from ackd.torture.parts import SidecarPlan
from ackd.torture.report import save
from ackd.torture.run import Course, Deployment, Script, Setup, deployed, torture
from ackd.torture.workload import Plan
from tests.support.paths import CACHE

LEASE_MS = 3_000
# Longer than a lease and the grace after an outage: what should not come would have come.
GRACE_MS = 2_000
CALM_S = 6.0
APART_US_MAX = 5_000


def judge(
    setup: Setup,
    course: Course,
    *,
    script: Script | None = None,
    hurt_broker: bool = False,
    rate_per_s: int = 150,
    name: str,
) -> Verdict:
    """Run it and give the verdict; its JSON stays in `.cache/chaos` for the documentation."""

    async def run() -> Verdict:
        async with deployed(replace(setup, plan=_settings)) as deployment:
            verdict, about = await torture(
                deployment,
                parts_of(deployment, hurt_broker=hurt_broker),
                plan_of(setup, deployment, course.seed, rate_per_s),
                course,
                script=script,
            )
            save(CACHE / "chaos" / f"{name}.json", verdict, about)
            return verdict

    # Shown with a failure of whatever kind.
    print(f"seed {course.seed}")  # noqa: T201
    kept = False
    try:
        verdict = asyncio.run(run())
        kept = verdict.kept
    finally:
        if not kept:
            _keep(setup.folder, CACHE / "chaos" / f"{name}-{course.seed}-broken")
    return verdict


def _keep(folder: Path, copy: Path) -> None:
    """Whoever looks for the cause needs every history and log; the test's folder goes away."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("*.sock", "s"))
    print(f"histories and logs are in {copy}")  # noqa: T201


def _settings(plan: SidecarPlan) -> SidecarPlan:
    return replace(plan, subscription={"lease_ms": LEASE_MS}, store={"grace_ms": GRACE_MS})


def parts_of(deployment: Deployment, *, hurt_broker: bool) -> list[Part]:
    """What may be broken."""
    parts: list[Part] = [*deployment.sidecars]
    if deployment.store is not None:
        parts.append(deployment.store)
    if hurt_broker and deployment.broker is not None:
        parts.append(deployment.broker)
    return parts


def plan_of(setup: Setup, deployment: Deployment, seed: int, rate_per_s: int) -> Plan:
    """The load: six publishers, nine consumers of three kinds. Many, as some always wait."""
    return Plan(
        urls=deployment.urls,
        topic=setup.topic,
        sub="orders",
        folder=setup.folder / "history",
        seed=seed,
        publishers=6,
        consumers=9,
        rate_per_s=rate_per_s,
        lease_ms=LEASE_MS,
    )


def assert_kept(verdict: Verdict, *, at_least: int, seed: int = 0) -> None:
    """Every promise, and that the run was one: enough messages came through."""
    broken = {
        word: [finding.text for finding in verdict.findings[word][:5]]
        for word in BROKEN
        if verdict.count(word)
    }
    facts = {"seed": seed, "drained": verdict.drained, **broken}
    assert verdict.kept, json.dumps(facts, indent=1)
    # One machine has one clock: what is told as a deadline must not drift away from it.
    assert verdict.clocks_apart_us <= APART_US_MAX, verdict.clocks_apart_us
    assert verdict.acked >= at_least, (verdict.acked, verdict.confirmed)


def setup_for(broker: BrokerPart, folder: Path, topic: str, **more: object) -> Setup:
    """A deployment in a folder."""
    return replace(Setup(broker=broker, topic=topic, folder=folder), **more)  # type: ignore[arg-type]
