"""Offsets by the moment at which they are due; those of one moment share one heap entry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush


class Timers:
    """A heap of moments, and the offsets of each. Nothing is ever taken back: stale ones are
    skipped.
    """

    __slots__ = ("_moments", "_offsets")

    def __init__(self) -> None:
        self._moments: list[int] = []
        self._offsets: dict[int, list[int]] = {}

    def add(self, due_ms: int, offset: int) -> None:
        """Remember an offset; O(1) for a moment that is known, else O(log n)."""
        offsets = self._offsets.get(due_ms)
        if offsets is None:
            self._offsets[due_ms] = [offset]
            heappush(self._moments, due_ms)
        else:
            offsets.append(offset)

    def passed(self, now_ms: int) -> Iterator[tuple[int, int]]:
        """Take out all that is due by `now_ms`, earliest first."""
        while self._moments and self._moments[0] <= now_ms:
            due_ms = heappop(self._moments)
            for offset in self._offsets.pop(due_ms):
                yield due_ms, offset

    def next(self, live: Callable[[int, int], bool]) -> int | None:
        """The earliest moment with an offset for which `live(due_ms, offset)`; stale ones go."""
        while self._moments:
            due_ms = self._moments[0]
            if any(live(due_ms, offset) for offset in self._offsets[due_ms]):
                return due_ms
            heappop(self._moments)
            del self._offsets[due_ms]
        return None
