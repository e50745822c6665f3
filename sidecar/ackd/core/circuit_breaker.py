"""The circuit breaker: while an application fails message after message, ackd delivers only single
trials.

Pure: `now_ms` is any clock that does not go back. A trial is one message. As long as the
application acks no trial, the wait before the next one grows.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from ackd.core.backoff import Backoff

PARTS = 10
"""The window of `share` moves in steps of a tenth."""
SHARE_LEAST = 10
"""With fewer outcomes than this in the window, `share` does not open the breaker."""
WAIT_FACTOR = 1.5
FACTOR_MAX = 10


class BreakerRules(NamedTuple):
    """When the breaker opens: after `failures` in a row (0: never), or when at least `share` of
    the outcomes within `window_ms` are failures (0: never). The first trial follows after
    `trial_ms`.
    """

    failures: int
    share: float
    window_ms: int
    trial_ms: int

    @property
    def used(self) -> bool:
        """The breaker can open at all."""
        return self.failures > 0 or self.share > 0


class BreakerState:
    """Whether the breaker is open (`on`), why, and when it lets the next trial through."""

    def __init__(self) -> None:
        self.on = False
        self.next_ms = 0
        self.why = ""
        self._row = 0
        self._waits = 0
        self._parts: deque[tuple[int, int, int]] = deque()

    def saw(self, worked: int, failed: int, rules: BreakerRules, now_ms: int) -> bool:
        """Count outcomes. True: they opened or closed the breaker."""
        if worked and self.on:
            self._close()
            return True
        self._row = 0 if worked else self._row + failed
        self._note(worked, failed, rules, now_ms)
        if self.on or not failed:
            return False
        why = self._reason(rules)
        if why:
            self.on, self.why = True, why
            self._waits = 0
            self._wait(rules, now_ms)
        return bool(why)

    def _note(self, worked: int, failed: int, rules: BreakerRules, now_ms: int) -> None:
        part = now_ms // max(rules.window_ms // PARTS, 1)
        if self._parts and self._parts[-1][0] == part:
            _, before_worked, before_failed = self._parts.pop()
            worked, failed = worked + before_worked, failed + before_failed
        self._parts.append((part, worked, failed))
        while self._parts[0][0] <= part - PARTS:
            self._parts.popleft()

    def _reason(self, rules: BreakerRules) -> str:
        if 0 < rules.failures <= self._row:
            return f"{self._row} failures in a row"
        failed = sum(each[2] for each in self._parts)
        all_of = failed + sum(each[1] for each in self._parts)
        if rules.share > 0 and all_of >= SHARE_LEAST and failed >= rules.share * all_of:
            return f"{failed} of the last {all_of} failed"
        return ""

    def room(self, now_ms: int) -> int:
        """How many trials may be delivered now: 0 or 1."""
        return int(now_ms >= self.next_ms)

    def tried(self, rules: BreakerRules, now_ms: int) -> None:
        """Note that a trial was delivered. The wait before the next one is longer."""
        self._wait(rules, now_ms)

    def not_tried(self, now_ms: int) -> None:
        """The application got nothing of the last trial: the next one is due now."""
        if self.on and self._waits > 1:
            self._waits -= 1
            self.next_ms = now_ms

    def _wait(self, rules: BreakerRules, now_ms: int) -> None:
        self._waits += 1
        trials = Backoff(rules.trial_ms, rules.trial_ms * FACTOR_MAX, WAIT_FACTOR)
        self.next_ms = now_ms + trials.delay_ms(self._waits)

    def release(self) -> bool:
        """Close the breaker, because the settings do not ask for it any more. True: it was open."""
        was = self.on
        self._close()
        return was

    def _close(self) -> None:
        self.on, self.why, self._row = False, "", 0
        self._parts.clear()
