"""With TLS both sides show a certificate of one authority, and renewed files count at once."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest
import trustme
import uvloop

from ackd.config.peers import PeerSettings
from ackd.config.units import MIB
from ackd.errors import ConfigError, PeerError
from ackd.peer.handshake import HELLO_BYTES, Hello
from ackd.peer.link import TcpLink
from ackd.peer.peer_limits import PeerLimits
from ackd.peer.tls import TlsFiles
from ackd.ports import PeerLink
from tests.unit.peer.middle import between
from tests.unit.peer.recorder import Node, linked, make_node, running
from tests.unit.peer.stranger import stranger


@dataclass(frozen=True, slots=True)
class Files:
    """The TLS files of one sidecar."""

    cert: Path
    key: Path
    ca: Path

    def issue(self, authority: trustme.CA) -> None:
        """Write a new certificate, as whoever renews it does."""
        leaf = authority.issue_cert("sidecar.example")
        leaf.cert_chain_pems[0].write_to_path(self.cert)
        leaf.private_key_pem.write_to_path(self.key)
        authority.cert_pem.write_to_path(self.ca)

    def settings(self) -> PeerSettings:
        """Settings that name them."""
        return PeerSettings(tls_cert_file=self.cert, tls_key_file=self.key, tls_ca_file=self.ca)

    def node(self, name: str, limits: PeerLimits | None = None) -> Node:
        """A sidecar with them."""
        return make_node(name, self.settings(), limits)


def make_files(folder: Path, name: str, authority: trustme.CA) -> Files:
    """A certificate in a folder of its own."""
    here = folder / name
    here.mkdir()
    files = Files(here / "tls.crt", here / "tls.key", here / "ca.crt")
    files.issue(authority)
    return files


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


def shown_by(link: PeerLink) -> int:
    """The serial number of the other side's certificate."""
    wire = cast("TcpLink", link)._transport
    return int(wire.get_extra_info("peercert")["serialNumber"], 16)


async def test_a_link_is_encrypted_and_both_sides_show_a_certificate(
    tmp_path: Path, authority: trustme.CA
) -> None:
    one = make_files(tmp_path, "one", authority).node("one")
    other = make_files(tmp_path, "other", authority).node("other")
    async with running(one, other):
        here, there = await linked(one, other)
        for link in (here, there):
            assert (
                cast("TcpLink", link)._transport.get_extra_info("ssl_object").version() == "TLSv1.3"
            )
        assert shown_by(here) != shown_by(there)
        here.send(bytes(20 * MIB))
        there.send(b"small")
        await other.user.until(lambda: other.user.bodies() == [bytes(20 * MIB)])
        await one.user.until(lambda: one.user.bodies() == [b"small"])
        await one.user.told("writable")
        here.close()
        await other.user.told("closed")


async def test_with_tls_the_secret_still_decides(tmp_path: Path, authority: trustme.CA) -> None:
    one = make_files(tmp_path, "one", authority).node("one")
    other = make_files(tmp_path, "other", authority).node("other")
    one.key.append(b"the secret of another store")
    async with running(one, other):
        with pytest.raises(PeerError, match="another store"):
            await one.peers.connect("other", other.address)


async def test_a_certificate_of_another_authority_is_refused(
    tmp_path: Path, authority: trustme.CA
) -> None:
    """Whichever side has it."""
    one = make_files(tmp_path, "one", authority).node("one")
    files = make_files(tmp_path, "other", trustme.CA())
    other = files.node("other")
    authority.cert_pem.write_to_path(files.ca)
    half = files.node("half")
    async with running(one, other, half):
        with pytest.raises(PeerError, match="certificate verify failed"):
            await one.peers.connect("other", other.address)
        assert one.refused("tls") == 1
        with pytest.raises(PeerError):
            await half.peers.connect("one", one.address)
        await one.has_refused("tls", 1)
        assert one.user.events == other.user.events == half.user.events == []


async def test_who_shows_no_certificate_or_speaks_no_tls_is_refused(
    tmp_path: Path, authority: trustme.CA
) -> None:
    node = make_files(tmp_path, "one", authority).node("one")
    async with running(node):
        context = ssl.create_default_context()
        context.check_hostname = False
        authority.configure_trust(context)
        host, _, port = node.address.rpartition(":")
        with pytest.raises((OSError, asyncio.IncompleteReadError)):
            await _greet(host, int(port), context)
        await node.has_refused("tls", 1)
        async with stranger(node.address) as who:
            who.say(Hello.fresh("one", "i1").packed())
            await who.rest()
        await node.has_refused("tls", 2)
        assert node.user.events == []


async def _greet(host: str, port: int, context: ssl.SSLContext) -> None:
    reader, writer = await asyncio.open_connection(host, port, ssl=context)
    try:
        writer.write(Hello.fresh("one", "i1").packed())
        await reader.readexactly(HELLO_BYTES)
    finally:
        writer.transport.abort()
        await asyncio.sleep(0)


async def test_who_does_not_begin_tls_is_cut_off(tmp_path: Path, authority: trustme.CA) -> None:
    files = make_files(tmp_path, "one", authority)
    node = files.node("one", PeerLimits(handshake_s=0.1))
    async with running(node), stranger(node.address) as who:
        assert await who.rest() == b""
        assert node.refused("timeout") == 1


async def test_who_stands_between_is_noticed(tmp_path: Path, authority: trustme.CA) -> None:
    """A certificate of the authority is not enough to read along: proofs name both ends' own."""
    one = make_files(tmp_path, "one", authority).node("one")
    other = make_files(tmp_path, "other", authority).node("other")
    files = make_files(tmp_path, "middle", authority)
    middle = await asyncio.to_thread(TlsFiles.of, files.settings())
    assert middle is not None
    certificate = middle.now
    async with running(one, other), between(other.address, certificate) as (address, _):
        with pytest.raises(PeerError, match="another store"):
            await one.peers.connect("other", address)
        assert other.refused("key") == 1
        assert one.user.events == other.user.events == []


async def test_a_renewed_certificate_is_used_for_new_links(
    tmp_path: Path, authority: trustme.CA, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one authority to the next, on both sides; the link that was open stays."""
    monkeypatch.setattr("ackd.peer.tls.LOOK_S", 0.005)
    ones, others = (make_files(tmp_path, name, authority) for name in ("one", "other"))
    one, other = ones.node("one"), others.node("other")
    async with running(one, other):
        here, _ = await linked(one, other)
        before = shown_by(here)
        others.key.write_text("half of a new pair")
        newer = trustme.CA()
        for files in (ones, others):
            files.issue(newer)
        third = make_files(tmp_path, "third", newer).node("third")
        async with running(third), asyncio.timeout(20):
            while third.user.count("opened") == 0:
                try:
                    await third.peers.connect("other", other.address)
                except PeerError:
                    await asyncio.sleep(0.005)
            assert shown_by(await third.user.told("opened")) != before
            here.send(b"still here")
            await other.user.until(lambda: other.user.bodies() == [b"still here"])


def test_while_the_files_are_broken_the_old_ones_stay(
    tmp_path: Path, authority: trustme.CA, caplog: pytest.LogCaptureFixture
) -> None:
    files = make_files(tmp_path, "one", authority)
    tls = TlsFiles.of(files.settings())
    assert tls is not None
    before = tls.now
    tls.look()
    assert tls.now is before
    files.cert.write_text("-----BEGIN CERTIFICATE-----\n")
    for _ in range(2):
        tls.look()
        assert tls.now is before
    assert "can't be read again" in caplog.text
    files.issue(authority)
    tls.look()
    assert tls.now.digest != before.digest


def test_files_that_cannot_be_used_are_a_mistake_of_the_configuration(
    tmp_path: Path, authority: trustme.CA
) -> None:
    files = make_files(tmp_path, "one", authority)
    files.cert.write_text("no certificate")
    with pytest.raises(ConfigError, match=r"tls.crt holds no certificate"):
        TlsFiles.of(files.settings())
    files.key.unlink()
    with pytest.raises(ConfigError, match="can't be used"):
        TlsFiles.of(files.settings())
    assert TlsFiles.of(PeerSettings()) is None


def test_on_the_other_event_loop_too(tmp_path: Path, authority: trustme.CA) -> None:
    """`ackd serve` runs on uvloop where that is installed."""

    async def story() -> None:
        await test_a_link_is_encrypted_and_both_sides_show_a_certificate(tmp_path / "u", authority)

    (tmp_path / "u").mkdir()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(story())
