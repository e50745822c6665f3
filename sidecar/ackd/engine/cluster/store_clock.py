"""PURE: measure how far the store's clock jumped when another server, or another run of it, began
(R23).

The store's clock decides deadlines. When a replica whose clock is ahead is promoted, every lease
would end early by the difference, so the record's clock leaves the difference out.

The jump is measured, not guessed. A heartbeat's answer has the store's time at an instant between
sending and reading it. Two heartbeats, one on the old run and one on the new, so bound the time
that passed here from below and above; what the store's clock moved beyond those bounds is a jump. A
slow answer (a frozen server, a slow start) makes the measured jump smaller, and never makes one up.
"""

from __future__ import annotations

ROUNDING_MS = 2
# Clocks of different machines run at rates that differ by less than this (NTP slews by 500 ppm).
RATE_PER_MILLE = 1


class StoreClock:
    """Measures jumps from heartbeats. Times of this process are monotonic."""

    def __init__(self) -> None:
        self.jump_ms = 0
        self._run = ""
        self._last_ms: tuple[int, int, int] | None = None

    def seen(self, run: str, store_ms: int, sent_ms: int, read_ms: int) -> None:
        """Take in a heartbeat that this server run answered: the store's time, and ours around
        it.
        """
        if run != self._run and self._last_ms is not None:
            self.jump_ms = _jump_ms(self._last_ms, (store_ms, sent_ms, read_ms))
        self._run, self._last_ms = run, (store_ms, sent_ms, read_ms)

    def knows(self, run: str) -> bool:
        """Whether `jump_ms` belongs to the change to this run ("" is none)."""
        return run == self._run != ""


def _jump_ms(before: tuple[int, int, int], after: tuple[int, int, int]) -> int:
    """Return the least certain jump: ahead, or (negative) back; 0 when neither is certain."""
    passed_ms = after[0] - before[0]
    most_ms, least_ms = after[2] - before[1], after[1] - before[2]
    slack_ms = ROUNDING_MS + most_ms * RATE_PER_MILLE // 1000
    return max(passed_ms - most_ms - slack_ms, 0) + min(passed_ms - least_ms + slack_ms, 0)
