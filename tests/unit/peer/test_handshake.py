"""Who gets a link: only a sidecar of the same store, the one that was meant, in a bounded time."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from ackd.config.peers import PeerSettings
from ackd.errors import ConfigError, PeerError
from ackd.peer.handshake import CONNECTING, HELLO_BYTES, MAGIC, Hello, proof
from ackd.peer.peer_limits import PeerLimits
from ackd.peer.this_machine import ON, this_machine
from tests.unit.peer.recorder import KEY, linked, make_node, running
from tests.unit.peer.stranger import impostor, stranger


async def test_two_sidecars_of_a_store_are_linked() -> None:
    one, other = make_node("one"), make_node("other")
    async with running(one, other):
        here, there = await linked(one, other)
        assert (here.name, here.instance, here.outgoing) == ("other", other.peers.instance, True)
        assert (there.name, there.instance, there.outgoing) == ("one", one.peers.instance, False)
        assert "ackd_peers_connected 1.0" in one.shown()
        await one.peers.connect("other", other.address)
        await other.peers.connect("one", one.address)
        assert (one.user.count("opened"), other.user.count("opened")) == (1, 1)
    assert "ackd_peers_connected 0.0" in one.shown()


async def test_many_who_connect_at_once_make_one_link() -> None:
    one, other = make_node("one"), make_node("other")
    async with running(one, other):
        await asyncio.gather(*(one.peers.connect("other", other.address) for _ in range(5)))
        assert one.user.count("opened") == 1


async def test_another_stores_secret_is_refused_on_both_sides(
    caplog: pytest.LogCaptureFixture,
) -> None:
    one, other = make_node("one"), make_node("other")
    one.key.append(b"the secret of another store")
    caplog.set_level(logging.DEBUG)
    async with running(one, other):
        with pytest.raises(PeerError, match=r"other at 127.*another store") as caught:
            await one.peers.connect("other", other.address)
        assert caught.value.facts == {"reason": "key"}
        assert (one.refused("key"), other.refused("key")) == (1, 1)
        assert other.user.events == []
        assert "secret of one" not in caplog.text
        one.key.append(KEY)
        await linked(one, other)


async def test_without_a_secret_nobody_is_let_in() -> None:
    """An empty key would be known to everybody."""
    one, other = make_node("one"), make_node("other")
    one.key.append(b"")
    other.key.append(b"")
    async with running(one, other):
        with pytest.raises(PeerError, match="no secret of its store yet"):
            await one.peers.connect("other", other.address)
        async with stranger(other.address) as who:
            assert await who.rest() == b""
        assert other.refused("key") >= 1


async def test_a_wrong_sidecar_at_the_address_is_no_link() -> None:
    one, other = make_node("one"), make_node("other")
    async with running(one, other):
        with pytest.raises(PeerError, match="the sidecar other answers there, not third"):
            await one.peers.connect("third", other.address)
        with pytest.raises(PeerError, match="this sidecar itself is there"):
            await one.peers.connect("one", one.address)
        assert one.refused("name") >= 2
        assert one.user.events == other.user.events == []


async def test_a_recorded_proof_does_not_fit_again() -> None:
    """Each handshake has nonces of its own."""
    node = make_node("node")
    async with running(node):
        async with stranger(node.address) as who:
            recorded = await who.prove("one", "i1")
            await node.user.told("opened")
        async with stranger(node.address) as who:
            who.say(recorded)
            answer = await who.rest()
        assert answer[HELLO_BYTES:] == b"\1" + bytes(32)
        assert node.refused("key") == 1
        assert node.user.count("opened") == 1


async def test_a_listeners_proof_sent_back_is_none() -> None:
    """A proof is one of its side only."""
    node = make_node("node")
    mine = Hello.fresh("one", "i1")
    async with running(node), stranger(node.address) as who:
        who.say(mine.packed())
        hellos = mine.packed() + await who.read(HELLO_BYTES)
        who.say(proof(KEY, b"listening", hellos, b""))
        assert await who.rest() == b"\1" + bytes(32)
        assert node.user.events == []


async def test_a_proof_counts_for_its_name_only() -> None:
    node = make_node("node")
    one, two = Hello.fresh("one", "i1"), Hello.fresh("two", "i1")
    async with running(node), stranger(node.address) as who:
        who.say(two.packed())
        hellos = one.packed() + await who.read(HELLO_BYTES)
        who.say(proof(KEY, CONNECTING, hellos, b""))
        assert await who.rest() == b"\1" + bytes(32)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "garbage"),
        (b"x" * 10_000_000, "garbage"),
        (MAGIC + b"\2" + bytes(200), "version"),
        (MAGIC + b"\1" + bytes(200), "garbage"),
        (MAGIC + b"\1" + bytes(32) + b"i".ljust(32, b"\0") + b"../a".ljust(100, b"\0"), "garbage"),
    ],
    ids=["http", "much", "version", "nameless", "bad name"],
)
async def test_garbage_is_closed_at_once_and_counted(said: bytes, reason: str) -> None:
    node = make_node("node", limits=PeerLimits(handshake_s=3600))
    async with running(node), stranger(node.address) as who:
        who.say(said)
        answer = await who.rest()
        assert node.refused(reason) == 1
        # Another version is told this one's.
        assert answer[: len(MAGIC)] == (MAGIC if reason == "version" else b"")
        assert node.user.events == []


async def test_who_listens_may_be_anything() -> None:
    one = make_node("one", limits=PeerLimits(handshake_s=3600))
    answers = {
        MAGIC + b"\2" + bytes(200): "version 2 of the protocol, this sidecar 1",
        b"HTTP/1.1 400 Bad Request\r\n\r\n": "does not speak as a sidecar",
        Hello.fresh("other", "i2").packed() + b"\0" + bytes(32): "its secret differs",
        Hello.fresh("other", "i2").packed() + b"\2" + bytes(32): "all the connections",
        Hello.fresh("other", "i2").packed() + b"\7" + bytes(32): "without a reason",
    }
    async with running(one):
        for answer, problem in answers.items():
            async with impostor(answer) as address:
                with pytest.raises(PeerError, match=problem):
                    await one.peers.connect("other", address)
        assert one.user.events == []


async def test_who_is_slow_is_cut_off() -> None:
    """A byte now and then prolongs nothing."""
    node = make_node("node", limits=PeerLimits(handshake_s=0.2))
    hello = Hello.fresh("one", "i1").packed()
    async with running(node), stranger(node.address) as who, asyncio.TaskGroup() as group:

        async def drip() -> None:
            for byte in hello[:-1]:
                who.say(bytes((byte,)))
                await asyncio.sleep(0.02)

        dripping = group.create_task(drip())
        assert await who.rest() == b""
        dripping.cancel()
        assert node.refused("timeout") == 1


async def test_who_never_answers_is_given_up() -> None:
    one = make_node("one", limits=PeerLimits(handshake_s=0.1))
    async with running(one), impostor(b"") as address:
        with pytest.raises(PeerError, match="does not answer in time"):
            await one.peers.connect("other", address)
        assert one.refused("timeout") == 1


async def test_nobody_there_is_told() -> None:
    one, other = make_node("one"), make_node("other")
    async with running(one, other):
        await other.peers.stop()
        with pytest.raises(PeerError, match="other can't be reached at 127"):
            await one.peers.connect("other", other.address)
        with pytest.raises(PeerError, match="gives the address 'nowhere'"):
            await one.peers.connect("other", "nowhere")


async def test_strangers_are_bounded() -> None:
    node = make_node("node", limits=PeerLimits(handshakes_max=2, handshake_s=3600))
    async with running(node), stranger(node.address) as first, stranger(node.address) as second:
        for who in (first, second):
            who.say(Hello.fresh("one", "i1").packed())
            await who.read(HELLO_BYTES)
        async with stranger(node.address) as third:
            assert await third.rest() == b""
        assert node.refused("crowded") == 1
        second.writer.transport.abort()
        await node.has_refused("lost")
        async with stranger(node.address) as fourth:
            await fourth.prove("four", "i4")


async def test_links_are_bounded_on_both_sides() -> None:
    few = PeerSettings(connections_max=1)
    one, other, third = make_node("one"), make_node("other", few), make_node("third")
    async with running(one, other, third):
        here, _ = await linked(one, other)
        with pytest.raises(PeerError, match="it has all the connections") as caught:
            await third.peers.connect("other", other.address)
        assert caught.value.facts == {"reason": "crowded"}
        with pytest.raises(PeerError, match="this sidecar has all the connections"):
            await other.peers.connect("third", third.address)
        here.close()
        await other.user.told("closed")
        await linked(third, other)


async def test_i8_links_in_one_direction_leave_some_to_the_other() -> None:
    """Who has all the connections of others still makes its own, and the other way round."""
    some = PeerSettings(connections_max=4)
    crowded, busy = make_node("crowded", some), make_node("busy", some)
    others = [make_node(f"other-{number}") for number in range(5)]
    async with running(crowded, busy, *others):
        for number, other in enumerate(others[:3]):
            await other.peers.connect("crowded", crowded.address)
            await crowded.user.told("opened", number + 1)
            await busy.peers.connect(f"other-{number}", other.address)
        with pytest.raises(PeerError, match="it has all the connections"):
            await others[3].peers.connect("crowded", crowded.address)
        await crowded.peers.connect("other-3", others[3].address)
        with pytest.raises(PeerError, match="this sidecar has all the connections"):
            await busy.peers.connect("other-4", others[4].address)
        await others[3].peers.connect("busy", busy.address)
        await busy.user.told("opened", 4)
        with pytest.raises(PeerError, match="it has all the connections"):
            await others[4].peers.connect("busy", busy.address)


async def test_an_address_that_nobody_can_use_is_a_mistake(tmp_path: Path) -> None:
    """The rules of the configuration say so, too; this is the last line."""
    for settings, problem in (
        (PeerSettings(listen=":0"), "nobody can connect to"),
        (PeerSettings(listen=":0", advertise="localhost"), "is of this machine"),
        (PeerSettings(listen="unix:/x"), "connect by TCP"),
        (PeerSettings(tls_cert_file=tmp_path / "no"), "go together"),
    ):
        with pytest.raises(ConfigError, match=problem):
            await make_node("one", settings).start()


async def test_a_sidecar_whose_port_is_taken_connects_to_others() -> None:
    one = make_node("one")
    async with running(one):
        other = make_node("other", PeerSettings(listen=one.address))
        try:
            with pytest.raises(PeerError, match=r"peers.listen: can't listen on 127.*in use"):
                await other.start()
            await linked(other, one)
        finally:
            await other.peers.stop()


async def test_a_loopback_address_is_used_on_its_own_machine_only() -> None:
    """Elsewhere nobody, or somebody else, listens there; nothing is said to him."""
    one, other = make_node("one"), make_node("other")
    async with running(one, other):
        assert other.told == f"{other.address}{ON}{await asyncio.to_thread(this_machine)}"
        with pytest.raises(PeerError, match=r"listens on its own machine only"):
            await one.peers.connect("other", f"{other.address}{ON}another")
        assert other.user.events == []
        assert other.metrics.peer_bytes.at("received").value == 0
        await one.peers.connect("other", other.told)


async def test_the_address_for_others_may_be_another() -> None:
    for text in ("localhost:0", "localhost"):
        one = make_node("one", PeerSettings(advertise=text))
        async with running(one):
            host, _, port = one.address.rpartition(":")
            assert host == "localhost"
            assert int(port) > 0


async def test_an_address_of_ipv6_is_given_in_brackets() -> None:
    one = make_node("one", PeerSettings(listen=":0", advertise="fd00::7"))
    async with running(one):
        assert one.address.startswith("[fd00::7]:")
