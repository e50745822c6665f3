"""PURE: how far the store's clock jumped when another server, or another run of it, began (R23).

Deadlines are decided by the store's clock. When a replica whose clock is ahead is promoted, every
lease would end early by the difference, so the difference is taken out of the record's clock.

It is measured, not guessed: a heartbeat's answer tells the store's time at an instant between its
sending and its reading. From one heartbeat on the old run to one on the new at least and at most so
much time has passed here; what the store's clock moved beyond that is a jump. The bounds make it
certain: an answer that took long (a frozen server, a slow start) makes the measured jump smaller,
and never makes one up.
"""

from __future__ import annotations

ROUNDING_MS = 2
# Clocks of different machines run at rates that differ by less than this (NTP slews by 500 ppm).
RATE_PER_MILLE = 1


class StoreClock:
    """What heartbeats told of the store's clock. Times of this process are monotonic."""

    def __init__(self) -> None:
        self.jump_ms = 0
        self._run = ""
        self._last_ms: tuple[int, int, int] | None = None

    def seen(self, run: str, store_ms: int, sent_ms: int, read_ms: int) -> None:
        """A heartbeat that this server run answered: the store's time, and ours around it."""
        if run != self._run and self._last_ms is not None:
            self.jump_ms = _jump_ms(self._last_ms, (store_ms, sent_ms, read_ms))
        self._run, self._last_ms = run, (store_ms, sent_ms, read_ms)

    def knows(self, run: str) -> bool:
        """Whether `jump_ms` is that of the change to this run ("" is none)."""
        return run == self._run != ""


def _jump_ms(before: tuple[int, int, int], after: tuple[int, int, int]) -> int:
    """Ahead by at least, or (negative) back by at least so much; 0 when neither is certain."""
    passed_ms = after[0] - before[0]
    most_ms, least_ms = after[2] - before[1], after[1] - before[2]
    slack_ms = ROUNDING_MS + most_ms * RATE_PER_MILLE // 1000
    return max(passed_ms - most_ms - slack_ms, 0) + min(passed_ms - least_ms + slack_ms, 0)
