"""A user of links that keeps what it is told, and two sidecars that can be linked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from ackd.config.peers import PeerSettings
from ackd.peer.network import TcpPeers
from ackd.peer.peer_limits import PeerLimits
from ackd.peer.this_machine import ON
from ackd.ports import PeerLink
from ackd.telemetry.metrics import Metrics
from tests.support.wait import wait_until_async

KEY = b"the secret of one store"
BOUND_S = 30.0
STILL = PeerLimits(beat_s=3600.0, quiet_s=3600.0 * 3)
"""Nobody ticks but the test."""


class Recorder:
    """Implements `PeerUser`. A frame `b"nonsense"` makes no sense."""

    def __init__(self) -> None:
        self.events: list[tuple[str, PeerLink]] = []
        self.frames: list[tuple[PeerLink, bytes]] = []
        self._news = asyncio.Event()

    def opened(self, link: PeerLink) -> None:
        self._note("opened", link)

    def received(self, link: PeerLink, frame: bytes) -> None:
        if frame == b"nonsense":
            message = "no such verb"
            raise ValueError(message)
        self.frames.append((link, frame))
        self._news.set()

    def writable(self, link: PeerLink) -> None:
        self._note("writable", link)

    def closed(self, link: PeerLink) -> None:
        self._note("closed", link)

    def _note(self, what: str, link: PeerLink) -> None:
        self.events.append((what, link))
        self._news.set()

    def count(self, what: str) -> int:
        """How often it was told."""
        return sum(1 for each, _ in self.events if each == what)

    def bodies(self) -> list[bytes]:
        """The frames, in the order in which they came."""
        return [frame for _, frame in self.frames]

    async def has(self, bodies: list[bytes]) -> None:
        """Wait for these frames, which are all that come."""
        await self.until(lambda: len(self.frames) >= len(bodies))
        assert self.bodies() == bodies

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until news make the condition true."""
        async with asyncio.timeout(BOUND_S):
            while not condition():
                self._news.clear()
                await self._news.wait()

    async def told(self, what: str, times: int = 1) -> PeerLink:
        """Wait until it was told so often; the link of the last time."""
        await self.until(lambda: self.count(what) >= times)
        return [link for each, link in self.events if each == what][times - 1]


@dataclass(slots=True)
class Node:
    """A sidecar's connections, what they told, and where others connect."""

    peers: TcpPeers
    user: Recorder
    metrics: Metrics
    told: str = ""
    """What the others are given."""
    key: list[bytes] = field(default_factory=lambda: [KEY])
    """The last one counts."""

    async def start(self) -> None:
        """Listen."""
        self.told = await self.peers.start(self.user, lambda: self.key[-1])

    @property
    def address(self) -> str:
        """Where it listens."""
        return self.told.partition(ON)[0]

    def refused(self, reason: str) -> float:
        """How many handshakes were refused for it."""
        return self.metrics.peer_handshakes_refused.at(reason).value

    async def has_received(self, size: int) -> None:
        """Wait until as many bytes have come on its links."""
        counter = self.metrics.peer_bytes.at("received")

        async def received() -> bool:
            return counter.value >= size

        await wait_until_async(received, f"{size} bytes received", interval_s=0.001)

    async def has_refused(self, reason: str, times: int = 1) -> None:
        """Wait until as many handshakes were refused for it."""

        async def refused() -> bool:
            return self.refused(reason) >= times

        await wait_until_async(refused, f"refused: {reason}", interval_s=0.001)

    def shown(self) -> str:
        """Its metrics as a scraper gets them."""
        return self.metrics.render("")[0].decode()


def make_node(
    name: str,
    settings: PeerSettings | None = None,
    limits: PeerLimits | None = None,
    instance: str = "",
) -> Node:
    """A sidecar that has not started."""
    metrics = Metrics()
    settings = settings or PeerSettings()
    peers = TcpPeers(name, settings, metrics, instance=instance, limits=limits)
    return Node(peers, Recorder(), metrics)


@asynccontextmanager
async def running(*nodes: Node) -> AsyncIterator[None]:
    """Start them, and stop them in the end."""
    try:
        for node in nodes:
            await node.start()
        yield
    finally:
        for node in nodes:
            await node.peers.stop()


async def linked(one: Node, other: Node) -> tuple[PeerLink, PeerLink]:
    """Connect `one` to `other`; both ends of the link."""
    before = other.user.count("opened")
    await one.peers.connect(other.peers.name, other.address)
    there = await other.user.told("opened", before + 1)
    return one.user.events[-1][1], there
