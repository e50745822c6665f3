"""One connection to one server, which never repeats a call by itself.

redis-py sends timed-out and cut-off commands again, scripts too (seen: 10 calls, 28 executions).
So only its connection class is used, and only to connect (see `exchange`). Each failure is told
apart: a call that was surely not decided is a StoreError, one that may have been a
StoreUnknownError (R12).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from redis import exceptions
from redis.asyncio.connection import (
    AbstractConnection,
    Connection,
    SSLConnection,
    UnixDomainSocketConnection,
)

from ackd.errors import StoreError, StoreSetupError, StoreUnknownError
from ackd.hidden import HIDDEN
from ackd.store.exchange import Answer, Command, Exchange

RUN_BYTES = 8
_WHO: tuple[Command, ...] = (("INFO", "server"), ("INFO", "replication"), ("INFO", "persistence"))


@dataclass(frozen=True, slots=True)
class StoreAccess:
    """How to connect: user, password, TLS. Files are read when a connection is made."""

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
        """The bound of one call, in seconds as asyncio wants it."""
        return self.timeout_ms / 1000

    def tcp(self, host: str, port: int) -> AbstractConnection:
        """A connection that is not open yet."""
        if not self.tls:
            return Connection(host=host, port=port, **self._options())
        return SSLConnection(
            host=host,
            port=port,
            ssl_ca_certs=_text(self.tls_ca_file),
            ssl_certfile=_text(self.tls_cert_file),
            ssl_keyfile=_text(self.tls_key_file),
            **self._options(),
        )

    def unix(self, path: str) -> AbstractConnection:
        """A connection to a unix socket that is not open yet."""
        return UnixDomainSocketConnection(path=path, **self._options())

    def read_password(self) -> str | None:
        """The password as it stands in its file now. Raises StoreSetupError."""
        if self.password_file is None:
            return None
        try:
            lines = self.password_file.read_text().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise StoreSetupError(f"store.password_file can't be read: {error}") from error
        password = lines[0].strip() if lines else ""
        HIDDEN.add(password)
        return password

    def _options(self) -> dict[str, Any]:
        return {
            "db": self.db,
            "username": self.username,
            "protocol": 2,
            "socket_timeout": None,  # whole calls are bounded here, not single reads
            "socket_connect_timeout": self.timeout_s,
            "driver_info": None,
            "client_name": "ackd",
        }


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


@dataclass(frozen=True, slots=True)
class StoreServer:
    """What a server says about itself when a connection is made.

    `run` names this run of it as far as its data is concerned: it changes when the process was
    started again or when another server was promoted (R9).
    """

    run: str
    version: tuple[int, ...]
    valkey: bool
    replicas: int


class Link:
    """A connection that is made when needed. One user at a time (its owner sees to that)."""

    def __init__(self, access: StoreAccess, dial: Callable[[], AbstractConnection]) -> None:
        self._access = access
        self._dial = dial
        self._connection: AbstractConnection | None = None
        self._exchange: Exchange | None = None
        self.server: StoreServer | None = None

    @property
    def open(self) -> bool:
        """Whether there is a connection that the other side has not closed."""
        return self._exchange is not None and self._exchange.open

    async def connect(self, *, identify: bool = True) -> None:
        """Connect (again) and ask the server who it is. Raises StoreError, StoreSetupError."""
        await self.close()
        connection = self._dial()
        try:
            async with asyncio.timeout(self._access.timeout_s):
                if self._access.password_file is not None:
                    connection.password = await asyncio.to_thread(self._access.read_password)
                await connection.connect()  # type: ignore[no-untyped-call]
                self._connection, self._exchange = connection, Exchange(connection)
                if identify:
                    said = await self._exchange.ask(_WHO, self._access.timeout_s)
                    self.server = read_server(said)
        except BaseException as error:
            self._connection = self._exchange = None
            await _drop(connection)
            if isinstance(error, asyncio.CancelledError):
                raise
            raise _refused(error) from error

    async def identify(self) -> str:
        """Ask again who the server is; returns its run. Raises as `ask`."""
        self.server = read_server(await self.ask(_WHO))
        return self.server.run

    async def ask(self, commands: Sequence[Command], *, timeout_s: float = 0) -> list[Answer]:
        """Send all, read all. An error that the server answered with is an item of the list.

        Raises StoreError when nothing was sent and StoreUnknownError afterwards; the connection is
        gone then.
        """
        exchange = self._exchange
        if exchange is None or not exchange.open:
            await self.close()
            raise StoreError("not connected")
        try:
            return await exchange.ask(commands, timeout_s or self._access.timeout_s)
        except (exceptions.RedisError, OSError, TimeoutError) as error:
            await self.close()
            raise StoreUnknownError(f"the store's answer was lost: {_say(error)}") from error
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Drop the connection; never raises."""
        connection, self._connection, self._exchange = self._connection, None, None
        self.server = None
        if connection is not None:
            await _drop(connection)


async def _drop(connection: AbstractConnection) -> None:
    """Give up a connection at once, whatever is still unsent (a frozen server takes nothing)."""
    writer = connection._writer  # noqa: SLF001 - redis-py would wait for the unsent bytes
    if writer is not None:
        writer.transport.abort()
    try:
        await connection.disconnect(nowait=True)
    except (exceptions.RedisError, OSError):
        return
    for _ in range(3):  # the event loop closes the socket in its next turns (TLS takes two)
        await asyncio.sleep(0)


def read_server(said: list[Answer]) -> StoreServer:
    """Take the answers to `_WHO` apart. Raises StoreError when it can't serve now."""
    for answer in said:
        if isinstance(answer, Exception):
            raise refusal(answer)
    fields: dict[str, str] = {}
    for line in b"\n".join(said).decode(errors="replace").splitlines():
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


def _refused(error: BaseException) -> StoreError:
    """An error while connecting: nothing of ours was sent."""
    if isinstance(error, exceptions.AuthenticationError):
        return StoreSetupError(f"the store refuses the user or the password ({error})")
    if isinstance(error, exceptions.ResponseError):
        return refusal(error)
    if isinstance(error, StoreError):
        return error
    if isinstance(error, (exceptions.RedisError, OSError, TimeoutError)):
        return StoreError(f"the store can't be reached: {_say(error)}")
    raise error


def refusal(error: Exception) -> StoreError:
    """An error that the server answered with: the command was not executed."""
    text = str(error)
    if isinstance(error, (exceptions.NoPermissionError, exceptions.AuthenticationError)) or (
        "NOPERM" in text or "NOAUTH" in text
    ):
        return StoreSetupError(f"the store's user lacks a right: {text}")
    return StoreError(f"the store refuses: {text}")


def _say(error: BaseException) -> str:
    if isinstance(error, TimeoutError) and not str(error):
        return "no answer in time"
    return str(error) or type(error).__name__
