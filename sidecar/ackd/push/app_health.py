"""Watches the application beside the sidecar: it gets messages only while it is healthy."""

from __future__ import annotations

import asyncio
import errno
import logging
from typing import Protocol

import aiohttp

from ackd.config.app_health import AppSettings
from ackd.errors import AckdError

LOG = logging.getLogger("ackd.push")
WAITING = "the application is not well yet"


class Gated(Protocol):
    """What the health check pauses: the engine."""

    def pause_unhealthy(self, why: str | None) -> None:
        """Deliver nothing, for this reason; None: deliver again."""

    async def end_held(self) -> int:
        """End every lease of applications here, counted; returns how many. Raises StoreError."""


class AppHealth:
    """Asks the application, and pauses the engine until the application is healthy."""

    def __init__(self, settings: AppSettings, engine: Gated) -> None:
        self._settings = settings
        self._engine = engine
        self._failures = 0
        self.well = False

    async def run(self) -> None:
        """Ask at intervals, until cancelled."""
        self._engine.pause_unhealthy(WAITING)
        timeout = aiohttp.ClientTimeout(total=self._settings.health_timeout_ms / 1000)
        async with aiohttp.ClientSession(timeout=timeout, trust_env=False) as session:
            while True:
                await self._look(session)
                await asyncio.sleep(self._settings.health_every_ms / 1000)

    async def _look(self, session: aiohttp.ClientSession) -> None:
        why, gone = await self._ask(session)
        if not why:
            self._failures = 0
            if not self.well:
                self.well = True
                LOG.info("the application passes its health check: ackd delivers")
                self._engine.pause_unhealthy(None)
            return
        self._failures += 1
        if not self.well or not (gone or self._failures >= self._settings.health_failures):
            return
        self.well = False
        LOG.warning(
            "the application fails its health check, ackd delivers nothing: %s",
            why,
        )
        self._engine.pause_unhealthy(f"the application is not well: {why}")
        if gone and self._settings.down_leases == "retry":
            await self._end()

    async def _ask(self, session: aiohttp.ClientSession) -> tuple[str, bool]:
        """Ask once. Returns why the application is not healthy (empty: it is), and whether nobody
        listens there.
        """
        try:
            async with session.get(self._settings.health_url, allow_redirects=False) as answer:
                return ("" if answer.ok and answer.status < 300 else f"HTTP {answer.status}"), False  # noqa: PLR2004 - 2xx
        except aiohttp.ClientConnectorError as error:
            return "nobody listens", error.os_error.errno == errno.ECONNREFUSED
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            return str(error) or type(error).__name__, False

    async def _end(self) -> None:
        try:
            LOG.warning(
                "nobody listens at the application's port: ackd ended its %d leases",
                await self._engine.end_held(),
            )
        except AckdError as error:
            LOG.warning(
                "ackd could not end the application's leases, they end at their deadlines: %s",
                error,
            )
