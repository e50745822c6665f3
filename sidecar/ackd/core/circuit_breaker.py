"""The circuit breaker: when an application fails message after message, handing out stops but for
trials.

Pure: `now_ms` is any clock that does not go back. A trial is one message; the waits between trials
grow as long as none of them is acked.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from ackd.core.backoff import Backoff

PARTS = 10
"""A window is counted in so many parts."""
SHARE_LEAST = 10
"""A share of fewer outcomes than this says nothing."""
GROWTH = 1.5
FACTOR_MAX = 10


class BreakerRules(NamedTuple):
    """When it is pulled: after `failures` in a row (0: never), or when at least `share` of the
    outcomes of `window_ms` are failures (0: never). `trial_ms`: until the first trial.
    """

    failures: int
    share: float
    window_ms: int
    trial_ms: int

    @property
    def used(self) -> bool:
        """It can be pulled at all."""
        return self.failures > 0 or self.share > 0


class BreakerState:
    """Whether it is on, and when the next message may be tried."""

    def __init__(self) -> None:
        self.on = False
        self.next_ms = 0
        self.why = ""
        self._row = 0
        self._waits = 0
        self._parts: deque[tuple[int, int, int]] = deque()

    def saw(self, worked: int, failed: int, rules: BreakerRules, now_ms: int) -> bool:
        """Outcomes; whether the circuit breaker opened or closed by them."""
        if worked and self.on:
            self._let_go()
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
        """How many messages may be tried now."""
        return int(now_ms >= self.next_ms)

    def tried(self, rules: BreakerRules, now_ms: int) -> None:
        """One is being tried; the next one has to wait for longer."""
        self._wait(rules, now_ms)

    def _wait(self, rules: BreakerRules, now_ms: int) -> None:
        self._waits += 1
        trials = Backoff(rules.trial_ms, rules.trial_ms * FACTOR_MAX, GROWTH)
        self.next_ms = now_ms + trials.delay_ms(self._waits)

    def release(self) -> bool:
        """It is not wanted any more; whether it was on."""
        was = self.on
        self._let_go()
        return was

    def _let_go(self) -> None:
        self.on, self.why, self._row = False, "", 0
        self._parts.clear()
