"""Closed intervals of time, in microseconds."""

import bisect
from collections.abc import Iterable, Sequence

Interval = tuple[int, int]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """What they cover together: sorted, and without overlap."""
    merged: list[Interval] = []
    for begin, end in sorted(intervals):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged


def first_covered(intervals: Sequence[Interval], at_us: int) -> int | None:
    """The first moment at or after `at_us` inside such a union."""
    index = bisect.bisect_right(intervals, at_us, key=lambda interval: interval[0])
    if index and intervals[index - 1][1] >= at_us:
        return at_us
    return intervals[index][0] if index < len(intervals) else None
