"""When to try a failed call to the broker again."""

from __future__ import annotations

from ackd.core.backoff import Backoff
from ackd.ports import Clock

BROKER_AGAIN = Backoff(5_000, 60_000)


class RetryTimer:
    """Times the tries of one thing. `again_ms`: when to try next, on the monotonic clock."""

    __slots__ = ("_backoff", "_clock", "_failures", "again_ms")

    def __init__(self, clock: Clock, backoff: Backoff = BROKER_AGAIN) -> None:
        self._clock = clock
        self._backoff = backoff
        self._failures = 0
        self.again_ms = 0

    def failed(self) -> None:
        """The try failed: the next one comes after a longer pause."""
        self._failures += 1
        self.again_ms = self._clock.monotonic_ms() + self._backoff.delay_ms(self._failures)

    def wait(self, pause_ms: int) -> None:
        """It can't be done before this time is over, which is no failure."""
        self.again_ms = self._clock.monotonic_ms() + pause_ms
