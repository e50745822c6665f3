"""What the dispatcher asks about a receive that came from another sidecar (`ackd.engine.peers`)."""

from __future__ import annotations

from typing import Protocol


class Relay(Protocol):
    """Where such a receive is answered: a link, over which only so much may be under way (I8)."""

    @property
    def link(self) -> object:
        """What receives that are answered there have in common."""

    @property
    def message_bytes_max(self) -> int:
        """A longer message is not sent there."""

    def left(self) -> int:
        """Bytes of messages that may be granted for it now; 0 or less: it waits."""

    def ask(self, size: int) -> None:
        """Leases of messages of this size are asked for."""

    def refused(self) -> None:
        """None of them was granted; it waits again."""
