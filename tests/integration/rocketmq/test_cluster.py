"""A cluster whose proxy is a process of its own, and which demands access keys."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from ackd.engine.api import Verb
from ackd.errors import BrokerError
from ackd_adapters.rocketmq import RocketMQOptions, adapter
from ackd_adapters.rocketmq.client import code_of
from tests.integration.rocketmq.shop import Shop
from tests.support import rocketmq as rocketmq_support
from tests.support.paths import CACHE
from tests.support.redis import RedisServer
from tests.support.require import require
from tests.support.rocketmq import RocketMQ
from tests.support.rocketmq import RocketMQOptions as ServerOptions
from tests.support.rocketmq.config import SECRET_KEY
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.rocketmq, pytest.mark.slow, pytest.mark.timeout(240)]

ACCESS_KEY = "ackd"
FIGURES = CACHE / "rocketmq-proxy.txt"
COUNT = 40
HEALED_S = 20.0
"""Below 1 s on a machine that is not busy; the official client needs ten minutes."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[RocketMQ]:
    """Name server, broker and proxy in three processes."""
    require(rocketmq_support.missing())
    with RocketMQ(ServerOptions(cluster=True, access_key=ACCESS_KEY)) as started:
        yield started


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """The file with the secret key."""
    file = tmp_path / "secret"
    file.write_text(f"{SECRET_KEY}\n")
    return file


@pytest.fixture
async def store_of(cluster: RocketMQ, valkey: RedisServer, tmp_path: Path) -> AsyncIterator[Shop]:
    """A shop on the cluster."""
    async with AsyncExitStack() as stack:
        yield Shop(stack, tmp_path, cluster, valkey)


@asynccontextmanager
async def opened(options: RocketMQOptions) -> AsyncIterator[None]:
    """A connection that is started."""
    broker = adapter.open("b", options)
    try:
        await broker.start()
        yield
    finally:
        await broker.close()


async def test_an_access_key_opens_and_a_wrong_or_missing_one_is_refused(
    cluster: RocketMQ, secret: Path, tmp_path: Path
) -> None:
    right = RocketMQOptions(
        endpoints=cluster.endpoints, access_key=ACCESS_KEY, secret_key_file=secret
    )
    async with opened(right):
        pass
    wrong = tmp_path / "wrong"
    wrong.write_text("not the secret")
    for options in (
        RocketMQOptions(endpoints=cluster.endpoints, access_key=ACCESS_KEY, secret_key_file=wrong),
        RocketMQOptions(endpoints=cluster.endpoints, access_key="who", secret_key_file=secret),
        RocketMQOptions(endpoints=cluster.endpoints),
    ):
        with pytest.raises(BrokerError) as refused:
            async with opened(options):
                pass
        assert code_of(refused.value) in {"UNAUTHORIZED", "FORBIDDEN"}, refused.value.detail
        assert SECRET_KEY not in refused.value.detail


async def test_i2_a_killed_proxy_is_found_again_and_nothing_comes_twice(
    cluster: RocketMQ, secret: Path, store_of: Shop
) -> None:
    shop = store_of
    shop.options = {"access_key": ACCESS_KEY, "secret_key_file": secret}
    await shop.open()
    one = await shop.start(lease_ms=60_000)
    await one.stored(*(b"%d" % n for n in range(COUNT)))
    found = await one.collect(COUNT)
    assert await one.settle(Verb.ACK, *found[: COUNT // 2]) == ["acked"] * (COUNT // 2)
    cluster.proxy.kill()
    # Acks go to the store; the broker hears of them later.
    rest = found[COUNT // 2 :]
    assert await one.settle(Verb.ACK, *rest) == ["acked"] * len(rest)
    await asyncio.to_thread(cluster.restart, cluster.proxy)
    began = time.monotonic()
    consumer = one.runtime._subscriptions["work"].consumer

    async def works() -> bool:
        return bool(consumer._session.open)  # type: ignore[attr-defined]

    await wait_until_async(works, "a session again", interval_s=0.01)
    session_s = time.monotonic() - began

    async def sent() -> bool:
        return not any(type(each).__name__ == "NotStored" for each in await one.publish(b"new"))

    await wait_until_async(sent, "something stored", interval_s=0.01)
    sent_s = time.monotonic() - began
    (message,) = await one.collect(1)
    healed_s = time.monotonic() - began
    text = f"after the port: session {session_s:.2f} s, sent {sent_s:.2f} s, got {healed_s:.2f} s\n"
    await asyncio.to_thread(FIGURES.write_text, text)
    assert message.record.value == b"new"
    assert await one.settle(Verb.ACK, message) == ["acked"]
    assert await one.receive(wait_ms=2_000) == []
    assert healed_s < HEALED_S, text
