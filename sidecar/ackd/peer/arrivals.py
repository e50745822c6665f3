"""Accept connections of other sidecars. One that does not prove itself within `handshake_s`
seconds is closed and counted.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from functools import partial

from ackd.engine.base.tasks import Tasks, Vitals
from ackd.peer.handshake import Handshake, Hello, NoLinkError
from ackd.peer.local import Local
from ackd.peer.peer_limits import PeerLimits
from ackd.peer.tls import explained
from ackd.telemetry.metrics import Metrics

LOG = logging.getLogger("ackd.peer")

BACKLOG = 128
PAUSE_S = 0.1
"""The wait after a failed accept, for example because the process has no free file descriptor."""

Arrived = Callable[[asyncio.Transport, Hello], None]


class Arrivals:
    """Listens on one port. Until a stranger has proved itself it costs one buffer of
    `HELLO_BYTES`.
    """

    def __init__(
        self,
        local: Local,
        limits: PeerLimits,
        metrics: Metrics,
        room: Callable[[Hello], bool],
        arrived: Arrived,
    ) -> None:
        """`room`: whether this sidecar may have one more link. `arrived`: called with each
        connection whose handshake succeeded.
        """
        self._local = local
        self._limits = limits
        self._metrics = metrics
        self._room = room
        self._arrived = arrived
        self._strangers: set[socket.socket] = set()
        self._tasks: Tasks | None = None
        self._socket: socket.socket | None = None

    async def listen(self, host: str, port: int, vitals: Vitals | None) -> tuple[str, int]:
        """Listen. Returns the address and port that the socket got. Raises OSError."""
        # `loop.create_server` takes one certificate for good. Accepting here gives each connection
        # the certificate that the files hold when it comes.
        listening = self._socket = await asyncio.to_thread(_listening, host, port)
        self._tasks = Tasks("peers", vitals)
        self._tasks.start(self._accept(listening, self._tasks), "accept")
        found = listening.getsockname()
        return found[0], found[1]

    async def stop(self) -> None:
        """Stop listening, and close connections whose handshake is not over."""
        if self._tasks is not None:
            await self._tasks.stop()
        # A task that was cancelled before it began has closed nothing.
        for wire in self._strangers:
            wire.close()
        self._strangers.clear()
        if self._socket is not None:
            self._socket.close()

    async def _accept(self, listening: socket.socket, tasks: Tasks) -> None:
        while True:
            await _readable(listening)
            try:
                wire, where = listening.accept()
                wire.setblocking(False)
            except (BlockingIOError, ConnectionAbortedError):  # it has hung up since
                continue
            except OSError as error:
                LOG.warning("no connection of a sidecar can be accepted: %s", error)
                await asyncio.sleep(PAUSE_S)
                continue
            if len(self._strangers) >= self._limits.handshakes_max:
                wire.close()
                crowd = NoLinkError("crowded", "too many prove themselves just now")
                self._refuse(where[0], crowd)
                continue
            self._strangers.add(wire)
            tasks.start(self._meet(wire, where[0]), "stranger", vital=False, ends=True)

    async def _meet(self, wire: socket.socket, where: str) -> None:
        """Run the handshake on one accepted connection."""
        outcome: asyncio.Future[Hello | NoLinkError] = asyncio.get_running_loop().create_future()
        limit_s = self._limits.handshake_s
        tls = self._local.listening()
        terms = self._local.terms(tls, partial(self._judged, outcome), room=self._room)
        transport: asyncio.Transport | None = None
        try:
            wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with asyncio.timeout(limit_s):
                transport, _ = await asyncio.get_running_loop().connect_accepted_socket(
                    partial(Handshake, terms),
                    wire,
                    ssl=None if tls is None else tls.context,
                    ssl_shutdown_timeout=None if tls is None else limit_s,
                )
                other = await outcome
        except TimeoutError:
            other = NoLinkError("timeout", "it did not prove itself in time")
        except ssl.SSLError as error:
            other = NoLinkError("tls", explained(error))
        except OSError as error:
            other = NoLinkError("lost", f"the connection was lost: {error}")
        finally:
            self._strangers.discard(wire)
            if transport is None:
                wire.close()
            elif outcome.cancelled() or not outcome.done():
                outcome.cancel()
                transport.abort()
        if isinstance(other, NoLinkError):
            self._refuse(where, other)

    def _judged(
        self,
        outcome: asyncio.Future[Hello | NoLinkError],
        transport: asyncio.Transport,
        other: Hello | NoLinkError,
    ) -> None:
        """Called when the handshake is over: begin the link before the loop reads another byte."""
        if outcome.done():
            transport.abort()
            return
        if isinstance(other, Hello):
            self._arrived(transport, other)
        outcome.set_result(other)

    def _refuse(self, where: str, error: NoLinkError) -> None:
        self._metrics.peer_handshakes_refused.at(error.reason).inc()
        LOG.warning("a connection from %s was refused: %s", where, error)


async def _readable(listening: socket.socket) -> None:
    """Wait for a connection without taking it: a cancelled `loop.sock_accept` can lose one."""
    loop = asyncio.get_running_loop()
    come = asyncio.Event()
    loop.add_reader(listening, come.set)
    try:
        await come.wait()
    finally:
        loop.remove_reader(listening)


def _listening(host: str, port: int) -> socket.socket:
    """Open the listening socket, for IPv4 and IPv6 if `host` is empty. Raises OSError."""
    every = not host and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if ":" in host or every else socket.AF_INET
    found = socket.create_server((host, port), family=family, backlog=BACKLOG, dualstack_ipv6=every)
    found.setblocking(False)
    return found
