"""Whose turn it is: of the unfinished messages of one key only the first may be handed out (I6).

A *place* is (what must be kept in order, rank in it): for `ordering = "key"` the message's key and
its offset, for `"partition"` one name for all, for a copy in the retry topic that of its origin. A
message without a place is bound to no order. Only messages of the window are known here, so the
memory that it takes is bounded by the window, however many keys there are.
"""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heappop, heappush

Place = tuple[Hashable, int]
"""(chain, rank): smaller ranks of a chain go first."""

_Chain = list[tuple[int, int]]


class Turns:
    """The places of one window. A chain is a heap of (rank, offset), or one such pair alone.

    Every method is O(log n) in the length of a chain. Finished ones are taken out of a heap when
    they come to its top. `unknown` are unfinished messages whose place nobody can tell: their
    record is gone from the log, so they may stand before any later one.
    """

    __slots__ = ("_chains", "_places", "_unknown")

    def __init__(self) -> None:
        self._places: dict[int, Place] = {}
        self._chains: dict[Hashable, tuple[int, int] | _Chain] = {}
        self._unknown: set[int] = set()

    @property
    def behind(self) -> int:
        """How many wait for an earlier one of their chain."""
        return len(self._places) - len(self._chains)

    def place(self, offset: int) -> Place | None:
        """Where a message stands; None without an order, or when it is not here."""
        return self._places.get(offset)

    def end(self, position: int) -> int:
        """The places of all below this offset are known; `position`: where fetching stands."""
        return min(position, *self._unknown) if self._unknown else position

    def gone(self, offset: int, place: Place | None) -> None:
        """An unfinished message that the log does not have any more."""
        if place is not None:
            self.arrived(offset, place)
        elif offset not in self._places:
            self._unknown.add(offset)

    def arrived(self, offset: int, place: Place) -> None:
        """An unfinished message, in any order; one that is here already stays where it is."""
        if offset in self._places:
            return
        self._places[offset] = place
        chain, rank = place
        found = self._chains.get(chain)
        if found is None:
            self._chains[chain] = (rank, offset)
        elif isinstance(found, list):
            heappush(found, (rank, offset))
        else:
            # Two in order are a heap.
            self._chains[chain] = sorted((found, (rank, offset)))

    def first(self, offset: int) -> bool:
        """Whether it is the first of its chain; always true of a message without a place."""
        place = self._places.get(offset)
        return place is None or self._head(place[0]) == offset

    def before(self, offset: int) -> int | None:
        """Which message it waits for; None when it is its turn."""
        place = self._places.get(offset)
        head = None if place is None else self._head(place[0])
        return None if head == offset else head

    def finished(self, offset: int) -> int | None:
        """It is over. Returns the message whose turn it is now because of that."""
        place = self._places.pop(offset, None)
        if place is None:
            self._unknown.discard(offset)
            return None
        chain, _ = place
        found = self._chains[chain]
        if not isinstance(found, list):
            del self._chains[chain]
            return None
        if found[0][1] != offset:
            return None
        while found and found[0][1] not in self._places:
            heappop(found)
        if not found:
            del self._chains[chain]
            return None
        return found[0][1]

    def _head(self, chain: Hashable) -> int:
        found = self._chains[chain]
        return found[0][1] if isinstance(found, list) else found[1]
