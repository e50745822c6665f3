"""Log histograms: exact, mergeable counts of durations, and percentiles from them.

Bucket b holds whole microseconds v with 2^(b/32) <= v < 2^((b+1)/32): OpenTelemetry's exponential
histogram at scale 5. Sums over hours, files and machines are sums of whole numbers, so the same
figures come out in whatever order they are added. A percentile is off by at most `ERROR`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

SCALE: Final = 5
STEPS: Final = 2**SCALE
NUDGE: Final = 1e-11
"""Above the error of a logarithm (6e-13), below the distance of whole numbers to a bound up to a
day: it puts powers of two, which lie on a bound, on the same side on every machine."""
ZERO: Final = -1
"""Bucket of durations below a microsecond."""
ERROR: Final = 2 ** (1 / (2 * STEPS)) - 1
"""Largest relative error of a percentile: 1.09 %, as the middle of a bucket stands for all of
it."""

Cells = Sequence[tuple[int, int]]
"""(bucket, count), ascending by bucket, each bucket once."""


def bucket(duration_us: int) -> int:
    """The bucket of a duration; `ZERO` below one microsecond."""
    return ZERO if duration_us < 1 else math.floor(STEPS * math.log2(duration_us) + NUDGE)


def middle_us(index: int) -> float:
    """What stands for a bucket: its geometric middle, in microseconds."""
    return 0.0 if index == ZERO else float(2 ** ((index + 0.5) / STEPS))


def merged(*histograms: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Add histograms: (bucket, count) pairs in the order of buckets."""
    total: dict[int, int] = {}
    for cells in histograms:
        for index, count in cells:
            total[index] = total.get(index, 0) + count
    return sorted(total.items())


def percentile_us(cells: Cells, share: float) -> float | None:
    """The smallest duration that at least `share` (0..1) do not exceed; None without counts."""
    total = sum(count for _, count in cells)
    if total == 0:
        return None
    rank = max(1, math.ceil(share * total - 1e-9))
    below = 0
    for index, count in cells:
        below += count
        if below >= rank:
            return middle_us(index)
    raise AssertionError(f"{below} counts of {total} at rank {rank}")  # pragma: no cover
