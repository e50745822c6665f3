"""Pauses between tries of a failed broker call: 5 s, then twice as long each time, at most 60 s."""

from __future__ import annotations

import asyncio

from ackd.ports import Clock

FIRST_MS = 5_000
MOST_MS = 60_000


class RetryTimer:
    """Times the tries of one thing. `again_ms`: when to try next, on the monotonic clock."""

    __slots__ = ("_clock", "_most_ms", "_pause_ms", "again_ms")

    def __init__(self, clock: Clock, most_ms: int = MOST_MS) -> None:
        self._clock = clock
        self._most_ms = most_ms
        self._pause_ms = FIRST_MS
        self.again_ms = 0

    def failed(self) -> None:
        """Postpone the next try."""
        self.again_ms = self._clock.monotonic_ms() + self._pause_ms
        self._pause_ms = min(self._pause_ms * 2, self._most_ms)

    async def sleep(self) -> None:
        """After a failure: wait until the next try."""
        pause_ms = self._pause_ms
        self.failed()
        await asyncio.sleep(pause_ms / 1000)
