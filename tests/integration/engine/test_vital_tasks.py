"""An inner task that dies makes the sidecar unready and ends it: each is killed in turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from ackd.config.peers import PeerSettings
from ackd.config.schema import BrokerSettings, Settings
from ackd.config.subscription import SubscriptionSettings
from ackd.engine.base.tasks import Vitals
from ackd.engine.runtime import Runtime
from ackd.peer.network import TcpPeers
from ackd.store.memory import MemoryStore
from ackd.telemetry.metrics import Metrics
from ackd_adapters.local import adapter as local_adapter
from ackd_adapters.local.config import LocalOptions
from tests.support.wait import wait_until_async

NAME = "work"
NOT_VITAL = {"runtime.dead-letter-gauges", "runtime.gauges", "runtime.idempotency-gauges"}
"""Without them figures are missing, and every message is served."""
LEAST = 15
"""Fewer tasks than these would mean that the walk does not find them."""


@asynccontextmanager
async def started(folder: Path) -> AsyncIterator[tuple[Runtime, dict[str, asyncio.Task[Any]]]]:
    """A sidecar with a local queue and links, ready; and the tasks that run in it, by name."""
    before = asyncio.all_tasks()
    metrics, vitals = Metrics(), Vitals()
    runtime = Runtime(
        Settings(
            identity="one",
            state_dir=folder / "state",
            brokers={"b": BrokerSettings(adapter="any")},
            subscriptions={
                NAME: SubscriptionSettings(
                    broker="b", topics=("orders",), group=NAME, start="earliest"
                )
            },
        ),
        store=MemoryStore(),
        brokers={"b": local_adapter.open("b", LocalOptions(path=folder / "queue", partitions=1))},
        metrics=metrics,
        vitals=vitals,
        peers=TcpPeers("one", PeerSettings(on=True), metrics, vitals),
    )
    await runtime.start()
    try:

        async def ready() -> bool:
            return all(reason.ok for reason in runtime.readiness())

        await wait_until_async(ready, "the sidecar to be ready")
        found = asyncio.all_tasks() - before
        yield runtime, {name_of(each): each for each in found if not each.done()}
    finally:
        await runtime.stop()


def name_of(task: asyncio.Task[Any]) -> str:
    """As its owner calls it; a loop of a task group as the function that it runs."""
    coroutine: Any = task.get_coro()
    if coroutine.__qualname__ != "endless":
        return task.get_name()
    return str(coroutine.cr_frame.f_locals["run"].__qualname__)


def kill(task: asyncio.Task[Any]) -> None:
    """End its coroutine by an error that nobody foresaw; the task notices when it goes on."""
    coroutine: Any = task.get_coro()
    with suppress(RuntimeError, StopIteration, asyncio.CancelledError):
        coroutine.throw(RuntimeError("planted"))
    task.cancel()


async def test_a_vital_task_that_dies_makes_the_sidecar_unready_and_ends_it(
    tmp_path: Path,
) -> None:
    """`ackd serve` ends as soon as `Vitals` has a failure (`tests/unit/engine/base`)."""
    async with started(tmp_path / "first") as (_, tasks):
        names = sorted(tasks)
    assert len(names) >= LEAST, names
    assert set(names) >= NOT_VITAL
    for number, name in enumerate(names):
        async with started(tmp_path / str(number)) as (runtime, tasks):
            task = tasks[name]
            kill(task)
            if name in NOT_VITAL:
                await asyncio.wait([task])
                assert all(reason.ok for reason in runtime.readiness()), name
                assert runtime.vitals.failure == "", name
                continue
            async with asyncio.timeout(10):
                await runtime.vitals.wait()
            assert runtime.vitals.failure, name
            assert not all(reason.ok for reason in runtime.readiness()), name
