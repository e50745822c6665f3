"""A sidecar's share of the leases that all sidecars of a subscription may have open together.

The bound is divided by partitions: messages under lease belong to a partition and go with it to its
next owner, so the shares never add up to more than the bound. Partitions that nobody owns right now
count as somebody else's. Heartbeats tell how many leases each sidecar has, so that one that has
more than its share (it had more partitions before) is made room for.
"""

from __future__ import annotations

from collections import deque

from ackd.engine.cluster.members import View, behind, read_note

REMEMBER_MS = 2_000
"""A partition that changes hands counts twice for so long, and never not at all."""


class InFlightShare:
    """What part of all partitions and leases is this sidecar's."""

    def __init__(self) -> None:
        self._totals: deque[tuple[int, int]] = deque()
        self._total = 0
        self._others = self._leased = 0

    def heard(self, view: View, mine: set[str], now_ms: int) -> None:
        """After a heartbeat: who owns what (texts of ledgers), and how many leases others have."""
        taken = view.taken() | mine
        left = [each for each in view.dead if not taken.issuperset(behind(each))]
        self._leased = sum(read_note(each.note).leased for each in [*view.alive, *left])
        others = view.taken().union(view.handed, *(behind(each) for each in view.dead)) - mine
        self._others = len(others)
        self._totals.append((now_ms, len(mine) + len(others)))
        while self._totals and self._totals[0][0] < now_ms - REMEMBER_MS:
            self._totals.popleft()
        self._total = max(total for _, total in self._totals)

    def room(self, bound: int, mine: int, leased: int) -> int:
        """How many leases more the owner of `mine` partitions may grant when it has `leased`."""
        total = max(mine + self._others, self._total)
        share = bound if mine >= total else max(bound * mine // total, 1)
        return min(share, bound - self._leased) - leased
