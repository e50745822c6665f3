"""A set of offsets that is asked for those of a range, whatever its size."""

from __future__ import annotations

from bisect import bisect_left


class Offsets:
    """Adding in order and taking out are O(1), a range is O(log n + what is or was in it)."""

    __slots__ = ("_in_order", "_members", "_order")

    def __init__(self) -> None:
        self._members: dict[int, None] = {}
        self._order: list[int] = []
        self._in_order = True

    def __contains__(self, offset: int) -> bool:
        return offset in self._members

    def __len__(self) -> int:
        return len(self._members)

    def add(self, offset: int) -> None:
        """Put one in."""
        if offset in self._members:
            return
        self._members[offset] = None
        if self._order and offset <= self._order[-1]:
            self._in_order = False
        self._order.append(offset)

    def discard(self, offset: int) -> None:
        """Take one out, if it is there."""
        self._members.pop(offset, None)

    def between(self, start: int, end: int) -> list[int]:
        """Those of [start, end), in order."""
        if not self._in_order:
            self._order = sorted(self._members)
            self._in_order = True
        first = bisect_left(self._order, start)
        return [
            offset
            for offset in self._order[first : bisect_left(self._order, end, first)]
            if offset in self._members
        ]
