"""The adapter's remoting client, as tests use it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ackd_adapters.rocketmq.config import RocketMQOptions
from ackd_adapters.rocketmq.remoting_admin import LogQueue, RemotingAdmin
from tests.support.wait import wait_until_async


@asynccontextmanager
async def admin(names: int, **more: object) -> AsyncIterator[RemotingAdmin]:
    """A client that asks this port of this machine."""
    options = RocketMQOptions(
        endpoints="127.0.0.1:1",
        name_servers=f"127.0.0.1:{names}",
        request_timeout_ms=15_000,
        **more,  # type: ignore[arg-type]
    )
    it = RemotingAdmin(options)
    await it.start()
    try:
        yield it
    finally:
        await it.close()


async def queues_of(it: RemotingAdmin, topic: str) -> list[LogQueue]:
    """Its queues, as soon as the name server knows them."""
    found: list[LogQueue] = []

    async def known() -> bool:
        found[:] = await it.queues(topic)
        return bool(found)

    await wait_until_async(known, f"the route of {topic}")
    return found
