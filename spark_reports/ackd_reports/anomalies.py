"""Hours that are not like the others, by medians: robust, and each explained in a sentence.

An hour stands out when its value is more than `BOUND` robust deviations (1.4826 times the median
distance to the median) above the median of all hours of its group, and at least `FACTOR` times
that. One bad hour moves neither, which a mean and its deviation would not bear.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

BOUND: Final = 6.0
FACTOR: Final = 2.0
HOURS_MIN: Final = 6
"""With fewer hours nothing is usual."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One hour: its value, and between what the middle half of the hours lies."""

    at_us: int
    value: float
    usual: float
    low: float
    high: float
    deviations: float


def outstanding(series: Sequence[tuple[int, float]], least: float = 0.0) -> list[Anomaly]:
    """Hours of (start in microseconds, value) that stand out upwards, if their value is >=
    `least`.
    """
    if len(series) < HOURS_MIN:
        return []
    values = sorted(value for _, value in series)
    usual = median(values)
    distance = median(abs(value - usual) for value in values)
    # Where most hours are alike, a tenth of the usual (or of `least`) is a step.
    deviation = max(1.4826 * distance, 0.1 * usual, 0.1 * least) or 1.0
    low, high = values[len(values) // 4], values[(3 * len(values)) // 4]
    return [
        Anomaly(at, value, usual, low, high, (value - usual) / deviation)
        for at, value in series
        if value >= least and value >= FACTOR * usual and (value - usual) / deviation > BOUND
    ]
