"""An inner task that dies makes the sidecar unready and ends it: each is killed in turn."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from ackd.config.app_health import AppSettings
from ackd.config.dedup import DedupSettings
from ackd.config.peers import PeerSettings
from ackd.config.push import PushSettings
from ackd.config.schema import BrokerSettings, ServerSettings, Settings, StoreSettings
from ackd.config.sqs import SqsSettings
from ackd.config.subscription import SubscriptionSettings
from ackd.engine.base.tasks import Vitals
from ackd.engine.runtime import Runtime
from ackd.errors import BugError
from ackd.peer.network import TcpPeers
from ackd.serve import serve
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


# --- what only the whole process has: its ports, push, the application's health

MORE = {
    "app.health",
    "http.sweep-admin",
    "http.sweep-data",
    "http.sweep-health",
    "http.sweep-sqs",
    "http.token-admin",
    "http.token-data",
    "push.work",
    "Dedup._look_up",
    "Dedup._remember_all",
}
NOBODY = "127.0.0.1:0"


def everything(folder: Path) -> Settings:
    """Each part of a sidecar that is off by default and has a task is on."""
    token = folder / "token"
    token.write_text("secret\n")
    address = f"http://{NOBODY.replace(':0', ':9')}/"
    return Settings(
        identity="one",
        state_dir=folder / "state",
        server=ServerSettings(
            listen=NOBODY,
            admin_listen=NOBODY,
            health_listen=NOBODY,
            token_file=token,
            admin_token_file=token,
        ),
        store=StoreSettings(url="memory"),
        app=AppSettings(health_url=address),
        sqs=SqsSettings(listen=NOBODY),
        brokers={
            "b": BrokerSettings(
                adapter="local", options=LocalOptions(path=folder / "queue", partitions=1)
            )
        },
        subscriptions={
            NAME: SubscriptionSettings(
                broker="b",
                topics=("orders",),
                group=NAME,
                start="earliest",
                push=PushSettings(url=address),
                dedup=DedupSettings(key="key"),
            )
        },
    )


@contextmanager
def process_kept() -> Iterator[None]:
    """What `serve` sets for its whole process is as before in the end."""
    handlers = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}
    thresholds = gc.get_threshold()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)
        for number, handler in handlers.items():
            signal.signal(number, handler)


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[tuple[asyncio.Task[None], dict[str, Any]]]:
    """`ackd serve` in a task of this loop; and the tasks that run in it, by name."""
    await asyncio.to_thread(folder.mkdir)
    settings = await asyncio.to_thread(everything, folder)
    before, up = asyncio.all_tasks(), asyncio.Event()
    serving = asyncio.create_task(  # noqa: TID251  held here
        serve(settings, started=lambda _: up.set())
    )
    try:

        async def running() -> dict[str, Any] | None:
            assert not serving.done(), serving
            found = {name_of(each): each for each in asyncio.all_tasks() - before}
            return found if up.is_set() and found.keys() >= MORE else None

        found = await wait_until_async(running, "every task to run")
        assert found is not None
        yield serving, found
    finally:
        serving.cancel()
        await asyncio.wait([serving])


async def ends_without(folder: Path, name: str) -> None:
    """Kill one task of a running sidecar: the sidecar ends, and says why."""
    async with served(folder) as (serving, tasks):
        kill(tasks[name])
        await asyncio.wait([serving], timeout=60)
        assert serving.done(), f"{name} has ended, and the process runs on"
        with pytest.raises(BugError, match="has ended"):
            serving.result()


@pytest.mark.timeout(240)
def test_a_task_of_the_ports_of_push_or_of_deduplication_that_dies_ends_the_process(
    tmp_path: Path,
) -> None:
    with process_kept():
        for name in sorted(MORE):
            asyncio.run(ends_without(tmp_path / name, name))
