"""Pauses between tries of what failed at the broker: 5 s, then twice as long each, at most 60 s."""

from __future__ import annotations

import asyncio

from ackd.ports import Clock

FIRST_MS = 5_000
MOST_MS = 60_000


class RetryTimer:
    """One thing that is tried again and again. `again_ms`: when next, on the monotonic clock."""

    __slots__ = ("_clock", "_most_ms", "_pause_ms", "again_ms")

    def __init__(self, clock: Clock, most_ms: int = MOST_MS) -> None:
        self._clock = clock
        self._most_ms = most_ms
        self._pause_ms = FIRST_MS
        self.again_ms = 0

    def failed(self) -> None:
        """Put the next try off."""
        self.again_ms = self._clock.monotonic_ms() + self._pause_ms
        self._pause_ms = min(self._pause_ms * 2, self._most_ms)

    async def sleep(self) -> None:
        """It failed: wait until it may be tried again."""
        pause_ms = self._pause_ms
        self.failed()
        await asyncio.sleep(pause_ms / 1000)
