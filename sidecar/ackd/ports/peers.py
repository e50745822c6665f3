"""Connections between the sidecars of one store.

A sidecar asks the owner of a partition for messages over such a link, and owners say there when
they have some. What is said is up to the engine (`ackd.engine.peers`); a link carries frames.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class PeerLink(Protocol):
    """One connection to another sidecar, which has proved that it shares the store.

    Frames arrive whole and in the order in which they were sent, or not at all; but shorter ones
    may overtake one of more than 1 MiB. A link that has closed never carries another frame.
    """

    @property
    def name(self) -> str:
        """The other sidecar's identity."""

    @property
    def instance(self) -> str:
        """Names the other sidecar's process: another text after each restart."""

    @property
    def outgoing(self) -> bool:
        """Whether this sidecar made the connection."""

    @property
    def unsent(self) -> int:
        """Bytes that wait here because the other side reads slowly, and those of this turn of the
        event loop.
        """

    def send(self, frame: bytes) -> None:
        """Queue a frame; a closed link drops it. Never blocks and never raises. One that is longer
        than the network takes closes the link.
        """

    def close(self) -> None:
        """Drop the connection, with what is unsent and unread. `closed` of its user follows."""


class PeerUser(Protocol):
    """Whoever uses a sidecar's links. Called on the event loop, never from inside a call to the
    link.
    """

    def opened(self, link: PeerLink) -> None:
        """A link is there, whoever made it. An older one of the same process in the same direction
        was `closed` just before.
        """

    def received(self, link: PeerLink, frame: bytes) -> None:
        """A frame has come. A frame that makes no sense raises ValueError; the link closes then."""

    def writable(self, link: PeerLink) -> None:
        """`unsent` has fallen to nothing after it was above 1 MiB."""

    def closed(self, link: PeerLink) -> None:
        """The link is gone. Called once for each link that was opened."""


class PeerNetwork(Protocol):
    """How a sidecar reaches the others."""

    @property
    def instance(self) -> str:
        """Names this process, as `PeerLink.instance` at the other side."""

    async def start(self, user: PeerUser, key: Callable[[], bytes]) -> str:
        """Listen; returns the address for the others. `key()`: the secret that the sidecars of one
        store share, as it is now.

        Raises ConfigError, and PeerError: it can't listen, and `connect` works nevertheless.
        """

    async def connect(self, name: str, address: str) -> None:
        """Make a link to the sidecar `name` at `address`, unless there is one, whoever made it;
        `opened` is called before this returns. Two that connect to each other at the same moment
        may have two.

        Raises PeerError: nobody answers there, another sidecar does, or one of another store.
        """

    async def stop(self) -> None:
        """Close all links and stop listening."""
