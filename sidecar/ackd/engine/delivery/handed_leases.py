"""Open leases of applications here, including those of partitions that other sidecars own by
now.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ackd.core.ledger.entry import EntryStatus
from ackd.engine.partition.partition import Partition

HANDED_MAX = 10_000


def held_leases(partition: Partition) -> Iterator[str]:
    """Yield the tokens of open leases that this sidecar granted in this ownership term.

    Leases from before the term have no holder here: applications of other sidecars hold them.
    """
    for offset, entry in partition.ledger.entries.items():
        if entry.status is EntryStatus.LEASED and entry.holder:
            yield partition.signer.token(offset, entry.fence, entry.rollback_epoch, entry.attempt)


@dataclass(slots=True)
class HandedLeases:
    """Leases of partitions that went to other sidecars while applications here still held them.

    Kept only with `server.stop = "release"`, at most `HANDED_MAX`; the rest ends at its deadlines.
    """

    keep: bool = False
    leases: list[str] = field(default_factory=list)

    def note(self, partition: Partition) -> None:
        """Keep the open leases of a partition that this sidecar is letting go."""
        if self.keep:
            self.leases += held_leases(partition)
            del self.leases[:-HANDED_MAX]

    def take(self) -> list[str]:
        """Return all leases, and forget them."""
        leases, self.leases = self.leases, []
        return leases
