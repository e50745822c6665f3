"""The two clocks that a ledger uses, and offsets by the moment at which they are due."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush


class TwoClocks:
    """What a ledger knows of the time. `seen_ms`: the latest time of the store's clock in a reply.
    `skew_ms`: store's clock minus owner's clock. `ticked_ms`: the owner's clock when timers last
    ran.
    """

    __slots__ = ("seen_ms", "skew_ms", "ticked_ms")

    def __init__(self) -> None:
        self.seen_ms = 0
        self.skew_ms = 0
        self.ticked_ms = 0

    def saw(self, store_ms: int) -> None:
        """Note a time that the store's clock has reached."""
        self.seen_ms = max(self.seen_ms, store_ms)


class Timers:
    """A heap of moments, and the offsets due at each. Timers are never cancelled; the user skips
    stale ones.
    """

    __slots__ = ("_moments", "_news", "_offsets")

    def __init__(self) -> None:
        self._moments: list[int] = []
        self._offsets: dict[int, list[int]] = {}
        self._news: int | None = None

    def clear(self) -> None:
        self._moments, self._offsets, self._news = [], {}, None

    def add(self, due_ms: int, offset: int) -> None:
        """Add an offset: O(1) if the moment is known already, else O(log n)."""
        offsets = self._offsets.get(due_ms)
        if offsets is None:
            self._offsets[due_ms] = [offset]
            heappush(self._moments, due_ms)
            if self._news is None or due_ms < self._news:
                self._news = due_ms
        else:
            offsets.append(offset)

    def news(self) -> int | None:
        """The earliest moment that was added since the last call and was unknown before."""
        news, self._news = self._news, None
        return news

    def passed(self, now_ms: int) -> Iterator[tuple[int, int]]:
        """Take out all offsets that are due by `now_ms`, earliest first."""
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
        """Remove the earliest moment: none of its offsets waits for it any more."""
        del self._offsets[heappop(self._moments)]
