"""Fault tests that end in a verdict: load, faults by script or at random, drain, checker."""

import asyncio
import json
import shutil
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from ackd_torture.checker import BROKEN, Verdict
from ackd_torture.child import BrokerPart, Part
from ackd_torture.history import EventKind, Recorder
from ackd_torture.nemesis import Nemesis
from ackd_torture.parts import Sidecar, SidecarPlan, Valkey
from ackd_torture.report import save
from ackd_torture.run import Course, Deployment, Script, Setup, deployed, torture
from ackd_torture.workload import WorkloadPlan
from tests.chaos.world import Http
from tests.support.paths import CACHE
from tests.support.rocketmq.part import RocketMQClusterAt

LEASE_MS = 3_000
# Longer than a lease and the grace after an outage: what should not come would have come.
GRACE_MS = 2_000
CALM_S = 6.0
# From before a rollback until after the takeover that follows it.
HELD_MS = 20_000
PARTITIONS = 4
REPAIRED_S = 60.0
# Ends as soon as everything is finished; a busy machine takes several times longer.
DRAIN_S = 240.0
ACKED_MIN = 50
APART_US_MAX = 5_000


def judge(
    setup: Setup,
    course: Course,
    *,
    script: Script | None = None,
    hurt_broker: bool = False,
    rate_per_s: int = 150,
    change: Callable[[WorkloadPlan], WorkloadPlan] = lambda plan: plan,
    name: str,
) -> Verdict:
    """Run it and give the verdict; its JSON stays in `.cache/chaos` for the documentation.

    `change`: what the clients do otherwise than usual.
    """

    async def run() -> Verdict:
        patient = replace(course, drain_s=DRAIN_S)
        settings = replace(setup, plan=lambda plan: _settings(setup.plan(plan)))
        async with deployed(settings) as deployment:
            verdict, about = await torture(
                deployment,
                parts_of(deployment, hurt_broker=hurt_broker),
                change(plan_of(setup, deployment, course.seed, rate_per_s)),
                patient,
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
    subscription = {"lease_ms": LEASE_MS, **plan.subscription}
    return replace(plan, subscription=subscription, store={**plan.store, "grace_ms": GRACE_MS})


def parts_of(deployment: Deployment, *, hurt_broker: bool) -> list[Part]:
    """What may be broken."""
    parts: list[Part] = [*deployment.sidecars, *deployment.stores]
    if hurt_broker and isinstance(deployment.broker, RocketMQClusterAt):
        parts += deployment.broker.parts()
    elif hurt_broker and deployment.broker is not None:
        parts.append(deployment.broker)
    return parts


def plan_of(setup: Setup, deployment: Deployment, seed: int, rate_per_s: int) -> WorkloadPlan:
    """The load: six publishers, nine consumers of three kinds. Many, as some always wait."""
    return WorkloadPlan(
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


def assert_kept(verdict: Verdict, *, seed: int = 0, acked_min: int = ACKED_MIN) -> None:
    """Every promise, and that the run was one: enough messages came through.

    How many do is up to the machine: 400 to 1000 usually, 100 where four others want the processor.
    """
    broken = {
        word: [finding.text for finding in verdict.findings[word][:5]]
        for word in BROKEN
        if verdict.count(word)
    }
    facts = {"seed": seed, "drained": verdict.drained, **broken}
    assert verdict.kept, json.dumps(facts, indent=1)
    # One machine has one clock: what is told as a deadline must not drift away from it.
    assert verdict.clocks_apart_us <= APART_US_MAX, verdict.clocks_apart_us
    assert verdict.acked >= acked_min, (verdict.acked, verdict.confirmed)


def setup_for(broker: BrokerPart, folder: Path, topic: str, **more: object) -> Setup:
    """A deployment in a folder."""
    setup = Setup(broker=broker, topic=topic, folder=folder, partitions=PARTITIONS)
    return replace(setup, **more)  # type: ignore[arg-type]


def rolled_back(folder: Path, took_s: list[float]) -> Script:
    """A script: an old copy of the store's data is put back under load; then sidecars are killed.

    `took_s` gets the seconds that the sidecars needed to write back what it had forgotten.

    What a living owner has in memory hides what the store forgot, until somebody else takes over;
    and what lies below the watermark is told anew by one number. So each partition has a stuck head
    meanwhile, and at the end all change hands, one sidecar after the other.
    """

    async def script(nemesis: Nemesis, _: Sequence[Part]) -> None:
        store = next(part for part in nemesis.parts if isinstance(part, Valkey))
        sidecars = [part for part in nemesis.parts if isinstance(part, Sidecar)]
        await asyncio.to_thread(hold_heads, sidecars)
        copy = folder / "copy"
        await asyncio.to_thread(shutil.copytree, store.folder, copy)
        await asyncio.sleep(2.0)
        with Recorder(folder / "history" / "loss.ndjson", "loss") as recorder:
            recorder.note(EventKind.DATA_LOST, note="roll back")
            recorder.flush()
            await asyncio.to_thread(store.kill)
            await asyncio.to_thread(shutil.rmtree, store.folder)
            await asyncio.to_thread(shutil.copytree, copy, store.folder)
            await asyncio.to_thread(store.start)
            start = time.monotonic()
            for each in sidecars:
                await asyncio.to_thread(wait_repaired, each)
            took_s.append(time.monotonic() - start)
            recorder.note(EventKind.HEALED, note="roll back")
        for each in sidecars:
            await nemesis.kill(each, down_ms=0)

    return script


def metric(sidecar: Sidecar, name: str) -> float:
    """The sum of a counter's series; 0 when nobody answers."""
    lines = told(sidecar, "/metrics").splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


def told(sidecar: Sidecar, path: str) -> str:
    """What the admin port answers with success, else nothing."""
    try:
        with urllib.request.urlopen(f"{sidecar.admin_url}{path}", timeout=60) as answer:  # noqa: S310
            return str(answer.read().decode())
    except OSError:
        return ""


def wait_repaired(sidecar: Sidecar) -> None:
    """Wait until it met the store's new run and has repeated to it what it knew."""
    end = time.monotonic() + REPAIRED_S
    while True:
        if metric(sidecar, "ackd_store_run_changes_total"):
            ready = told(sidecar, "/readyz")
            if ready and "acks are being repeated" not in ready:
                return
        assert time.monotonic() < end, (sidecar.name, told(sidecar, "/readyz"))
        time.sleep(0.02)


def hold_heads(sidecars: Sequence[Sidecar]) -> None:
    """Lease a message of every partition and say nothing more about it."""
    held: set[str] = set()
    end = time.monotonic() + 20
    while len(held) < PARTITIONS:
        assert time.monotonic() < end, held
        for each in sidecars:
            client = Http(each)
            found = client.receive(most=1, wait_ms=100, lease_ms=HELD_MS)
            held |= {str(message["id"]).rpartition("/")[0] for message in found}
            client.close()
