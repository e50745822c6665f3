"""Sidecars on several machines without TLS files: encrypted, and bound to the store's secret.

They listen on this machine, by a name that ackd does not take for one of it.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

import pytest
import trustme
import uvloop

from ackd.config.peers import PeerSettings
from ackd.errors import PeerError
from ackd.peer import self_made
from ackd.peer.handshake import HELLO_BYTES, Hello
from ackd.peer.link import TcpLink
from ackd.peer.peer_limits import PeerLimits
from ackd.peer.tls import PeerTls, unverified
from ackd.ports import PeerLink
from tests.support.serving import serving
from tests.unit.peer.middle import between, same
from tests.unit.peer.recorder import KEY, Node, linked, make_node, running
from tests.unit.peer.stranger import stranger
from tests.unit.peer.test_tls import make_files

AFAR = "127.1"
"""Resolved to 127.0.0.1, like a name of another machine to its address."""
FAR = PeerSettings(advertise=AFAR)
SEED = 16
HASTE = PeerLimits(handshake_s=0.5)


def far(name: str, limits: PeerLimits | None = None) -> Node:
    """A sidecar to which others connect from afar."""
    return make_node(name, FAR, limits)


def secured(link: PeerLink) -> ssl.SSLObject:
    """The TLS of a link."""
    wire = cast("TcpLink", link)._transport
    return cast("ssl.SSLObject", wire.get_extra_info("ssl_object"))


@dataclass(frozen=True, slots=True)
class Middle:
    """What somebody between two sidecars can make for himself."""

    listening: PeerTls
    connecting: PeerTls


@pytest.fixture
def middle() -> Middle:
    """A certificate as good as any other, but for the secret."""
    return Middle(self_made.listening(), unverified())


async def test_a_link_to_another_machine_is_encrypted() -> None:
    one, other = far("one"), far("other")
    async with running(one, other):
        here, there = await linked(one, other)
        assert secured(here).version() == secured(there).version() == "TLSv1.3"
        assert secured(here).getpeercert(binary_form=True)
        assert secured(there).getpeercert(binary_form=True) is None
        here.send(b"forth")
        there.send(b"back")
        await other.user.has([b"forth"])
        await one.user.has([b"back"])


def test_on_the_other_event_loop_too() -> None:
    """`ackd serve` runs on uvloop where that is installed."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test_a_link_to_another_machine_is_encrypted())


async def test_who_listens_on_its_machine_only_connects_to_others() -> None:
    near, other = make_node("near"), far("other")
    async with running(near, other):
        here, _ = await linked(near, other)
        assert secured(here).version() == "TLSv1.3"


async def test_each_process_has_its_own_certificate() -> None:
    one, other, third = far("one"), far("other"), far("third")
    async with running(one, other, third):
        shown = [
            secured((await linked(one, each))[0]).getpeercert(binary_form=True)
            for each in (other, third)
        ]
    assert shown[0] != shown[1]


async def test_another_secret_is_refused_on_both_sides() -> None:
    one, other = far("one"), far("other")
    one.key.append(b"the secret of another store")
    async with running(one, other):
        with pytest.raises(PeerError, match="another store: its secret differs, or somebody"):
            await one.peers.connect("other", other.address)
        assert (one.refused("key"), other.refused("key")) == (1, 1)
        assert one.user.events == other.user.events == []
        one.key.append(KEY)
        await linked(one, other)


async def test_who_ends_tls_in_between_is_refused_on_both_sides(middle: Middle) -> None:
    """Proofs name the certificate of the side that listens, and his is another one."""
    one, other = far("one"), far("other")
    async with running(one, other), between(other.address, middle) as (_, port):
        with pytest.raises(PeerError, match="or somebody stands between") as caught:
            await one.peers.connect("other", f"{AFAR}:{port}")
        assert caught.value.facts == {"reason": "key"}
        assert (one.refused("key"), other.refused("key")) == (1, 1)
        assert one.user.events == other.user.events == []


async def test_who_ends_tls_in_between_cannot_say_yes_himself(middle: Middle) -> None:
    """He hides the refusal, and says good with any proof that he has seen."""
    seen: list[bytes] = []

    def forth(data: bytes) -> bytes:
        seen.append(data)
        return data

    def back(data: bytes) -> bytes:
        return data if len(data) == HELLO_BYTES else b"\0" + b"".join(seen)[-32:]

    one, other = far("one"), far("other")
    async with running(one, other), between(other.address, middle, forth, back) as (_, port):
        with pytest.raises(PeerError, match="its secret differs"):
            await one.peers.connect("other", f"{AFAR}:{port}")
        assert (one.refused("key"), other.refused("key")) == (1, 1)
        assert one.user.events == other.user.events == []


async def test_who_takes_tls_away_in_between_is_refused(middle: Middle) -> None:
    """In the clear towards a sidecar that has no TLS: its proofs name no certificate."""
    one, other = far("one"), make_node("other")
    async with running(one, other):

        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            async with stranger(other.address) as there:
                there.say(await reader.readexactly(HELLO_BYTES))
                writer.write(await there.read(HELLO_BYTES))
                there.say(await reader.readexactly(32))
                writer.write(await there.read(33))

        async with serving(relay, middle.listening.context) as where:
            with pytest.raises(PeerError, match="its secret differs"):
                await one.peers.connect("other", f"{AFAR}:{where}")
        assert (one.refused("key"), other.refused("key")) == (1, 1)
        assert one.user.events == other.user.events == []


@pytest.mark.parametrize("side", ["forth", "back"])
async def test_a_flipped_bit_makes_no_link(side: str) -> None:
    """Wherever it is on the way, from the first byte of TLS to the last one of the proofs."""
    rng = random.Random(SEED)
    one, other = far("one", HASTE), far("other", HASTE)
    async with running(one, other):
        seen = {"forth": b"", "back": b""}

        def keep(way: str, data: bytes) -> bytes:
            seen[way] += data
            return data

        ways = partial(keep, "forth"), partial(keep, "back")
        async with between(other.address, None, *ways) as (_, port):
            await one.peers.connect("other", f"{AFAR}:{port}")
        await one.user.told("closed")
        await other.user.told("closed")
        ignored = _ignored(seen[side])
        # Signatures differ by some bytes in length.
        places = [*range(10), *(rng.randrange(len(seen[side]) - 8) for _ in range(14))]
        for place in places:
            if place not in ignored:
                await _flipped(one, other, side, place, 1 << rng.randrange(8))


def _ignored(stream: bytes) -> set[int]:
    """The version in the head of a record in the clear means nothing (RFC 8446, 5.1)."""
    found: set[int] = set()
    at = 0
    while stream[at] in (20, 22):
        found |= {at + 1, at + 2}
        at += 5 + int.from_bytes(stream[at + 3 : at + 5], "big")
    return found


async def _flipped(one: Node, other: Node, side: str, place: int, bit: int) -> None:
    passed = 0

    def change(data: bytes) -> bytes:
        nonlocal passed
        at, passed = place - passed, passed + len(data)
        if not 0 <= at < len(data):
            return data
        return data[:at] + bytes((data[at] ^ bit,)) + data[at + 1 :]

    opened = one.user.count("opened"), other.user.count("opened")
    forth, back = (change, same) if side == "forth" else (same, change)
    async with between(other.address, None, forth, back) as (_, port):
        with pytest.raises(PeerError):
            await one.peers.connect("other", f"{AFAR}:{port}")
    said = f"seed {SEED}, {side}, byte {place}, bits {bit:08b}"
    assert (one.user.count("opened"), other.user.count("opened")) == opened, said


async def test_a_stranger_in_the_clear_is_refused() -> None:
    node = far("one")
    async with running(node), stranger(node.address.replace(AFAR, "127.0.0.1")) as who:
        who.say(Hello.fresh("one", "i1").packed())
        await who.rest()
        await node.has_refused("tls")
        assert node.user.events == []


async def test_files_on_one_side_only_are_refused_with_the_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever connects; each side can say what is wrong."""
    files = make_files(tmp_path, "files", trustme.CA()).node("files")
    none = far("none")
    async with running(files, none):
        with pytest.raises(PeerError, match=r"not of peers.tls_ca_file.*self-signed"):
            await files.peers.connect("none", none.address)
        assert files.refused("tls") == 1
        there = files.address.replace("127.0.0.1", AFAR)
        with pytest.raises(PeerError, match="it has TLS files"):
            await none.peers.connect("files", there)
        await files.has_refused("tls", 2)
        assert "it has no TLS files and this sidecar has some" in caplog.text
        assert files.user.events == none.user.events == []
