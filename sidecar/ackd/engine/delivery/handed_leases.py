"""Open leases of applications here, also of partitions that other sidecars own by now."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ackd.core.ledger.entry import EntryStatus
from ackd.engine.partition.partition import Partition

HANDED_MAX = 10_000


def held_leases(partition: Partition) -> Iterator[str]:
    """Tokens of the open leases that were handed out here, in this time of ownership.

    Those that were open before have no holder: they are of applications of other sidecars.
    """
    for offset, entry in partition.ledger.entries.items():
        if entry.hold is EntryStatus.LEASED and entry.holder:
            yield partition.signer.token(offset, entry.fence, entry.rterm, entry.attempt)


@dataclass(slots=True)
class HandedLeases:
    """Leases of partitions that went to other sidecars while applications here still held them.

    Kept with `server.stop = "release"` only, and so many: the rest ends at its deadlines.
    """

    keep: bool = False
    leases: list[str] = field(default_factory=list)

    def note(self, partition: Partition) -> None:
        """A partition is let go."""
        if self.keep:
            self.leases += held_leases(partition)
            del self.leases[:-HANDED_MAX]

    def take(self) -> list[str]:
        """All of them, and forget them."""
        leases, self.leases = self.leases, []
        return leases
