"""Hours that are not like the others, by medians: robust, and each incident in one sentence.

An hour stands out when its value is more than `BOUND` robust deviations (1.4826 times the median
distance to the median) above the median of all hours of its subscription, and at least `FACTOR`
times that. One bad hour moves neither, which a mean and its deviation would not bear. What stands
out is above every hour that does not, so the range of the others is named beside it.

Hours next to each other, and all that stands out in them, are one incident of a subscription.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import median
from typing import Any, Final

from ackd_reports.durations import duration_text
from ackd_reports.plain import GROUP, Rows, by, iso
from ackd_reports.words import DURATION_TEXT, HOUR_US

BOUND: Final = 6.0
FACTOR: Final = 2.0
HOURS_MIN: Final = 6
"""With fewer hours nothing is usual."""
MEASURED_MIN: Final = 100
"""With fewer durations in an hour their p99 is their longest one."""
INCIDENTS_MAX: Final = 50

_COUNTS: Final = (
    ("retries", 5.0, "retries"),
    ("expires", 3.0, "leases that ran out"),
    ("dead", 3.0, "dead letters"),
    ("send_backs", 3.0, "messages sent back"),
    ("lates", 3.0, "settles that came late"),
)
_DURATIONS: Final = ("wait", "time_to_ack")
_LEAST_MS: Final = 100.0
_NAMES: Final = tuple("group" if name == "grp" else name for name in GROUP)


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One hour: its value, the median of all, and the most in an hour that does not stand out."""

    at_us: int
    value: float
    usual: float
    most: float
    deviations: float


@dataclass(frozen=True, slots=True)
class _UnusualHour:
    """An anomaly and what it is about."""

    text: str
    unit: str
    anomaly: Anomaly

    def sentence(self) -> str:
        amounts = [_amount(each, self.unit) for each in (self.anomaly.value, self.anomaly.usual)]
        most = _amount(self.anomaly.most, self.unit)
        return f"{amounts[0]} {self.text} (usually {amounts[1]}, at most {most} in other hours)"


def outstanding(series: Sequence[tuple[int, float]], least: float = 0.0) -> list[Anomaly]:
    """Hours of (start in microseconds, value) that stand out upwards, if their value is >=
    `least`.
    """
    if len(series) < HOURS_MIN:
        return []
    values = [value for _, value in series]
    usual = median(values)
    distance = median(abs(value - usual) for value in values)
    # Where most hours are alike, a tenth of the usual (or of `least`) is a step.
    deviation = max(1.4826 * distance, 0.1 * usual, 0.1 * least) or 1.0
    bound = max(least, FACTOR * usual)

    def stands_out(value: float) -> bool:
        return value >= bound and (value - usual) / deviation > BOUND

    most = max((value for value in values if not stands_out(value)), default=usual)
    return [
        Anomaly(at, value, usual, most, (value - usual) / deviation)
        for at, value in series
        if stands_out(value)
    ]


def incidents(hours: Rows) -> list[dict[str, Any]]:
    """Rows of groups and hours (`hour_us`, counts, `durations`): what stood out, worst first."""
    listed = [
        (worst, found)
        for key, rows in by(hours, _NAMES)
        for worst, found in _of_subscription(dict(zip(_NAMES, key, strict=True)), rows)
    ]
    listed.sort(key=lambda each: (-each[0], each[1]["since"], each[1]["where"]))
    return [found for _, found in listed[:INCIDENTS_MAX]]


def _of_subscription(names: dict[str, str], rows: Rows) -> list[tuple[float, dict[str, Any]]]:
    findings = sorted(_findings(rows), key=lambda each: each.anomaly.at_us)
    incident = 0
    last = None
    numbered = []
    for each in findings:
        at = each.anomaly.at_us
        # An hour of calm between two bad ones is no end.
        incident += last is not None and at - last > 2 * HOUR_US
        last = at
        numbered.append((incident, each))
    return [
        _incident(names, [each for _, each in found])
        for _, found in groupby(numbered, key=lambda each: each[0])
    ]


def _incident(names: dict[str, str], found: list[_UnusualHour]) -> tuple[float, dict[str, Any]]:
    worst: dict[str, _UnusualHour] = {}
    for each in found:
        known = worst.get(each.text)
        if known is None or each.anomaly.deviations > known.anomaly.deviations:
            worst[each.text] = each
    shown = sorted(worst.values(), key=lambda each: (-each.anomaly.deviations, each.text))
    times = [each.anomaly.at_us for each in found]
    named = {
        **names,
        "where": f"{names['topic']} / {names['group']}",
        "since": iso(min(times)),
        "until": iso(max(times) + HOUR_US),
        "what": [
            {
                "what": each.text,
                "hour": iso(each.anomaly.at_us),
                "value": each.anomaly.value,
                "usual": each.anomaly.usual,
                "most_otherwise": each.anomaly.most,
            }
            for each in shown
        ],
        "sentence": "; ".join(each.sentence() for each in shown),
    }
    return shown[0].anomaly.deviations, named


def _findings(rows: Rows) -> list[_UnusualHour]:
    found = []
    for name, least, text in _COUNTS:
        series = [(row["hour_us"], float(row[name])) for row in rows]
        found += [_UnusualHour(text, "", each) for each in outstanding(series, least)]
    for name in _DURATIONS:
        series = [
            (row["hour_us"], row["durations"][name]["p99_ms"])
            for row in rows
            if row["durations"][name]["n"] >= MEASURED_MIN
        ]
        text = f"p99 of {DURATION_TEXT[name]}"
        found += [_UnusualHour(text, "ms", each) for each in outstanding(series, _LEAST_MS)]
    return found


def _amount(value: float, unit: str) -> str:
    return duration_text(value * 1000) if unit else f"{value:.6g}"
