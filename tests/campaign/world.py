"""One world: started, worked in, broken, drained, judged."""

import asyncio
import contextlib
import random
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ackd_torture.checker import Verdict
from ackd_torture.child import Part
from ackd_torture.history import histories, load
from ackd_torture.nemesis import Nemesis, Temper
from ackd_torture.parts import Sidecar, SidecarPlan, Valkey
from ackd_torture.run import Course, Deployment, Script, Setup, StoreServers, deployed, torture
from ackd_torture.workload import WorkloadPlan
from tests.campaign.brokers import Brokers
from tests.campaign.plan import WorldPlan
from tests.campaign.stores import ClusterStore, Disk, SentinelStore
from tests.chaos.judged import CALM_S, DRAIN_S, LEASE_MS, parts_of, plan_of
from tests.chaos.stalls import Flow, flow
from tests.support.paths import remove_run_dir, run_dir
from tests.support.rocketmq.part import RocketMQAt

WORLD_S_MAX = 900.0
FULL_MS = (500, 4_000)
"""For how long a disk is full."""
PAUSE_S = (2.0, 8.0)
"""Between restarts, and between fills."""
ROCKETMQ_CALM_S = 12.0
KEYS = 300


@dataclass(frozen=True, slots=True)
class Judged:
    """What came of a world. `seconds`: the whole, with starting and draining."""

    verdict: Verdict
    about: dict[str, object]
    flow: Flow
    seconds: float


def run(plan: WorldPlan, brokers: Brokers, keep: Path) -> Judged:
    """Run it. When a promise was broken (or the world broke down), histories and logs are copied
    to `keep`. Raises TimeoutError, and what parts raise that do not start.
    """
    start = time.monotonic()
    folder = run_dir("world")
    kept = False
    try:
        verdict, about = asyncio.run(_bounded(plan, brokers, folder))
        kept = verdict.kept
        seen = flow(load(histories(folder / "history")))
        return Judged(verdict, about, seen, time.monotonic() - start)
    finally:
        if not kept:
            shutil.rmtree(keep, ignore_errors=True)
            shutil.copytree(folder, keep, ignore=shutil.ignore_patterns("*.sock", "s"))
        remove_run_dir(folder)


async def _bounded(
    plan: WorldPlan, brokers: Brokers, folder: Path
) -> tuple[Verdict, dict[str, object]]:
    async with asyncio.timeout(WORLD_S_MAX):
        return await _torture(plan, brokers, folder)


async def _torture(
    plan: WorldPlan, brokers: Brokers, folder: Path
) -> tuple[Verdict, dict[str, object]]:
    broker = await asyncio.to_thread(brokers.part, plan.broker, folder, ordered=bool(plan.ordering))
    topic = f"world-{plan.seed}-{time.time_ns() % 1_000_000}"
    disk = Disk(folder / "store") if plan.full_disk and Disk.allowed() else None
    setup = Setup(
        broker=broker,
        topic=topic,
        folder=folder,
        store="embedded" if plan.store == "embedded" else "redis",
        servers=_servers(plan, folder / "history"),
        durability=plan.durability,
        sidecars=plan.sidecars,
        partitions=plan.partitions,
        plan=lambda found: _configured(found, plan, topic),
    )
    course = Course(
        seed=plan.seed,
        kills=plan.kills,
        drain_s=DRAIN_S,
        calm_s=ROCKETMQ_CALM_S if isinstance(broker, RocketMQAt) else CALM_S,
        temper=Temper(
            pause_ms=plan.pause_ms,
            down_ms=plan.down_ms,
            frozen_ms=plan.frozen_ms,
            freeze=plan.freeze,
            cut=plan.cut,
        ),
    )
    with disk.mounted() if disk else contextlib.nullcontext():
        async with deployed(setup) as deployment:
            parts = parts_of(deployment, hurt_broker=plan.broker != "local")
            load_plan = _load(plan_of(setup, deployment, plan.seed, plan.rate_per_s), plan)
            script = _script(plan, deployment, disk)
            return await torture(deployment, parts, load_plan, course, script=script)


def _servers(plan: WorldPlan, history: Path) -> StoreServers | None:
    """Stores of several servers. Without `replicated` a failover may forget, which is noted."""
    losses = None if plan.durability == "replicated" else history
    match plan.store:
        case "sentinel":
            return SentinelStore(losses)
        case "cluster":
            return ClusterStore(losses)
        case _:
            return None


def _configured(found: SidecarPlan, plan: WorldPlan, topic: str) -> SidecarPlan:
    subscription = {"lease_ms": LEASE_MS, **found.subscription}
    if plan.ordering:
        subscription["ordering"] = plan.ordering
    return replace(found, group=f"{topic}-group", subscription=subscription)


def _load(found: WorkloadPlan, plan: WorldPlan) -> WorkloadPlan:
    return replace(
        found,
        publish_max=plan.publish_max,
        batch_max=plan.batch_max,
        work_ms_max=20,
        consumers=12,
        keys=KEYS if plan.ordering else 0,
        ordering=plan.ordering,
    )


def _script(plan: WorldPlan, deployment: Deployment, disk: Disk | None) -> Script:
    """Random faults, and beside them orderly restarts and full disks, as the plan wants them."""

    async def script(nemesis: Nemesis, _: Sequence[Part]) -> None:
        rng = random.Random(f"beside {plan.seed}")
        over = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            if plan.restarts:
                group.create_task(_restarts(nemesis, rng, deployment.sidecars, over))
            if disk is not None:
                store = next(each for each in deployment.stores if isinstance(each, Valkey))
                group.create_task(_fills(nemesis, rng, disk, store, over))
            await nemesis.rage(plan.kills)
            over.set()

    return script


async def _pause(rng: random.Random, over: asyncio.Event) -> bool:
    """Wait a while; False when nothing more is to be broken."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(over.wait(), rng.uniform(*PAUSE_S))
    return not over.is_set()


async def _restarts(
    nemesis: Nemesis, rng: random.Random, sidecars: Sequence[Sidecar], over: asyncio.Event
) -> None:
    while await _pause(rng, over):
        found = rng.choice(sidecars)
        if nemesis.whole(found.name):
            await nemesis.restart(found)


async def _fills(
    nemesis: Nemesis, rng: random.Random, disk: Disk, store: Valkey, over: asyncio.Event
) -> None:
    def end() -> None:
        disk.free()
        if not store.running:  # a store that must write to its disk at once ends without room
            store.start()

    while await _pause(rng, over):
        if nemesis.whole(store.name):
            for_ms = rng.randint(*FULL_MS)
            await nemesis.strike("fill disk of", store.name, disk.fill, end, for_ms)
