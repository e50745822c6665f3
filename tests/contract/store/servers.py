"""Servers of a test's own and stores on them that give up soon."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import redis

from ackd.config.schema import Durability, StoreSettings
from ackd.ports import Store
from ackd.store.build import open_store
from tests.support.paths import REPO
from tests.support.redis import Flavour, RedisOptions, RedisServer, binary

TIMEOUT_MS = 2_000


def redis7(**config: str) -> RedisOptions:
    """A server of the system."""
    return RedisOptions(
        binary(Flavour.REDIS), config={k.replace("_", "-"): v for k, v in config.items()}
    )


def connect(port: int, durability: Durability = "everysec", replicas_min: int = 1) -> Store:
    """A store on a port, with a short time-out."""
    settings = StoreSettings(
        url=f"redis://127.0.0.1:{port}/0",
        timeout_ms=TIMEOUT_MS,
        durability=durability,
        replicas_min=replicas_min,
    )
    return open_store(settings, REPO)


@asynccontextmanager
async def started(store: Store) -> AsyncIterator[Store]:
    """Started, and closed at the end."""
    try:
        await store.start()
        yield store
    finally:
        await store.close()


@contextmanager
def connected(flavour: Flavour) -> Iterator[Any]:
    """A plain client of a server that writes nothing down."""
    with (
        RedisServer(RedisOptions(binary(flavour), fsync=None)) as server,
        redis.Redis(host="127.0.0.1", port=server.port, protocol=2) as client,
    ):
        yield client
