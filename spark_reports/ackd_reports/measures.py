"""Measures on counts: compliance, error budget, burn rates. Pure functions, without Spark.

Counts are whole millionths of a message (`words.MICRO`), so that a sampled message counts for those
that were left out and sums stay exact.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from ackd_reports.words import BUCKET_US, HOUR_US, MICRO

KEPT, BROKEN, NO_DATA, INCOMPLETE = "kept", "broken", "no data", "incomplete"

Series = Sequence[tuple[int, int, int]]
"""(start of a 5-minute bucket in microseconds since 1970, good, bad), ascending, gaps allowed."""


@dataclass(frozen=True, slots=True)
class BurnWindow:
    """An alert: `share` of the window's budget spent within `long_us`, and still going on."""

    severity: str
    share: float
    long_us: int
    short_us: int


BURN_WINDOWS: Final = (
    BurnWindow("page", 0.02, HOUR_US, BUCKET_US),
    BurnWindow("page", 0.05, 6 * HOUR_US, 6 * BUCKET_US),
    BurnWindow("ticket", 0.10, 24 * HOUR_US, 2 * HOUR_US),
    BurnWindow("ticket", 0.10, 72 * HOUR_US, 6 * HOUR_US),
)
"""The multi-window alerts of Google's SRE workbook, chapter 5."""
BURN_US: Final = max(window.long_us for window in BURN_WINDOWS)
"""How far back a burn rate looks."""
BAD_MIN: Final = 2


@dataclass(frozen=True, slots=True)
class Compliance:
    """How a promise was kept over a period. Shares are None without data."""

    good: int
    bad: int
    share: float | None
    budget: float
    spent: float | None
    state: str


@dataclass(frozen=True, slots=True)
class Alert:
    """A time during which a burn rate was above its bound; `until_us` is its last bucket's end."""

    severity: str
    long_us: int
    short_us: int
    bound: float
    since_us: int
    until_us: int
    peak: float


def share(part: int, whole: int) -> float | None:
    """A ratio; None without data."""
    return part / whole if whole else None


def compliance(good: int, bad: int, objective: float) -> Compliance:
    """Whether `good` of `good + bad` meets `objective`, and how much of the error budget is spent.

    The budget is what may be bad among what came. `spent` is 1 when all of it is gone.
    """
    total = good + bad
    budget = (1 - objective) * total
    if not total:
        return Compliance(good, bad, None, 0.0, None, NO_DATA)
    # Whole numbers first: 99 of 100 must meet 0.99 whatever binary fractions make of it.
    met = good >= objective * total - 1e-9 * total
    spent = bad / budget if budget else (0.0 if bad == 0 else float("inf"))
    return Compliance(good, bad, good / total, budget, spent, KEPT if met else BROKEN)


def burn_rate(good: int, bad: int, objective: float) -> float | None:
    """How many times faster than allowed the budget goes; 1 = spent exactly at the window's end."""
    total = good + bad
    return (bad / total) / (1 - objective) if total else None


def bound(window: BurnWindow, window_us: int) -> float:
    """The burn rate that spends `window.share` of the budget of `window_us` within `long_us`."""
    return window.share * window_us / window.long_us


@dataclass(frozen=True, slots=True)
class Burn:
    """A burn rate and what it rests on, in millionths of a message."""

    rate: float
    total: int
    bad: int

    def is_sure(self, least_messages: int) -> bool:
        """Whether it rests on enough messages; one bad message alone is never a trend."""
        return self.total >= least_messages * MICRO and self.bad >= BAD_MIN * MICRO


class Sums:
    """Good and bad over any stretch of a series, each asked in logarithmic time."""

    def __init__(self, series: Series) -> None:
        self._starts = [start for start, _, _ in series]
        self._good = [0, *accumulate(good for _, good, _ in series)]
        self._bad = [0, *accumulate(bad for _, _, bad in series)]

    def between(self, since_us: int, until_us: int) -> tuple[int, int]:
        """(good, bad) of the buckets that start in (since, until]."""
        first = bisect_right(self._starts, since_us)
        last = bisect_right(self._starts, until_us)
        return self._good[last] - self._good[first], self._bad[last] - self._bad[first]

    def burn(self, end_us: int, length_us: int, objective: float) -> Burn:
        """Over the buckets of the stretch that ends with the one at `end_us`."""
        good, bad = self.between(end_us - length_us, end_us)
        return Burn(burn_rate(good, bad, objective) or 0.0, good + bad, bad)


def alerts(
    series: Series, objective: float, window_us: int, least_messages: int, since_us: int
) -> list[Alert]:
    """When the alerts of `BURN_WINDOWS` would have been on after `since_us`, by severity and time.
    What lies before only fills their windows.

    Only buckets with something bad can begin or carry on an alert, so only those are looked at.
    """
    sums = Sums(series)
    found: list[Alert] = []
    for window in BURN_WINDOWS:
        limit = bound(window, window_us)
        open_: Alert | None = None
        for start, _, bad in series:
            if bad == 0 and open_ is None:
                continue
            long = sums.burn(start, window.long_us, objective)
            short = sums.burn(start, window.short_us, objective)
            if min(long.rate, short.rate) < limit or not long.is_sure(least_messages):
                open_ = None
                continue
            if open_ is not None:
                found.pop()
            open_ = Alert(
                window.severity,
                window.long_us,
                window.short_us,
                limit,
                open_.since_us if open_ else start,
                start + BUCKET_US,
                max(long.rate, open_.peak if open_ else 0.0),
            )
            found.append(open_)
    return [each for each in found if each.until_us > since_us]


def remaining(series: Series, objective: float) -> list[tuple[int, float]]:
    """(start, share of the series' whole budget that is left after that bucket)."""
    total = sum(good + bad for _, good, bad in series)
    budget = (1 - objective) * total
    gone = accumulate(bad for _, _, bad in series)
    return [
        (start, 1 - spent / budget if budget else 0.0)
        for (start, _, _), spent in zip(series, gone, strict=True)
    ]
