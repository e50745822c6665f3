"""Decides how many calls ackd may make now, by the application's pauses and the circuit breaker.

Two things hold calls back. When an application answers 429 or 503 with `Retry-After`, ackd pauses
for that time; then it makes half as many calls at once, and one more after each success. When an
application can't be reached, the breaker opens: ackd leases nothing for it, and from time to time
tries a connection without a message. When a connection works, ackd makes a single call.
"""

from __future__ import annotations

from ackd.core.backoff import Backoff

TRIAL_WAIT_FACTOR = 1.5
TRIAL_FACTOR_MAX = 10


class CallLimit:
    """Decides, without a clock of its own: callers pass `now_s`, in seconds of any clock."""

    def __init__(self, concurrency: int, trial_s: float) -> None:
        self._concurrency = concurrency
        trial_ms = int(trial_s * 1000)
        self._trials = Backoff(trial_ms, trial_ms * TRIAL_FACTOR_MAX, TRIAL_WAIT_FACTOR)
        self._failures = 0
        self.limit = concurrency
        self.paused_until_s = 0.0
        self.open_since_s: float | None = None

    @property
    def broken(self) -> bool:
        """Whether the breaker is open, so that nothing may be leased for the application."""
        return self.open_since_s is not None

    def wait_s(self, now_s: float) -> float:
        """How long the pause that the application asked for still lasts, in seconds."""
        return max(self.paused_until_s - now_s, 0.0)

    def worked(self) -> None:
        self._failures = 0
        self.limit = min(self.limit + 1, self._concurrency)

    def slow_down(self, now_s: float, pause_s: float) -> None:
        """The application asked for a pause. Answers to calls at the same time count once."""
        if self.wait_s(now_s) == 0:
            self.limit = max(self.limit // 2, 1)
        self.paused_until_s = max(self.paused_until_s, now_s + pause_s)

    def unreachable(self, now_s: float) -> bool:
        """Note that nobody listens there. Returns whether this opened the breaker."""
        self.limit = 1
        if self.open_since_s is not None:
            return False
        self.open_since_s = now_s
        return True

    def next_trial_s(self) -> float:
        """Seconds until the next trial; each wait is longer than the one before."""
        self._failures += 1
        return self._trials.delay_ms(self._failures) / 1000

    def reachable(self) -> None:
        """A connection worked: allow one call."""
        self.open_since_s = None
