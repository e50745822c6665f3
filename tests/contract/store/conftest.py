"""The same store contract on every kind of server."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ackd.config.schema import StoreSettings
from ackd.ports import Store
from ackd.store.build import open_store
from tests.contract.store.servers import connected
from tests.support.redis import SERVICE, Flavour, RedisCluster, RedisSentinel, RedisServer

KINDS = ["memory", "embedded", "redis62", "redis7", "tls", "sentinel", "cluster"]


def hosts(addresses: list[tuple[str, int]]) -> str:
    """Addresses as they stand in a URL."""
    return ",".join(f"{host}:{port}" for host, port in addresses)


def settings_of(kind: str, request: pytest.FixtureRequest, folder: Path) -> StoreSettings:
    """Settings for a store of one kind; starts the server for the whole run."""

    def server(name: str) -> RedisServer:
        found = request.getfixturevalue(name)
        assert isinstance(found, RedisServer)
        return found

    match kind:
        case "memory" | "embedded":
            return StoreSettings(url=kind)
        case "redis62" | "redis7":
            return StoreSettings(url=server(kind).url)
        case "tls":
            started = server("redis_tls")
            assert started.certs is not None
            password = folder / "password"
            password.write_text("ackd-secret\n")
            return StoreSettings(
                url=started.url,
                username="ackd",
                password_file=password,
                tls_ca_file=started.certs.ca,
            )
        case "sentinel":
            sentinel: RedisSentinel = request.getfixturevalue("redis_sentinel")
            return StoreSettings(
                url=f"sentinel://{hosts(sentinel.sentinel_addresses)}/{SERVICE}",
                durability="replicated",
            )
        case _:
            cluster: RedisCluster = request.getfixturevalue("redis_cluster")
            return StoreSettings(url=f"cluster://{hosts(cluster.addresses)}")


@pytest.fixture(params=KINDS)
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Store]:
    """Makes a store of one kind, not started."""
    settings = settings_of(request.param, request, tmp_path)
    return lambda: open_store(settings, tmp_path)


@pytest.fixture
async def store(make_store: Callable[[], Store]) -> AsyncIterator[Store]:
    """A started store."""
    made = make_store()
    async with asyncio.timeout(90):
        await made.start()
    yield made
    await made.close()


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """Of a Valkey, for what asks scripts directly."""
    with connected(Flavour.VALKEY) as found:
        yield found
