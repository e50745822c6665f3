"""Links that break while an owner answers, on real sockets: what did not arrive comes again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from ackd.api.messages import Delivery, SettleVerb
from ackd.config.peers import PeerSettings
from ackd_torture.ports import free_port, give_back
from tests.integration.engine.linked import Linked, Ring, begin
from tests.support.proxy import Proxy
from tests.support.redis import RedisServer
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.redis, pytest.mark.timeout(240)]
MIB = 1 << 20
SOON_S = 30.0
"""A silent link is closed after 1.5 s and made again within seconds. This ends what hangs."""


class Between:
    """A breaking proxy before each of two sidecars, on the way that the other one takes to it."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        self._ports = [free_port(), free_port()]
        self._proxies = [Proxy(port) for port in self._ports]

    async def start(self, **more: object) -> tuple[Linked, Linked]:
        """The owner and the other one, of whom a receive waits at the owner's when one begins."""
        for port, proxy in zip(self._ports, self._proxies, strict=True):
            await asyncio.to_thread(proxy.start)
            address = f"127.0.0.1:{proxy.port}"
            peers = PeerSettings(on=True, listen=f"127.0.0.1:{port}", advertise=address)
            await self.ring.start(peers, **more)  # type: ignore[arg-type]
        owner, [other] = await self.ring.sorted()
        return owner, other

    async def each(self, what: str, *given: object) -> None:
        """Do this with both."""
        for proxy in self._proxies:
            await asyncio.to_thread(getattr(proxy, what), *given)

    def passed(self) -> int:
        """Bytes on their way to who has connected."""
        return sum(proxy.bytes_down for proxy in self._proxies)

    async def stop(self) -> None:
        for port, proxy in zip(self._ports, self._proxies, strict=True):
            await asyncio.to_thread(proxy.stop)
            give_back(port)


@pytest.fixture
async def between(valkey: RedisServer, tmp_path: Path) -> AsyncIterator[Between]:
    """A local queue of one partition."""
    async with AsyncExitStack() as stack:
        made = Between(Ring(stack, tmp_path, valkey.url))
        stack.push_async_callback(made.stop)
        yield made


async def waits(owner: Linked, other: Linked) -> asyncio.Task[Delivery]:
    """A receive of the other one that waits at the owner."""
    waiting = begin(other.one())

    async def there() -> bool:
        return owner.waiting() > 0

    await wait_until_async(there, "the receive to wait at the owner")
    return waiting


async def gets_it_uncounted(other: Linked, waiting: asyncio.Task[Delivery]) -> float:
    """The same receive gets the message, as its first attempt; returns how long it took."""
    begun_s = time.monotonic()
    message = await asyncio.wait_for(waiting, SOON_S)
    assert message.attempt == 1
    assert await other.settle([message], SettleVerb.ACK) == ["acked"]
    return time.monotonic() - begun_s


async def test_r21_an_answer_that_is_cut_in_its_middle_comes_again_uncounted(
    between: Between,
) -> None:
    owner, other = await between.start()
    waiting = await waits(owner, other)
    await between.each("delay", 300)  # a part of the message arrives, and the rest is on its way
    before = between.passed()
    await owner.publish(1, size=8 * MIB)

    async def some() -> bool:
        return between.passed() - before > MIB

    await wait_until_async(some, "a part of the answer", interval_s=0.005)
    assert not waiting.done()
    await between.each("cut")
    await between.each("heal")
    await gets_it_uncounted(other, waiting)
    await owner.nothing()


async def test_r21_what_a_black_hole_swallowed_comes_again_uncounted_after_it(
    between: Between,
) -> None:
    """The store is reached all the time. The requester tells once there is a link again."""
    owner, other = await between.start()
    waiting = await waits(owner, other)
    await between.each("freeze")
    await owner.publish(1)

    async def closed() -> bool:
        return owner.waiting() == 0 and not owner.runtime._links.to(other.name)

    await wait_until_async(closed, "the owner to notice that the link is silent")
    assert not waiting.done()
    await between.each("heal")
    await gets_it_uncounted(other, waiting)
    await owner.nothing()


async def test_r21_what_a_black_hole_swallowed_comes_again_uncounted_while_it_stays(
    between: Between,
) -> None:
    """Neither ever has a link again: the requester tells by its heartbeat. The lease is long."""
    owner, other = await between.start(lease_ms=600_000)
    waiting = await waits(owner, other)
    await between.each("freeze")
    await owner.publish(1)
    message = await asyncio.wait_for(owner.one(), SOON_S)
    assert message.attempt == 1
    assert await owner.settle([message], SettleVerb.ACK) == ["acked"]
    assert not waiting.done()
    waiting.cancel()


async def test_r21_what_has_arrived_stays_though_the_link_is_gone(between: Between) -> None:
    """The answer came, and then nothing more passed: what the application has is its own."""
    owner, other = await between.start(lease_ms=600_000)
    waiting = await waits(owner, other)
    await owner.publish(1)
    message = await asyncio.wait_for(waiting, SOON_S)
    await between.each("freeze")

    async def closed() -> bool:
        return not owner.runtime._links.to(other.name) and not other.runtime._links.to(owner.name)

    await wait_until_async(closed, "both to notice that the link is silent")
    await owner.nothing()
    assert await owner.settle([message], SettleVerb.ACK) == ["acked"]
