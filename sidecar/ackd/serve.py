"""`ackd serve`: engine and ports from start to a draining stop.

SIGTERM or SIGINT starts the drain: `/readyz` turns to 503, and partitions go to other sidecars at
once. Receives are served over links until the leases that were open have ended; then they are
answered 503, waiting ones end, and settles are served until nothing is leased any more. All that
lasts for `server.drain_ms` at most. With `server.stop = "release"`, leases are given back instead.
A second signal ends the drain at once.

When a task that nothing works without ends by an error (`ackd.engine.base.tasks.Vitals`), the
process stops without a drain, which could not go well, and with a failure.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
from collections.abc import Callable, Coroutine

from ackd import malloc
from ackd.config.schema import ServerSettings, Settings
from ackd.config.store_url import parse_store_url
from ackd.engine.base.context import SystemClock
from ackd.engine.base.tasks import Tasks, Vitals
from ackd.engine.runtime import Runtime
from ackd.errors import AckdError, BugError
from ackd.http.listen import Listener
from ackd.peer.network import TcpPeers
from ackd.push.app_health import WAITING, AppHealth
from ackd.push.push_manager import PushManager
from ackd.sqs.sqs_port import SqsPort
from ackd.telemetry.metrics import Metrics

LOG = logging.getLogger("ackd.http")
SIGNALS = (signal.SIGTERM, signal.SIGINT)
SERVE_SHARE = 0.75
"""Of the drain's time; the rest is for settles of what was handed out meanwhile."""
GC_THRESHOLDS = (20_000, 20, 20)
"""Requests make no cycles, so nearly all that the collector looks at is alive: with Python's own
700 it took 2.5 % of the time with single messages and 3.5 % with batches of 32.
"""


async def serve(settings: Settings, *, started: Callable[[Listener], None] | None = None) -> None:
    """Run until a signal asks to stop. Raises ConfigError, StoreError, BrokerError at the start,
    and BugError when a vital task has ended.

    `started` is called once the data port is open.
    """
    stop = asyncio.Event()
    hurry = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, _signalled, stop, hurry)
    runtime = _runtime(settings)
    listener = Listener(runtime, settings.server, runtime.metrics, runtime.vitals)
    listener.service.starting = True
    push_manager = PushManager(runtime, settings.subscriptions, runtime.metrics, runtime.vitals)

    watching = Tasks("app", runtime.vitals)

    def quiesce() -> None:
        listener.service.draining = True
        push_manager.drain()
        runtime.quiesce()

    listener.service.quiesce = quiesce
    try:
        await listener.start()
        if await _first(runtime.start(), stop):
            if settings.app.health_url:
                runtime.pause_unhealthy(WAITING)
                watching.start(AppHealth(settings.app, runtime).run(), "health")
            listener.service.starting = False
            await listener.open_data()
            if settings.sqs.listen:
                await _open_sqs(listener, settings)
            await push_manager.start()
            LOG.info(
                "ackd listens on %s for applications and on %s for operators",
                listener.address("data"),
                listener.address("admin"),
            )
            if started is not None:
                started(listener)
            # What exists now lives as long as the process: the collector needn't look at it again.
            gc.collect()
            gc.freeze()
            gc.set_threshold(*GC_THRESHOLDS)
            watching.start(malloc.give_back(), "malloc", vital=False)
            if await _first(runtime.vitals.wait(), stop):
                raise BugError(f"{runtime.vitals.failure}: the process ends, to be started again")
            LOG.info("ackd stops, draining for at most %d ms", settings.server.drain_ms)
            push_manager.drain()
            await _drain(runtime, hurry, settings.server, quiesce)
    finally:
        await watching.stop()
        await push_manager.stop()
        await listener.stop()
        await runtime.stop()
        for number in SIGNALS:
            loop.remove_signal_handler(number)
    LOG.info("ackd has stopped")


def _runtime(settings: Settings) -> Runtime:
    """Build the engine, with links to other sidecars if they are on."""
    metrics, vitals, peers = Metrics(), Vitals(), settings.peers
    linked = peers.on and not parse_store_url(settings.store.url).private
    network = TcpPeers(settings.identity, peers, metrics, vitals) if linked else None
    return Runtime(settings, metrics=metrics, vitals=vitals, peers=network)


async def _open_sqs(listener: Listener, settings: Settings) -> None:
    """Serve SQS clients, too. Raises ConfigError."""
    port = SqsPort(listener.service, settings.sqs, settings.publish, SystemClock())
    await port.load()
    await listener.open_more(port.app, settings.sqs.listen, guarded=not port.credentials.open)
    LOG.info("ackd listens on %s for SQS clients", listener.address("sqs"))


def _signalled(stop: asyncio.Event, hurry: asyncio.Event) -> None:
    (hurry if stop.is_set() else stop).set()


async def _first(work: Coroutine[None, None, None], stop: asyncio.Event) -> bool:
    """Do `work` unless `stop` comes first; whether it was done."""
    return await _race(work, stop, None)


async def _drain(
    runtime: Runtime, hurry: asyncio.Event, server: ServerSettings, quiesce: Callable[[], None]
) -> None:
    """Let the engine drain within its time. A failure is logged: the stop goes on."""
    if server.stop == "wait":
        work = runtime.drain(server.drain_ms * SERVE_SHARE / 1000, quiesce)
    else:
        quiesce()
        work = _give_back(runtime)
    try:
        if not await _race(work, hurry, server.drain_ms / 1000):
            LOG.warning(
                "time or a second signal ended the drain: open leases end at their deadlines"
            )
    except AckdError as error:
        LOG.warning("the drain failed, ackd stops nevertheless: %s", error)


async def _give_back(runtime: Runtime) -> None:
    LOG.info("ackd released %d leases", await runtime.give_back())


async def _race(
    work: Coroutine[None, None, None], end: asyncio.Event, timeout_s: float | None
) -> bool:
    """Run `work` until it is done, `end` is set or the time is over; whether it was done."""
    async with asyncio.TaskGroup() as group:
        working = group.create_task(work)
        ending = group.create_task(end.wait())
        await asyncio.wait({working, ending}, timeout=timeout_s, return_when="FIRST_COMPLETED")
        done = working.done()
        working.cancel()
        ending.cancel()
    return done
