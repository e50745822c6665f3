"""Connections to real servers: who we say we are, what they refuse, what breaks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ackd.errors import StoreError, StoreSetupError, StoreUnknownError
from ackd.store.connect import CLIENT_NAME, Link, StoreAccess
from ackd.store.exchange import ServerError
from ackd.store.nodes import by_sentinel
from tests.contract.store.servers import redis7
from tests.support.redis import SERVICE, RedisSentinel, RedisServer
from tests.support.redis.server import connect
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.redis, pytest.mark.timeout(120)]
ACCESS = StoreAccess(timeout_ms=5_000)
SECRET = "s3cret-of-the-store"
SLOW = ("EVAL", "local i = 0 while true do i = i + 1 end", 0)


@asynccontextmanager
async def linked(
    server: RedisServer, access: StoreAccess = ACCESS, *, identify: bool = True
) -> AsyncIterator[Link]:
    """A connected link, closed at the end."""
    link = Link(access, partial(access.tcp, "127.0.0.1", server.port))
    try:
        await link.connect(identify=identify)
        yield link
    finally:
        await link.close()


def with_password(folder: Path, password: str, access: StoreAccess = ACCESS) -> StoreAccess:
    """Access with a password from a file."""
    file = folder / "password"
    file.write_text(f"{password}\n")
    return replace(access, password_file=file)


@contextmanager
def serving(**config: str) -> Iterator[RedisServer]:
    """A server of the test's own."""
    with RedisServer(redis7(**config)) as server:
        yield server


@pytest.fixture(scope="module")
def plain() -> Iterator[RedisServer]:
    """A server that asks nobody who he is, on a port and a unix socket."""
    with RedisServer(replace(redis7(), unix_socket=True)) as server:
        yield server


@pytest.fixture
async def locked(tmp_path: Path) -> AsyncIterator[tuple[RedisServer, StoreAccess]]:
    """A server with a password, and the access for it."""
    with serving() as server:
        with server.client() as client:
            client.config_set("requirepass", SECRET)
        yield server, with_password(tmp_path, SECRET)


async def _introduced(link: Link, number: int) -> None:
    (found,) = await link.ask([("CLIENT", "INFO")])
    fields = dict(pair.split("=", 1) for pair in found.decode().split())
    assert (fields["name"], int(fields["db"])) == (CLIENT_NAME, number)


async def test_a_connection_has_our_name_and_its_database(plain: RedisServer) -> None:
    async with linked(plain, replace(ACCESS, db=3)) as link:
        await _introduced(link, 3)
        assert link.server is not None
        assert link.server.version >= (7,)
        assert len(link.server.run) == 16


async def test_a_unix_socket_is_as_good_as_a_port(plain: RedisServer) -> None:
    link = Link(ACCESS, partial(ACCESS.unix, str(plain.socket_path)))
    await link.connect()
    await _introduced(link, 0)
    await link.close()


async def test_a_database_that_is_not_there_is_refused(plain: RedisServer) -> None:
    with pytest.raises(StoreError, match="refuses: DB index is out of range"):
        async with linked(plain, replace(ACCESS, db=9_999)):
            pass


@pytest.mark.parametrize("unix", [False, True])
async def test_nobody_listens(tmp_path: Path, *, unix: bool) -> None:
    path = str(tmp_path / "nobody")
    dial = partial(ACCESS.unix, path) if unix else partial(ACCESS.tcp, "127.0.0.1", 1)
    link = Link(ACCESS, dial)
    with pytest.raises(StoreError, match=r"can't be reached: (.*nobody|127)"):
        await link.connect()
    assert not link.open


async def test_passwords(locked: tuple[RedisServer, StoreAccess], tmp_path: Path) -> None:
    server, access = locked
    async with linked(server, access) as link:
        await _introduced(link, 0)
    async with linked(server, replace(access, username="default")) as link:
        await _introduced(link, 0)
    (tmp_path / "wrong").mkdir()
    wrong = with_password(tmp_path / "wrong", "other-s3cret")
    for bad, why in ((wrong, "invalid username-password"), (ACCESS, "Authentication required")):
        with pytest.raises(StoreSetupError, match=f"refuses the user or the password .{why}") as e:
            async with linked(server, bad):
                pass
        assert "s3cret" not in str(e.value)
        assert "s3cret" not in repr(e.value.__cause__)


async def test_a_password_that_the_server_does_not_want(plain: RedisServer, tmp_path: Path) -> None:
    with pytest.raises(StoreSetupError, match="without any password configured") as error:
        async with linked(plain, with_password(tmp_path, SECRET)):
            pass
    assert SECRET not in str(error.value)


async def test_a_password_file_that_is_not_there(plain: RedisServer, tmp_path: Path) -> None:
    access = replace(ACCESS, password_file=tmp_path / "none")
    with pytest.raises(StoreSetupError, match="password_file can't be read"):
        async with linked(plain, access):
            pass


async def test_a_server_with_too_many_clients_says_so() -> None:
    with serving(maxclients="1") as server:
        async with linked(server):
            with pytest.raises(StoreError, match=r"max number of clients|closed by server"):
                async with linked(server):
                    pass


async def test_errors_are_answers_and_the_connection_stays(plain: RedisServer) -> None:
    async with linked(plain) as link:
        said = await link.ask(
            [
                ("EVALSHA", "0" * 40, 0),
                ("NONSENSE",),
                ("SET", "text", "v"),
                ("LPUSH", "text", "v"),
                ("EVAL", "return redis.call('GET', KEYS[1])", 1, "text"),
            ]
        )
        codes = [each.code if isinstance(each, ServerError) else each for each in said]
        assert codes == ["NOSCRIPT", "ERR", b"OK", "WRONGTYPE", b"v"]
        assert link.open


async def test_a_replica_is_no_store_and_says_readonly(plain: RedisServer) -> None:
    with serving(replicaof=f"127.0.0.1 {plain.port}") as replica:
        with pytest.raises(StoreError, match="is a replica"):
            async with linked(replica):
                pass
        async with linked(replica, identify=False) as link:

            async def read_only() -> bool:
                (error,) = await link.ask([("SET", "k", "v")])
                return isinstance(error, ServerError) and error.code == "READONLY"

            await wait_until_async(read_only, "the replica refuses writes")


async def test_a_connection_that_the_server_kills_leaves_the_call_unknown(
    plain: RedisServer,
) -> None:
    async with linked(plain) as link, linked(plain) as killer:
        (ours,) = await link.ask([("CLIENT", "ID")])
        (theirs,) = await killer.ask([("CLIENT", "ID")])
        assert ours != theirs
        blocked = asyncio.get_running_loop().create_task(link.ask([("BLPOP", "nothing", 0)]))

        async def blocking() -> bool:
            (found,) = await killer.ask([("CLIENT", "LIST", "ID", ours)])
            return b"cmd=blpop" in found

        await wait_until_async(blocking, "the call is at the server")
        await killer.ask([("CLIENT", "KILL", "ID", ours)])
        with pytest.raises(StoreUnknownError, match="closed by server"):
            await blocked
        assert not link.open
        with pytest.raises(StoreError, match="not connected"):
            await link.ask([("PING",)])
        await link.connect()
        assert await link.ask([("PING",)]) == [b"PONG"]


async def test_a_frozen_server_costs_the_time_of_a_call_and_no_more() -> None:
    with serving() as server:
        async with linked(server, replace(ACCESS, timeout_ms=300)) as link:
            server.freeze()
            with pytest.raises(StoreUnknownError, match="no answer in time"):
                await link.ask([("SET", "k", bytes(32 << 20))])
            with pytest.raises(StoreError, match="no answer in time"):
                await link.connect()
            server.thaw()
            await link.connect()
            assert link.open


async def test_a_server_that_was_killed() -> None:
    with serving() as server:
        async with linked(server) as link:
            server.kill()
            with pytest.raises(StoreError):
                await link.ask([("PING",)])
            with pytest.raises(StoreError, match="can't be reached"):
                await link.connect()
            server.start()
            await link.connect()
            assert await link.ask([("PING",)]) == [b"PONG"]


async def test_tls_with_a_certificate_of_ours(redis_tls: RedisServer, tmp_path: Path) -> None:
    certs = redis_tls.certs
    assert certs is not None
    access = replace(
        with_password(tmp_path, "ackd-secret"),
        username="ackd",
        tls=True,
        tls_ca_file=certs.ca,
        tls_cert_file=certs.client_cert,
        tls_key_file=certs.client_key,
    )
    async with linked(redis_tls, access) as link:
        big = bytes(1 << 20)
        (answer,) = await link.ask([("ECHO", big)])
        assert answer == big
    for wrong in (replace(access, tls_ca_file=tmp_path / "none"), replace(access, tls=False)):
        with pytest.raises(StoreError, match="can't be reached"):
            async with linked(redis_tls, replace(wrong, timeout_ms=500)):
                pass


async def test_sentinels_with_a_password_of_their_own(
    redis_sentinel: RedisSentinel, tmp_path: Path
) -> None:
    """They answer nobody without it; a Sentinel without one is asked without one."""
    addresses = tuple(redis_sentinel.sentinel_addresses)
    access = with_password(tmp_path, SECRET)
    primary = redis_sentinel.primary().port

    async def found(access: StoreAccess) -> int:
        dial = await by_sentinel(access, addresses, SERVICE)()
        assert isinstance(dial, partial)
        return int(dial.args[1])

    assert await found(access) == primary
    with _sentinel_password(redis_sentinel):
        assert await found(access) == primary
        with pytest.raises(StoreError, match=r"no Sentinel names a primary.*Authentication"):
            await found(ACCESS)


@contextmanager
def _sentinel_password(sentinel: RedisSentinel) -> Iterator[None]:
    """Each Sentinel wants a password from connections that are made now."""
    clients: list[Any] = [connect(port) for port in sentinel.sentinel_ports]
    try:
        for client in clients:
            client.execute_command("ACL", "SETUSER", "default", "resetpass", f">{SECRET}")
        yield
    finally:
        for client in clients:
            client.execute_command("ACL", "SETUSER", "default", "nopass")
            client.close()
