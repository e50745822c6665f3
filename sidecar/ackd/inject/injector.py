"""`ackd inject serve`: serves the mutating webhook and keeps the API server's trust in it.

It has two ports: TLS for the API server, plain HTTP for probes and metrics. After SIGTERM it is no
longer ready but answers for a while, because API servers learn of that later.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from aiohttp import web
from prometheus_client.exposition import choose_encoder

from ackd.config.address import TcpAddress
from ackd.errors import BadBodyError, ConfigError
from ackd.inject.api import Access, Api
from ackd.inject.inject_metrics import InjectMetrics
from ackd.inject.old import count_old
from ackd.inject.pod_events import Events
from ackd.inject.review import judge
from ackd.inject.settings import InjectSettings
from ackd.inject.trust import Files, Source, Trust

LOG = logging.getLogger("ackd.inject")

BODY_BYTES_MAX = 8 * 1024 * 1024
"""Larger than any object that etcd accepts."""
BODY_TIMEOUT_S = 5.0
BY_NAMESPACE = "/mutate/namespace"
REFRESH_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to serve. `cert` and `key` name files that somebody else writes, who then also fills the
    webhook's caBundle. With `old_every_s` 0 the injector does not look for old sidecars.
    """

    listen: TcpAddress
    health_listen: TcpAddress
    webhook: str
    service: str
    namespace: str
    life: timedelta = timedelta(hours=24)
    drain_s: float = 5.0
    old_every_s: float = 300.0
    events: bool = True
    cert: Path | None = None
    key: Path | None = None

    def hosts(self) -> list[str]:
        """DNS names of the webhook's Service; the API server checks the first one."""
        base = f"{self.service}.{self.namespace}"
        return [f"{base}.svc", f"{base}.svc.cluster.local", base, self.service]


class Injector:
    """The request handlers. `source` knows whether the API server trusts us."""

    def __init__(
        self,
        settings: InjectSettings,
        source: Source,
        metrics: InjectMetrics,
        events: Events | None,
    ) -> None:
        self.settings = settings
        self.metrics = metrics
        self.stopping = False
        self._source = source
        self._events = events
        metrics.info.labels(settings.version, settings.hash).set(1)

    async def mutate(self, request: web.Request) -> web.Response:
        """POST /mutate and /mutate/namespace: answer an admission review."""
        begin = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(BODY_TIMEOUT_S):
                body = await request.read()
            judged = judge(body, self.settings, by_namespace=request.path == BY_NAMESPACE)
        except (BadBodyError, TimeoutError) as error:
            self.metrics.pods.labels("bad-review").inc()
            return web.Response(status=400, text=str(error) or "the body did not come in time")
        self.metrics.pods.labels(judged.decision.reason).inc()
        if judged.decision.refusal:
            LOG.info(
                "the webhook refused a pod in namespace %s: %s",
                judged.request.namespace,
                judged.decision.refusal,
            )
        changed = judged.decision.refusal or judged.decision.patch
        if changed and self._events is not None and not judged.request.dryRun:
            self._events.tell(judged.request.object, judged.request.namespace, judged.decision)
        self.metrics.seconds.observe(asyncio.get_running_loop().time() - begin)
        return web.Response(body=judged.answer, content_type="application/json")

    async def livez(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(self, _: web.Request) -> web.Response:
        """GET /readyz: 503 with the reason until the API server trusts us, and while stopping."""
        if self.stopping:
            return web.Response(status=503, text="stopping\n")
        if not self._source.established:
            return web.Response(status=503, text="the API server was not told our authority yet\n")
        return web.Response(text="ok\n")

    async def show_metrics(self, request: web.Request) -> web.Response:
        encode, kind = choose_encoder(request.headers.get("Accept", ""))
        body = encode(self.metrics.registry)
        return web.Response(body=body, headers={"Content-Type": kind})

    def webhook_app(self) -> web.Application:
        """The routes for the API server."""
        app = web.Application(client_max_size=BODY_BYTES_MAX)
        app.router.add_post("/mutate", self.mutate)
        app.router.add_post(BY_NAMESPACE, self.mutate)
        return app

    def health_app(self) -> web.Application:
        """The routes for probes and scrapers."""
        app = web.Application(client_max_size=1024)
        app.router.add_get("/livez", self.livez)
        app.router.add_get("/readyz", self.readyz)
        app.router.add_get("/metrics", self.show_metrics)
        return app

    async def refresh(self) -> None:
        """Update the gauges every `REFRESH_S`, until cancelled."""
        source, metrics = self._source, self.metrics
        while True:
            metrics.trusted.set(source.established)
            metrics.trust_errors.set(source.errors)
            if isinstance(source, Trust):
                metrics.certificate_end.set(source.identity.end.timestamp())
            if self._events is not None:
                metrics.events_dropped.set(self._events.dropped)
            await asyncio.sleep(REFRESH_S)


async def serve(
    settings: InjectSettings,
    access: Access,
    options: Options,
    *,
    started: Callable[[int, int], None] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT. Raises ConfigError at the start.

    Calls `started` with both ports (webhook, health) once they are open.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with Api(access) as api:
        source = _source(api, options)
        events = Events(api) if options.events else None
        injector = Injector(settings, source, InjectMetrics(), events)
        runners = [web.AppRunner(app) for app in (injector.webhook_app(), injector.health_app())]
        works = [source.run(), injector.refresh()]
        if events is not None:
            works.append(events.run())
        if options.old_every_s:
            works.append(count_old(api, settings, injector.metrics, options.old_every_s))
        try:
            async with asyncio.TaskGroup() as group:
                ports = await _open(runners, source, options)
                tasks = [group.create_task(work) for work in works]
                if started is not None:
                    started(*ports)
                await stop.wait()
                injector.stopping = True
                LOG.info("the webhook stops in %.0f s", options.drain_s)
                await asyncio.sleep(options.drain_s)
                for task in tasks:
                    task.cancel()
        finally:
            for work in works:
                work.close()
            for runner in runners:
                await runner.cleanup()
    LOG.info("the webhook has stopped")


def _source(api: Api, options: Options) -> Source:
    if options.cert is None or options.key is None:
        return Trust(api, options.webhook, options.hosts(), options.life)
    try:
        return Files(options.cert, options.key)
    except OSError as error:
        raise ConfigError(f"{options.cert}, {options.key}: can't be used: {error}") from error


async def _open(runners: list[web.AppRunner], source: Source, options: Options) -> list[int]:
    ports = []
    places = ((options.listen, source.tls), (options.health_listen, None))
    for runner, (address, tls) in zip(runners, places, strict=True):
        await runner.setup()
        site = web.TCPSite(runner, address.host or None, address.port, ssl_context=tls)
        try:
            await site.start()
        except OSError as error:
            raise ConfigError(f"can't listen on {address}: {error.strerror or error}") from error
        ports.append(int(runner.addresses[0][1]))
        LOG.info("the webhook listens on %s", address)
    return ports
