"""A set of offsets that quickly finds its members in a range."""

from __future__ import annotations

from bisect import bisect_left


class Offsets:
    """Adding in order and removing are O(1); a range is O(log n + members it has or had)."""

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
        if offset in self._members:
            return
        self._members[offset] = None
        if self._order and offset <= self._order[-1]:
            self._in_order = False
        self._order.append(offset)

    def discard(self, offset: int) -> None:
        """Remove an offset, if it is a member."""
        self._members.pop(offset, None)

    def between(self, start: int, end: int) -> list[int]:
        """The members in [start, end), in order."""
        if not self._in_order:
            self._order = sorted(self._members)
            self._in_order = True
        first = bisect_left(self._order, start)
        return [
            offset
            for offset in self._order[first : bisect_left(self._order, end, first)]
            if offset in self._members
        ]
