"""How much may be under way on a link, of all subscriptions together (I8)."""

from __future__ import annotations

from collections.abc import Callable

from ackd.engine.peers.frames import MESSAGE_BYTES_MAX
from ackd.ports import PeerLink

UNSENT_MAX = 16 << 20
"""Bytes that leases were asked for, or that are unsent, from which on nothing more is granted for
the sidecar at the other end. The last message may go beyond.
"""


class LinkRoom:
    """The room on one link. `has_room` is called when there is some again after there was none."""

    __slots__ = ("_full", "_has_room", "_promised", "_shut", "link")

    def __init__(self, link: PeerLink, has_room: Callable[[PeerLink], None]) -> None:
        self.link = link
        self._has_room = has_room
        self._promised = 0
        self._full = self._shut = False

    def shut(self) -> None:
        """The link has closed: there is never room again."""
        self._shut = True

    def left(self) -> int:
        """Bytes that may be granted now."""
        if self._shut:
            return 0
        left = UNSENT_MAX - self._promised - self.link.unsent
        self._full |= left <= 0
        return left

    def promise(self, size: int) -> None:
        """Messages of this size will be sent; or no more, if it is negative."""
        self._promised += size
        if size < 0 and self._full and self.left() > 0:
            self.writable()

    def writable(self) -> None:
        """Nothing is unsent any more, or less is promised."""
        if self._full and self._promised < UNSENT_MAX:
            self._full = False
            self._has_room(self.link)


class PlaceOnLink:
    """Implements `ackd.engine.delivery.relay.Relay` for one receive. `end` when it is answered."""

    __slots__ = ("_promised", "_room")

    message_bytes_max = MESSAGE_BYTES_MAX

    def __init__(self, room: LinkRoom) -> None:
        self._room = room
        self._promised = 0

    @property
    def link(self) -> PeerLink:
        return self._room.link

    def left(self) -> int:
        return self._room.left()

    def ask(self, size: int) -> None:
        self._promised += size
        self._room.promise(size)

    def refused(self) -> None:
        self.end()

    def end(self) -> None:
        """Its messages count as unsent now, or they won't be sent."""
        promised, self._promised = self._promised, 0
        self._room.promise(-promised)
