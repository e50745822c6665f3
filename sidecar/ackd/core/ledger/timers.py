"""The two clocks that a ledger goes by, and offsets by the moment at which they are due."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush


class TwoClocks:
    """What a ledger knows of the time. `seen_ms`: the latest time of the store's clock that a reply
    brought. `skew_ms`: what has to be added to the owner's clock for the store's. `ticked_ms`: the
    owner's clock when timers last ran.
    """

    __slots__ = ("seen_ms", "skew_ms", "ticked_ms")

    def __init__(self) -> None:
        self.seen_ms = 0
        self.skew_ms = 0
        self.ticked_ms = 0

    def saw(self, store_ms: int) -> None:
        """The store's clock showed this."""
        self.seen_ms = max(self.seen_ms, store_ms)


class Timers:
    """A heap of moments, and the offsets of each: those of one moment share one heap entry. Nothing
    is ever taken back: stale ones are skipped.
    """

    __slots__ = ("_moments", "_news", "_offsets")

    def __init__(self) -> None:
        self._moments: list[int] = []
        self._offsets: dict[int, list[int]] = {}
        self._news: int | None = None

    def clear(self) -> None:
        """Forget them all."""
        self._moments, self._offsets, self._news = [], {}, None

    def add(self, due_ms: int, offset: int) -> None:
        """Remember an offset; O(1) for a moment that is known, else O(log n)."""
        offsets = self._offsets.get(due_ms)
        if offsets is None:
            self._offsets[due_ms] = [offset]
            heappush(self._moments, due_ms)
            if self._news is None or due_ms < self._news:
                self._news = due_ms
        else:
            offsets.append(offset)

    def news(self) -> int | None:
        """The earliest moment that was not known before, of those added since this was asked."""
        news, self._news = self._news, None
        return news

    def passed(self, now_ms: int) -> Iterator[tuple[int, int]]:
        """Take out all that is due by `now_ms`, earliest first."""
        while self._moments and self._moments[0] <= now_ms:
            due_ms = heappop(self._moments)
            for offset in self._offsets.pop(due_ms):
                yield due_ms, offset

    def first(self) -> tuple[int, Sequence[int]] | None:
        """The earliest moment and its offsets."""
        if not self._moments:
            return None
        return self._moments[0], self._offsets[self._moments[0]]

    def drop_first(self) -> None:
        """The earliest moment is stale: none of its offsets waits for it any more."""
        del self._offsets[heappop(self._moments)]
