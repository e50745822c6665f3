"""What is large or slow on a link holds up nobody else: real sockets, a real Valkey."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import pytest

from ackd.api.messages import SettleVerb
from ackd.config.units import MIB
from ackd.engine.cluster import members
from ackd.peer.link import TcpLink
from ackd.peer.peer_limits import PeerLimits
from tests.integration.engine.linked import Linked, Ring, begin, numbers, ring_of
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.redis, pytest.mark.timeout(240)]


@pytest.fixture
async def ring(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Ring]:
    """A local queue. Links live on while a test does not read from them, and an owner keeps its
    partition while this process, which is both sidecars, copies a hundred MiB.
    """
    monkeypatch.setattr(members, "SILENT_MS", 120_000)
    async with ring_of(request, limits=PeerLimits(quiet_s=120), session_ms=60_000) as made:
        yield made


async def waits_at(owner: Linked, count: int) -> None:
    """So many receives wait there."""

    async def there() -> bool:
        return owner.waiting() >= count

    await wait_until_async(there, f"{count} receives to wait at {owner.name}")


def link_to(linked: Linked, other: Linked) -> TcpLink:
    """Its end of the link between the two."""
    return cast("TcpLink", linked.runtime._links.to(other.name))


async def test_a_message_of_70_mib_travels_and_nobody_waits_behind_it(ring: Ring) -> None:
    """Its link stays open, and small messages go over it meanwhile."""
    owner, [other] = await ring.started(2, window_bytes_max=512 * MIB)
    waiting = begin(other.receive(1))
    await waits_at(owner, 1)
    link, there = link_to(owner, other), link_to(other, owner)
    there._transport.pause_reading()
    await owner.publish(1, size=70 * MIB)

    async def begun() -> bool:
        return link.unsent > 10 * MIB

    await wait_until_async(begun, "the large one to be on its way", interval_s=0.001)
    there._transport.resume_reading()
    await owner.publish(20, first=1)
    small = [await other.one() for _ in range(20)]
    assert numbers(small) == list(range(1, 21))
    [large] = (await waiting).messages
    assert (numbers([large]), large.attempt) == ([0], 1)
    assert len(large.record.value or b"") == 70 * MIB
    assert await other.settle([large, *small], SettleVerb.ACK) == ["acked"] * 21
    assert link.open

    await owner.until_watermark(21)


async def test_i8_an_owner_sends_16_mib_to_a_sidecar_that_does_not_read(ring: Ring) -> None:
    """And one message, to 40 receives that waited before; others get what is left."""
    owner, [other] = await ring.started(2, window_bytes_max=512 * MIB)
    waiting = [begin(other.receive(1, wait_ms=60_000)) for _ in range(40)]
    await waits_at(owner, 40)
    there, here = link_to(other, owner), link_to(owner, other)
    there._transport.pause_reading()
    most = 0

    async def watch() -> None:
        nonlocal most
        while True:
            most = max(most, here.unsent)
            await asyncio.sleep(0.001)

    watching = begin(watch())
    await owner.publish(40, size=4 * MIB)
    mine = [await owner.one() for _ in range(8)]  # whoever reads is served
    assert await owner.settle(mine, SettleVerb.ACK) == ["acked"] * 8
    watching.cancel()
    assert 12 * MIB < most < 21 * MIB
    there._transport.resume_reading()
    await owner.publish(8, first=40)
    theirs = [message for each in waiting for message in (await each).messages]
    assert sorted(numbers([*mine, *theirs])) == list(range(48))
    assert {each.attempt for each in theirs} == {1}
    assert await other.settle(theirs, SettleVerb.ACK) == ["acked"] * 40
    assert here.open
