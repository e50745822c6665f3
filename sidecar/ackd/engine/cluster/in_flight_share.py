"""A sidecar's share of the leases that all sidecars of a subscription may have open together.

The bound is divided by partitions: leased messages belong to a partition and go with it to its next
owner, so the shares never add up to more than the bound. Partitions without an owner count as
another sidecar's. Heartbeats carry the number of leases of each sidecar, so that the others leave
room for one with more than its share (it had more partitions before).
"""

from __future__ import annotations

from collections import deque

from ackd.engine.cluster.members import View, behind, read_note

REMEMBER_MS = 2_000
"""For this long after a handover a partition counts for both owners, so that the shares never add
up to more than the bound.
"""


class InFlightShare:
    """Computes how many leases this sidecar may open."""

    def __init__(self) -> None:
        self._totals: deque[tuple[int, int]] = deque()
        self._total = 0
        self._others = self._leased = 0

    def received(self, view: View, mine: set[str], now_ms: int) -> None:
        """After a heartbeat: count the records (as texts) and leases of the other sidecars."""
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
        """Return how many more leases the owner of `mine` partitions may open when it has
        `leased`.
        """
        total = max(mine + self._others, self._total)
        share = bound if mine >= total else max(bound * mine // total, 1)
        return min(share, bound - self._leased) - leased
