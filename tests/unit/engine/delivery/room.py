"""A link to another sidecar, as the queue of receives sees it."""

from __future__ import annotations


class Room:
    """Implements `Relay`: a link with this much room."""

    message_bytes_max = 1 << 20

    def __init__(self) -> None:
        self.link: object = self
        self.bytes = 1
        self.refusals = 0

    def left(self) -> int:
        return self.bytes

    def ask(self, size: int) -> None:
        self.bytes -= size

    def refused(self) -> None:
        self.refusals += 1
