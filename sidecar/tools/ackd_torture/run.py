"""A whole run: start the parts (or none), let clients work, break things, drain, judge."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from ackd_torture.checker import Verdict, check
from ackd_torture.child import BrokerPart, Child, Part
from ackd_torture.consumer_process import command
from ackd_torture.history import histories, load
from ackd_torture.nemesis import Nemesis, Temper
from ackd_torture.parts import EmbeddedStore, Sidecar, SidecarPlan, Valkey, Value
from ackd_torture.proxy import Proxy
from ackd_torture.workload import Workload, WorkloadPlan

TRACES_MS = 200
"""How often sidecars write their traces: so much a kill takes with it."""
Say = Callable[[str], None]
Script = Callable[[Nemesis, Sequence[Part]], Awaitable[None]]


@dataclass(slots=True)
class Deployment:
    """What a run works against. Everything in it that has a `kill` was started by the run."""

    urls: list[str]
    sidecars: list[Sidecar] = field(default_factory=list)
    stores: Sequence[Part] = ()
    broker: BrokerPart | None = None
    proxies: list[Proxy] = field(default_factory=list)


class StoreServers(Protocol):
    """Several servers that together are the store, as behind Sentinel or in a cluster."""

    @property
    def url(self) -> str:
        """Address for `store.url`; known once they run."""

    def start(self) -> None:
        """Start all; returns when they serve."""

    def stop(self) -> None:
        """End all for good; never raises."""

    def parts(self) -> Sequence[Part]:
        """What of it may be broken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What to start. `store`: `embedded` (one sidecar) or `redis` (a server of our own).

    `durability`: what a settle waits for; a store of our own has a replica for `replicated`.
    `servers`: what takes the place of that one server and its replica.
    """

    broker: BrokerPart
    topic: str
    folder: Path
    store: str = "redis"
    servers: StoreServers | None = None
    durability: str = "everysec"
    sidecars: int = 2
    partitions: int = 4
    proxied: bool = True
    plan: Callable[[SidecarPlan], SidecarPlan] = lambda plan: plan


def traced_in(folder: Path) -> dict[str, Value]:
    """Settings of traces: every span, into files of a folder that all sidecars share."""
    return {"files": True, "folder": str(folder), "flush_ms": TRACES_MS}


@contextlib.asynccontextmanager
async def deployed(setup: Setup) -> AsyncIterator[Deployment]:
    """Start everything; at the end stop it all, in whatever state it is."""
    async with contextlib.AsyncExitStack() as stack:
        broker = setup.broker
        stack.callback(broker.stop)
        await asyncio.to_thread(broker.start)
        await asyncio.to_thread(broker.create_topic, setup.topic, setup.partitions)
        proxies: list[Proxy] = []
        stores: Sequence[Part] = ()
        url = "embedded"
        if setup.servers is not None:
            stack.callback(setup.servers.stop)
            await asyncio.to_thread(setup.servers.start)
            stores, url = setup.servers.parts(), setup.servers.url
        elif setup.store == "redis":
            stores = [store, *_] = await _stores(stack, setup)
            url = store.url
            if setup.proxied:
                proxies.append(await _proxied(stack, "way to the store", store.port))
                url = f"redis://127.0.0.1:{proxies[0].port}/0"
        sections = {"traces": traced_in(setup.folder / "traces")}
        base = SidecarPlan(broker=broker, store_url=url, topic=setup.topic, sections=sections)
        if setup.durability != "everysec":
            base = replace(base, store={"durability": setup.durability})
        plan = setup.plan(base)
        sidecars = [Sidecar(f"s{n + 1}", plan, setup.folder) for n in range(setup.sidecars)]
        for each in sidecars:
            stack.callback(each.stop)
            each.launch()
        for each in sidecars:
            await asyncio.to_thread(each.wait_ready)
        urls = [each.url for each in sidecars]
        if setup.proxied:
            proxies += [await _proxied(stack, f"way to {s.name}", s.port) for s in sidecars]
            # Half of what clients say goes through proxies, so that both ways are known to work.
            urls += [f"http://127.0.0.1:{each.port}" for each in proxies if "way to s" in each.name]
        yield Deployment(urls, sidecars, stores or [EmbeddedStore(sidecars[0])], broker, proxies)


async def _stores(stack: contextlib.AsyncExitStack, setup: Setup) -> list[Valkey]:
    """A server, and its replica if settles wait for one."""
    fsync = "always" if setup.durability == "always" else "everysec"
    found = [await _started(stack, Valkey(setup.folder, fsync=fsync))]
    if setup.durability == "replicated":
        copy = Valkey(setup.folder, "replica of the store", primary=found[0])
        found.append(await _started(stack, copy))
    return found


async def _started(stack: contextlib.AsyncExitStack, store: Valkey) -> Valkey:
    stack.callback(store.stop)
    await asyncio.to_thread(store.start)
    return store


async def _proxied(stack: contextlib.AsyncExitStack, name: str, target: int) -> Proxy:
    proxy = Proxy(name, target)
    await proxy.start()
    stack.push_async_callback(proxy.stop)
    return proxy


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """How a run goes: seconds of calm work first, then faults, then draining.

    `kills` 0 and no `parts` make a plain load test with a verdict. `workers`: consumer processes
    beside the clients in this process, which are killed too.
    """

    seed: int
    warm_s: float = 2.0
    kills: int = 10
    calm_work_s: float = 0.0
    drain_s: float = 90.0
    calm_s: float = 10.0
    workers: int = 1
    temper: Temper = field(default_factory=Temper)


async def torture(
    deployment: Deployment,
    parts: Sequence[Part],
    plan: WorkloadPlan,
    course: Course,
    say: Say = lambda _: None,
    script: Script | None = None,
) -> tuple[Verdict, dict[str, object]]:
    """Work, break, drain and judge. Returns the verdict and what to tell beside it.

    A `script` takes the place of random faults: it is given the nemesis and the worker processes.
    """
    rng = random.Random(course.seed)  # noqa: S311  a seed is the point
    workload = Workload(plan)
    workers = [_worker(plan, number) for number in range(course.workers)]
    nemesis = Nemesis([*parts, *workers], deployment.proxies, plan.folder, rng, course.temper, say)
    try:
        async with workload.running():
            for each in workers:
                each.start()
            await asyncio.sleep(course.warm_s)
            say(f"{len(workload.tally.confirmed)} published, {len(workload.tally.acked)} acked")
            if script is not None:
                await script(nemesis, workers)
            elif course.kills:
                await nemesis.rage(course.kills)
            await asyncio.sleep(course.calm_work_s)
            for each in workers:
                await asyncio.to_thread(each.kill)
            left = len(workload.tally.unfinished())
            say(f"no more faults; {left} messages are unfinished, draining")
            others = [path for path in histories(plan.folder) if "-worker" in path.name]
            await workload.drain(course.drain_s, course.calm_s, others)
    finally:
        for each in workers:
            each.stop()
        nemesis.close()
    say("reading the histories")
    events = await asyncio.to_thread(lambda: load(histories(plan.folder)))
    verdict = await asyncio.to_thread(check, events)
    about: dict[str, object] = {
        "seed": course.seed,
        "kills": nemesis.kills,
        "faults": sum(nemesis.done.values()),
        "done": dict(sorted(nemesis.done.items())),
        "requests without an answer": workload.tally.unanswered,
    }
    return verdict, about


def _worker(plan: WorkloadPlan, number: int) -> Child:
    name = f"{plan.name}-worker{number}"
    facts = {each: getattr(plan, each) for each in WorkloadPlan.__slots__}
    facts |= {"name": name, "publishers": 0, "consumers": 2, "backlog": 0}
    return Child(
        f"application {number + 1}", command(WorkloadPlan(**facts)), plan.folder / f"{name}.log"
    )
