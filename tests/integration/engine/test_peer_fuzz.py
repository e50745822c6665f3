"""Frames that no sidecar sends: the link closes, and the sidecar serves on (I8)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from struct import pack
from typing import Any

import msgspec
import pytest

from ackd.api.messages import SettleVerb
from ackd.config.peers import PeerSettings
from ackd.engine.peers.frames import (
    Frame,
    PeerAnswer,
    PeerAsk,
    PeerCancel,
    PeerExpired,
    PeerLost,
    PeerMessage,
    PeerQuestion,
    PeerReady,
    PeerReply,
    PeerTaken,
    PeerWatch,
    read_frame,
    write_frame,
)
from ackd.peer.link import LONG, PART
from ackd.peer.network import TcpPeers
from ackd.peer.peer_limits import FRAME_BYTES_MAX
from ackd.peer.this_machine import ON
from tests.integration.engine.linked import NAME, Linked, Ring, ring_of
from tests.unit.peer.stranger import Stranger, stranger

pytestmark = [pytest.mark.redis, pytest.mark.timeout(240)]

STREAMS = 1_000
SEED = 2101
MESSAGE = PeerMessage("v1.x", "t", 0, 1, b"k", b"v", [("h", b"1")], 5, 1, 16, 1, 2, "note")
FRAMES: tuple[Frame, ...] = (
    PeerAsk(NAME, 1, 10, 1 << 20, 30_000, 100, "somebody"),
    PeerAsk("of nobody", 2, 1, 0, 0, 0, ""),
    PeerCancel(NAME, 1),
    PeerTaken(NAME, 77),
    PeerLost(NAME, [1, 2, 3]),
    PeerWatch(NAME, on=True),
    PeerAnswer(NAME, 5, 0, 1 << 53, [MESSAGE]),
    PeerReady(NAME, 1 << 53),
    PeerExpired(NAME, 3),
    PeerQuestion(NAME, 9, "no such kind", b"\xc1"),
    PeerReply(NAME, 9, b"\xc1", ""),
)
VALUES: tuple[object, ...] = (None, True, -1, 1 << 63, 1.5, "", "x" * 2_000, b"", [], [[]], {})


def mutated(rng: random.Random) -> bytes:
    """A frame with something wrong in it, or by chance not."""
    data = bytearray(write_frame(rng.choice(FRAMES)))
    kind = rng.randrange(5)
    if kind == 4:
        fields = msgspec.msgpack.decode(bytes(data))
        numbers = [at for at, each in enumerate(fields) if type(each) is int]
        for at in numbers:
            fields[at] = rng.choice((0, 1, 1 << 20, (1 << 53) - 1, rng.randrange(1 << 16)))
        return msgspec.msgpack.encode(fields)
    if kind == 0:
        fields = msgspec.msgpack.decode(bytes(data))
        fields[rng.randrange(len(fields))] = rng.choice(VALUES)
        return msgspec.msgpack.encode(fields)
    if kind == 1:
        return bytes(data[: rng.randrange(len(data))])
    if kind == 2:
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        return bytes(data)
    at = rng.randrange(len(data) + 1)
    return bytes(data[:at]) + rng.randbytes(rng.randint(1, 40)) + bytes(data[at:])


def good(data: bytes) -> bool:
    """Whether it is a frame."""
    try:
        read_frame(data)
    except ValueError:
        return False
    return True


def hostile_heads(rng: random.Random) -> bytes:
    """A head that announces what may not come."""
    makers: tuple[Callable[[], int], ...] = (
        lambda: FRAME_BYTES_MAX + rng.randint(1, 1_000),
        lambda: LONG,
        lambda: LONG | (FRAME_BYTES_MAX + rng.randint(1, 1_000)),
        lambda: PART | rng.randint(1, 1_000),
    )
    return pack(">I", rng.choice(makers)())


class Open(TcpPeers):
    """Tells the store's secret to the test."""

    key: Callable[[], bytes]

    async def start(self, user: Any, key: Callable[[], bytes]) -> str:
        self.key = key
        return await super().start(user, key)


@pytest.fixture
async def ring(request: pytest.FixtureRequest) -> AsyncIterator[Ring]:
    """A local queue."""
    async with ring_of(request) as made:
        yield made


async def closed(who: Stranger) -> bool:
    """Whether the sidecar closes the connection."""
    await who.rest()
    return True


async def still_answers(who: Stranger) -> None:
    """The link lives: a question gets its answer, behind whatever else it says."""
    who.frame(write_frame(PeerCancel(NAME, 4_242)))
    async with asyncio.timeout(20):
        while True:
            (size,) = msgspec.msgpack.decode(b"\x91\xce" + await who.read(4))
            if size > FRAME_BYTES_MAX:
                continue  # a beat
            found = read_frame(await who.read(size))
            if isinstance(found, PeerAnswer) and found.number == 4_242:
                return


async def test_i8_frames_that_make_no_sense_close_the_link_and_nothing_else(
    ring: Ring, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut, changed, too long, of no kind, or good and out of place: from a peer that has proved
    itself.
    """
    monkeypatch.setattr("tests.integration.engine.linked.TcpPeers", Open)
    sidecar = await ring.start(PeerSettings(on=True))
    network = sidecar.runtime._links._network
    assert isinstance(network, Open)
    address = sidecar.runtime._links.address.partition(ON)[0]
    failures: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    rng = random.Random(SEED)
    ends = dict.fromkeys(("closed", "open", "heads"), 0)
    for number in range(STREAMS):
        async with stranger(address) as who:
            await who.prove(f"stranger-{number % 5}", f"instance-{number}", network.key())
            data = mutated(rng)
            if rng.random() < 0.2:
                who.say(hostile_heads(rng))
                assert await closed(who)
                ends["heads"] += 1
            elif good(data):
                who.frame(data)
                await still_answers(who)
                ends["open"] += 1
            else:
                who.frame(data)
                assert await closed(who)
                ends["closed"] += 1
        assert failures == [], (number, data)
    assert min(ends.values()) > STREAMS // 20, ends
    await served_on(sidecar)


async def served_on(sidecar: Linked) -> None:
    """It is ready, no task of it has died, and messages come and go."""
    assert sidecar.runtime.vitals.failure == ""
    await sidecar.ready()
    await sidecar.publish(3)
    messages = await sidecar.collect(3)
    assert await sidecar.settle(messages, SettleVerb.ACK) == ["acked"] * 3
