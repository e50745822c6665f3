"""Connect to a server, and send each call once: nothing is repeated here.

A client library repeats a call that timed out or was cut off, also a script call (seen: 10 calls,
28 executions). Here each failure has one meaning: StoreError if the server certainly did not
execute the call, StoreUnknownError if it may have (R12).
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from ackd.errors import StoreError, StoreSetupError, StoreUnknownError
from ackd.hidden import HIDDEN
from ackd.store.exchange import Answer, Command, Exchange, LostError, ServerError

Dial = Callable[[], Awaitable[Exchange]]
"""Opens a connection and introduces ackd on it."""
_Connect = Callable[[], Coroutine[Any, Any, tuple[asyncio.BaseTransport, Exchange]]]

RUN_BYTES = 8
CLIENT_NAME = "ackd"
_KEEPALIVE_S = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))
"""A dead peer is noticed after 45 s without traffic."""
_WHO: tuple[Command, ...] = (("INFO", "server"), ("INFO", "replication"), ("INFO", "persistence"))


@dataclass(frozen=True, slots=True)
class StoreAccess:
    """How to connect: user, password, TLS. Each new connection reads the files again."""

    timeout_ms: int
    username: str | None = None
    password_file: Path | None = None
    tls: bool = False
    tls_ca_file: Path | None = None
    tls_cert_file: Path | None = None
    tls_key_file: Path | None = None
    db: int = 0

    @property
    def timeout_s(self) -> float:
        """The bound on one call, in seconds."""
        return self.timeout_ms / 1000

    async def tcp(self, host: str, port: int) -> Exchange:
        """Connect to a port. Raises StoreSetupError, ServerError, OSError."""
        context = await asyncio.to_thread(self._tls_context) if self.tls else None
        loop = asyncio.get_running_loop()
        return await self._open(
            f"{host}:{port}", lambda: loop.create_connection(Exchange, host, port, ssl=context)
        )

    async def unix(self, path: str) -> Exchange:
        """Connect to a unix socket. Raises as `tcp`."""
        loop = asyncio.get_running_loop()
        return await self._open(path, lambda: loop.create_unix_connection(Exchange, path))

    async def _open(self, address: str, connect: _Connect) -> Exchange:
        password = await asyncio.to_thread(self.read_password)
        try:
            transport, exchange = await connect()
        except OSError as error:
            raise LostError(f"{address}: {error.strerror or error}") from error
        try:
            _keep_alive(transport.get_extra_info("socket"))
            await self._introduce(exchange, password)
        except BaseException:
            await exchange.drop()
            raise
        return exchange

    async def _introduce(self, exchange: Exchange, password: str | None) -> None:
        """Log in, name this client, select the database."""
        commands: list[Command] = []
        if self.username:
            commands.append(("AUTH", self.username, password or ""))
        elif password:
            commands.append(("AUTH", password))
        commands.append(("CLIENT", "SETNAME", CLIENT_NAME))
        if self.db:
            commands.append(("SELECT", self.db))
        answers = await exchange.ask(commands, self.timeout_s)
        for command, answer in zip(commands, answers, strict=True):
            if isinstance(answer, ServerError):
                raise _password_refused(answer) if command[0] == "AUTH" else answer

    def _tls_context(self) -> ssl.SSLContext:
        """Make the TLS settings from their files. Raises OSError (ssl.SSLError is one)."""
        context = ssl.create_default_context()
        if self.tls_cert_file is not None:
            context.load_cert_chain(self.tls_cert_file, self.tls_key_file)
        if self.tls_ca_file is not None:
            context.load_verify_locations(self.tls_ca_file)
        return context

    def read_password(self) -> str | None:
        """Read the password from its file. Raises StoreSetupError."""
        if self.password_file is None:
            return None
        try:
            lines = self.password_file.read_text().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise StoreSetupError(f"store.password_file can't be read: {error}") from error
        password = lines[0].strip() if lines else ""
        HIDDEN.add(password)
        return password


def _keep_alive(sock: socket.socket) -> None:
    if sock.family == socket.AF_UNIX:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE_S:
        if (option := getattr(socket, name, None)) is not None:  # not on every platform
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


@dataclass(frozen=True, slots=True)
class StoreServer:
    """What a server says about itself on a new connection.

    `run` names this run of the server's data: it changes when the process starts again or when
    another server is promoted (R9).
    """

    run: str
    version: tuple[int, ...]
    valkey: bool
    replicas: int


class Link:
    """A connection that is opened when needed, for one user at a time (its owner ensures that)."""

    def __init__(self, access: StoreAccess, dial: Dial) -> None:
        self._access = access
        self._dial = dial
        self._exchange: Exchange | None = None
        self.server: StoreServer | None = None

    @property
    def open(self) -> bool:
        """Whether there is a connection that neither side has closed."""
        return self._exchange is not None and self._exchange.open

    async def connect(self, *, identify: bool = True) -> None:
        """Connect (again) and ask the server who it is. Raises StoreError, StoreSetupError."""
        await self.close()
        try:
            async with asyncio.timeout(self._access.timeout_s):
                self._exchange = await self._dial()
                if identify:
                    answers = await self._exchange.ask(_WHO, self._access.timeout_s)
                    self.server = read_server(answers)
        except BaseException as error:
            await self.close()
            if isinstance(error, (ServerError, OSError)):
                raise _refused(error) from error
            raise

    async def identify(self) -> str:
        """Ask the server again for its run, and return it. Raises as `ask`."""
        self.server = read_server(await self.ask(_WHO))
        return self.server.run

    async def ask(self, commands: Sequence[Command], *, timeout_s: float = 0) -> list[Answer]:
        """Send all commands and read all answers; an error that the server answered is an item of
        the list.

        Raises StoreError if nothing was sent, and StoreUnknownError after that; then the connection
        is closed.
        """
        exchange = self._exchange
        if exchange is None or not exchange.open:
            await self.close()
            raise StoreError("not connected")
        try:
            return await exchange.ask(commands, timeout_s or self._access.timeout_s)
        except (ServerError, OSError) as error:
            await self.close()
            raise StoreUnknownError(f"the store's answer was lost: {_say(error)}") from error
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Drop the connection; never raises."""
        exchange, self._exchange = self._exchange, None
        self.server = None
        if exchange is not None:
            await exchange.drop()


def read_server(answers: list[Answer]) -> StoreServer:
    """Parse the answers to `_WHO`. Raises StoreError if the server can't serve now."""
    for answer in answers:
        if isinstance(answer, Exception):
            raise refusal(answer)
    fields: dict[str, str] = {}
    for line in b"\n".join(answers).decode(errors="replace").splitlines():
        name, _, value = line.partition(":")
        fields[name] = value.strip()
    if fields.get("role") not in ("master", None):
        raise StoreError("the store's server is a replica")
    if fields.get("loading", "0") != "0":
        raise StoreError("the store is loading its data")
    identity = f"{fields.get('run_id', '')} {fields.get('master_replid', '')}"
    valkey = "valkey_version" in fields
    version = fields.get("valkey_version") or fields.get("redis_version", "0")
    return StoreServer(
        run=blake2b(identity.encode(), digest_size=RUN_BYTES).hexdigest(),
        version=tuple(int(part) for part in version.split(".") if part.isdecimal()),
        valkey=valkey,
        replicas=int(fields.get("connected_slaves", "0")),
    )


def _refused(error: ServerError | OSError) -> StoreError:
    """Make the StoreError of a failed connection: no call of ackd was sent."""
    if isinstance(error, OSError):
        return StoreError(f"the store can't be reached: {_say(error)}")
    if error.code in ("NOAUTH", "WRONGPASS"):
        return _password_refused(error)
    return refusal(error)


def _password_refused(error: ServerError) -> StoreSetupError:
    return StoreSetupError(f"the store refuses the user or the password ({error.reason})")


def refusal(error: Exception) -> StoreError:
    """Make the StoreError of an error that the server answered: it did not execute the command."""
    text = str(error)
    if "NOPERM" in text or "NOAUTH" in text:
        return StoreSetupError(f"the store's user lacks a right: {text}")
    return StoreError(f"the store refuses: {text}")


def _say(error: BaseException) -> str:
    if isinstance(error, TimeoutError) and not str(error):
        return "no answer in time"
    return str(error) or type(error).__name__
