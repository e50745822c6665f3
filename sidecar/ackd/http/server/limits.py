"""The bounds of a server (invariant I8): connections, bytes of bodies, bytes of unread answers,
time.

Memory at worst, per port: `connections_max` times what one may hold (a head of 4 KiB, which takes
up to 40 KiB once it is read; 48 KiB behind it; 160 KiB of a body that nobody took yet; 64 KiB of an
answer), plus `bodies`, plus `unread`, plus three times `heads`. The last three are shared budgets,
so a thousand clients with huge bodies or heads get 429 instead of a thousand times
`body_bytes_max` or `head_bytes_max`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from ackd.config.units import KIB, MIB

# The budget does not count a smaller body: the connection's own buffer holds it anyway.
BODY_FREE_BYTES = 64 * KIB
# A head below this is not counted either. One of the budget is in memory as bytes, as text and in
# parts.
HEAD_FREE_BYTES = 4 * KIB
HEADS_BYTES_MAX = 16 * MIB
BODIES_FACTOR = 4
BODIES_BYTES_MIN = 16 * MIB
# Answers that clients don't read: beyond this, receive waits (it never answers 429).
UNREAD_BYTES_MAX = 64 * MIB
# What a receive gives at most when it names no `bytes_max`, and the most that it may name.
ANSWER_BYTES_DEFAULT = 4 * MIB
ANSWER_BYTES_MAX = 32 * MIB


class Budget:
    """Bounds the bytes that are held at once. A piece larger than the whole budget fits when
    nothing else is held.
    """

    __slots__ = ("_room", "held", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        self._room = asyncio.Event()
        self._room.set()

    def take(self, size: int) -> bool:
        """Reserve `size` bytes of the budget; False when there is no room."""
        if self.held and self.held + size > self.limit:
            return False
        self.force(size)
        return True

    def force(self, size: int) -> None:
        """Count bytes that are in memory already, even beyond the limit."""
        self.held += size
        if self.held >= self.limit:
            self._room.clear()

    def give(self, size: int) -> None:
        """Return bytes to the budget."""
        self.held -= size
        if self.held < self.limit:
            self._room.set()

    @property
    def full(self) -> bool:
        return self.held >= self.limit

    async def room(self, timeout_s: float) -> bool:
        """Wait until something fits again; False when it took longer than `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._room.wait()
        except TimeoutError:
            return False
        return True


@dataclass(slots=True)
class Limits:
    """The bounds of one port. Times are in seconds, as asyncio wants them."""

    connections_max: int
    head_bytes_max: int
    body_bytes_max: int
    head_timeout_s: float
    body_timeout_s: float
    keepalive_timeout_s: float
    write_timeout_s: float
    bodies: Budget = field(init=False)
    unread: Budget = field(init=False)
    heads: Budget = field(init=False)

    def __post_init__(self) -> None:
        self.bodies = Budget(max(BODIES_BYTES_MIN, BODIES_FACTOR * self.body_bytes_max))
        self.unread = Budget(UNREAD_BYTES_MAX)
        self.heads = Budget(HEADS_BYTES_MAX)
