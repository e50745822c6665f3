"""Connect the sidecars of one store by TCP: open links, accept them, and close silent ones.

Only connections within this machine may go without TLS.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import ssl
from collections.abc import Callable
from functools import partial

from ackd.config.address import TcpAddress
from ackd.config.peers import PeerSettings, everywhere, parse_advertised, parse_peer_address
from ackd.engine.base.tasks import Tasks, Vitals
from ackd.errors import ConfigError, PeerError
from ackd.peer.arrivals import Arrivals
from ackd.peer.handshake import Handshake, Hello, NoLinkError
from ackd.peer.link import READ_BYTES, TICKS_A_BEAT, LinkShare, TcpLink
from ackd.peer.local import Local
from ackd.peer.peer_limits import PeerLimits
from ackd.peer.this_machine import ON, this_machine
from ackd.peer.tls import TlsFiles, explained, unverified
from ackd.ports.peers import PeerUser
from ackd.telemetry.metrics import Metrics

LOG = logging.getLogger("ackd.peer")

RESERVED_SHARE = 4
"""One link in so many of `connections_max` is kept for each direction."""
Outcome = asyncio.Future[Hello | NoLinkError]


class TcpPeers:
    """Implements `ackd.ports.PeerNetwork`. It starts and stops once."""

    def __init__(
        self,
        name: str,
        settings: PeerSettings,
        metrics: Metrics,
        vitals: Vitals | None = None,
        *,
        instance: str = "",
        limits: PeerLimits | None = None,
    ) -> None:
        """`name`: this sidecar's identity. `instance`: a string that names this process; if empty,
        a random one.
        """
        self.name = name
        self.instance = instance or secrets.token_hex(8)
        self._settings = settings
        self._metrics = metrics
        self._limits = limits or PeerLimits()
        self._vitals = vitals
        self._tasks = Tasks("peers", vitals)
        self._running: tuple[Local, LinkShare, Arrivals] | None = None
        # By the other process and whether this sidecar connected: at most two to one process.
        self._links: dict[tuple[str, bool], TcpLink] = {}
        # Sidecars to which this one connects just now; the event is set when that is over.
        self._connecting: dict[str, asyncio.Event] = {}
        self._slots = asyncio.Semaphore(self._limits.handshakes_max)

    async def start(self, user: PeerUser, key: Callable[[], bytes]) -> str:
        """Listen. Returns the address that other sidecars connect to. `key()` returns the present
        secret of the store.

        Raises ConfigError. Raises PeerError if it can't listen; `connect` works all the same.
        """
        settings, metrics = self._settings, self._metrics
        address = _address("listen", settings.listen, parse_peer_address)
        given = address
        if settings.advertise:
            given = _address("advertise", settings.advertise, parse_advertised)
        if everywhere(given):
            raise ConfigError(f"peers.advertise: nobody can connect to {given}.")
        files = await asyncio.to_thread(TlsFiles.of, settings)
        if files is None and given.local and not address.local:
            problem = f"peers.advertise: {given} is of this machine, and {address} is not."
            raise ConfigError(problem)
        buffer = memoryview(bytearray(READ_BYTES))
        sent, received = metrics.peer_bytes.at("sent"), metrics.peer_bytes.at("received")
        share = LinkShare(user, self._limits, buffer, sent, received, self._ended)
        local = await asyncio.to_thread(self._local, key, files, secret=not given.local)
        arrivals = Arrivals(local, self._limits, metrics, self._has_room, self._arrived)
        self._running = local, share, arrivals
        self._count()
        self._tasks.start(self._sweep(), "sweep")
        if files is not None:
            self._tasks.start(files.watch(), "tls")
        try:
            host, port = await arrivals.listen(address.host, address.port, self._vitals)
        except OSError as error:
            problem = f"peers.listen: can't listen on {address}: {error.strerror or error}"
            raise PeerError(problem) from error
        reported = TcpAddress(given.host if settings.advertise else host, given.port or port)
        return f"{reported}{ON}{local.machine}" if reported.local else str(reported)

    def _local(self, key: Callable[[], bytes], files: TlsFiles | None, *, secret: bool) -> Local:
        """`secret`: whether other machines may connect, so that connections need TLS."""
        own = None
        if files is None and secret:
            # Loading this takes some 12 MiB, which a sidecar alone on its machine need not spend.
            from ackd.peer.self_made import listening  # noqa: PLC0415

            own = listening()
        return Local(self.name, self.instance, this_machine(), key, files, own, unverified())

    async def connect(self, name: str, address: str) -> None:
        """Connect to the sidecar `name` at `address`, unless there is a link in either direction.
        `PeerUser.opened` is called before this returns.

        Raises PeerError: nobody answers there, or another sidecar, or one of another store.
        """
        while (running := self._connecting.get(name)) is not None:
            await running.wait()
        if any(link.name == name for link in self._links.values()):
            return
        over = self._connecting[name] = asyncio.Event()
        try:
            async with self._slots:
                await self._connect(name, address)
        finally:
            del self._connecting[name]
            over.set()

    async def _connect(self, name: str, text: str) -> None:
        if self._running is None:
            raise PeerError("This sidecar connects to no other: it is starting or stopping.")
        local = self._running[0]
        text, _, machine = text.partition(ON)
        if machine and machine != local.machine:
            raise PeerError(f"{name} listens on its own machine only (its `peers.listen`).")
        try:
            address = parse_peer_address(text)
        except ValueError as error:
            raise PeerError(f"{name} gives the address {text!r}: {error}.") from error
        tls = local.connecting(address)
        outcome: Outcome = asyncio.get_running_loop().create_future()
        terms = local.terms(tls, partial(self._made, outcome), expected=name)
        wire: asyncio.Transport | None = None
        try:
            async with asyncio.timeout(self._limits.handshake_s):
                wire, _ = await asyncio.get_running_loop().create_connection(
                    partial(Handshake, terms),
                    address.host,
                    address.port,
                    ssl=None if tls is None else tls.context,
                )
                other = await outcome
        except TimeoutError:
            other = NoLinkError("timeout", "it does not answer in time")
        except ssl.SSLError as error:
            other = NoLinkError("tls", explained(error))
        except OSError as error:
            raise PeerError(f"{name} can't be reached at {address}: {error}.") from error
        finally:
            if outcome.cancelled() or not outcome.done():
                outcome.cancel()
                if wire is not None:
                    wire.abort()
        if isinstance(other, NoLinkError):
            self._metrics.peer_handshakes_refused.at(other.reason).inc()
            raise PeerError(f"No link to {name} at {address}: {other}.", reason=other.reason)

    def _made(
        self, outcome: Outcome, transport: asyncio.Transport, other: Hello | NoLinkError
    ) -> None:
        """Called when a handshake that this sidecar began is over."""
        if outcome.done():
            transport.abort()
            return
        if isinstance(other, Hello) and not self._room(outgoing=True):
            transport.abort()
            problem = "this sidecar has all the connections that it may have"
            other = NoLinkError("crowded", problem)
        if isinstance(other, Hello):
            self._open(other, transport, outgoing=True)
        outcome.set_result(other)

    def _has_room(self, other: Hello) -> bool:
        """Whether `other` may have a link, if only in place of its older one."""
        return (other.instance, False) in self._links or self._room(outgoing=False)

    def _room(self, *, outgoing: bool) -> bool:
        """Whether there may be one more link in this direction. Those in one direction leave a
        quarter to the other, so that a sidecar whose links others have taken can still get messages
        for its own application.
        """
        most = self._settings.connections_max
        same = sum(1 for _, each in self._links if each is outgoing)
        return len(self._links) < most and same < most - most // RESERVED_SHARE

    def _arrived(self, transport: asyncio.Transport, other: Hello) -> None:
        self._open(other, transport, outgoing=False)

    def _open(self, other: Hello, transport: asyncio.Transport, *, outgoing: bool) -> None:
        """Open a link to a sidecar that has proved itself. Drop the link that the same process made
        before: it would not connect again if it still had that one.
        """
        if self._running is None:
            transport.abort()
            return
        share = self._running[1]
        older = self._links.get((other.instance, outgoing))
        if older is not None:
            older.drop()
        link = TcpLink(other, transport, share, outgoing=outgoing)
        self._links[other.instance, outgoing] = link
        self._count()
        transport.set_protocol(link)
        LOG.info("a link %s %s is open", "to" if outgoing else "from", other.name)
        share.user.opened(link)

    def _ended(self, link: TcpLink) -> None:
        key = (link.instance, link.outgoing)
        if self._links.get(key) is link:
            del self._links[key]
            self._count()

    def _count(self) -> None:
        self._metrics.peers_connected.at().set(len(self._links))

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._limits.beat_s / TICKS_A_BEAT)
            for link in tuple(self._links.values()):
                link.tick()

    async def stop(self) -> None:
        """Stop listening, and close all links. `PeerUser.closed` is called for each."""
        running, self._running = self._running, None
        await self._tasks.stop()
        if running is not None:
            await running[2].stop()
        for link in tuple(self._links.values()):
            link.drop()
        await asyncio.sleep(0)


def _address(key: str, text: str, parse: Callable[[str], TcpAddress]) -> TcpAddress:
    try:
        return parse(text)
    except ValueError as error:
        raise ConfigError(f"peers.{key}: {text!r}: {error}.") from error
