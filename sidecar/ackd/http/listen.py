"""Listening on both ports: addresses, socket files, and closing in good order."""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import suppress
from functools import cache
from pathlib import Path

import orjson

from ackd.api.messages import Engine
from ackd.config.address import Address, TcpAddress, UnixAddress, parse_address
from ackd.config.schema import ServerSettings
from ackd.engine.base.tasks import Tasks, Vitals
from ackd.errors import ConfigError
from ackd.http.openapi import document
from ackd.http.routes import ROUTES
from ackd.http.server.app import App, Pages
from ackd.http.server.auth import TokenFile
from ackd.http.server.router import Port
from ackd.http.server.service import Service, limits_of
from ackd.telemetry.metrics import Metrics

LOG = logging.getLogger("ackd.http")

BACKLOG = 512
# Probes, scrapers and people share the admin port; its connections are not the applications'.
ADMIN_CONNECTIONS_MAX = 100
# What a request gets to finish when the ports close; long polls have ended before.
FINISH_S = 1.0
# Owner and group may connect: application containers share the volume through a group.
SOCKET_MODE = 0o660


@cache
def _document(port: Port) -> bytes:
    return orjson.dumps(document(ROUTES, port))


class Listener:
    """All ports: `start` binds those of operators and probes, `open_data` that of applications."""

    def __init__(
        self,
        engine: Engine,
        settings: ServerSettings,
        metrics: Metrics,
        vitals: Vitals | None = None,
    ) -> None:
        self._settings = settings
        self._tasks = Tasks("http", vitals)
        limits = limits_of(settings)
        self.service = Service(
            engine,
            settings,
            metrics,
            spawn=lambda work: self._tasks.start(work, "abandon", vital=False, ends=True),
        )
        self.service.document = _document
        admin_limits = limits_of(settings)
        admin_limits.connections_max = ADMIN_CONNECTIONS_MAX
        data_token = TokenFile(settings.token_file)
        admin_token = TokenFile(settings.admin_token_file)
        self.data = App("data", self.service, data_token, limits, ROUTES)
        self.admin = App("admin", self.service, admin_token, admin_limits, ROUTES)
        self.health = App("health", self.service, TokenFile(None), limits_of(settings), ROUTES)
        self.health.limits.connections_max = ADMIN_CONNECTIONS_MAX
        self._apps = [self.data, self.admin, self.health]
        self._sockets: dict[Port, asyncio.Server] = {}
        self._files: list[Path] = []

    async def start(self) -> None:
        """Serve the admin port. Raises ConfigError when its address can't be had."""
        await self._bind(self.admin, self._settings.admin_listen)
        if self._settings.health_listen:
            await self._bind(self.health, self._settings.health_listen)

    async def open_data(self) -> None:
        """Serve the data port. Raises ConfigError when its address can't be had."""
        await self._bind(self.data, self._settings.listen)

    async def open_more(self, app: App, text: str, *, guarded: bool) -> None:
        """Serve a port of another protocol; `guarded`: its requests are checked by themselves.
        Raises ConfigError as above.
        """
        self._apps.append(app)
        await self._bind(app, text, guarded=guarded)

    async def _bind(self, app: App, text: str, *, guarded: bool = False) -> None:
        address = parse_address(text)
        guarded = guarded or app.port == "health"
        if not (address.local or guarded) and app.token.open:
            raise ConfigError(f"{address} can be reached by others: it needs a token file.")
        if isinstance(address, TcpAddress) and not guarded:
            app.pages = Pages((address.host, *self._settings.hosts))
        try:
            await app.token.load()
        except OSError as error:
            raise ConfigError(f"token file {app.token.path}: {error.strerror}") from error
        try:
            self._sockets[app.port] = await self._listen(app, address)
        except OSError as error:
            raise ConfigError(f"can't listen on {address}: {error.strerror or error}") from error
        self._tasks.start(app.server.sweep(), f"sweep-{app.port}")
        if app.token.path is not None:
            self._tasks.start(app.token.watch(), f"token-{app.port}")

    async def _listen(self, app: App, address: Address) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        if isinstance(address, TcpAddress):
            host = address.host or None
            return await loop.create_server(app.server, host, address.port, backlog=BACKLOG)
        path = Path(address.path)
        await asyncio.to_thread(_clear, path)
        server = await loop.create_unix_server(app.server, path, backlog=BACKLOG)
        self._files.append(path)
        await asyncio.to_thread(path.chmod, SOCKET_MODE)
        return server

    def address(self, port: Port) -> Address:
        """Return the address at which a port listens; the settings may say port 0."""
        bound = self._sockets[port].sockets[0]
        if bound.family == socket.AF_UNIX:
            return UnixAddress(bound.getsockname())
        host, number = bound.getsockname()[:2]
        return TcpAddress(host, number)

    async def stop(self) -> None:
        """Close the ports; requests that are being answered get a short time to finish."""
        for listening in self._sockets.values():
            listening.close()
        for app in self._apps:
            await app.server.shutdown(FINISH_S)
        await self._tasks.stop()
        for path in self._files:
            with suppress(OSError):
                await asyncio.to_thread(path.unlink, missing_ok=True)


def _clear(path: Path) -> None:
    """Remove the socket file of a process that is gone. Raises OSError when one listens there."""
    if not path.is_socket():
        return
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            path.unlink(missing_ok=True)
            return
    raise OSError("another process listens there")
