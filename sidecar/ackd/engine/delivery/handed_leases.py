"""Open leases of applications here, including those of partitions that other sidecars own by
now.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ackd.core.ledger.entry import EntryStatus
from ackd.engine.partition.partition import Partition

HANDED_MAX = 10_000
RELAYED = "via "
"""The holder of a lease begins so if an application beside another sidecar has it."""


def beside(holder: str) -> str:
    """Return the sidecar beside which this holder of a lease works; empty: this one."""
    return holder.removeprefix(RELAYED).partition(":")[0] if holder.startswith(RELAYED) else ""


def held_leases(partition: Partition) -> Iterator[str]:
    """Yield the tokens of open leases that this sidecar granted in this ownership term.

    Not those of applications beside other sidecars: leases from before the term, without a holder
    here, and those that were asked for by another sidecar.
    """
    for offset, entry in partition.ledger.entries.items():
        here = entry.holder and not beside(entry.holder)
        if entry.status is EntryStatus.LEASED and here:
            yield partition.signer.token(offset, entry.fence, entry.rollback_epoch, entry.attempt)


@dataclass(slots=True)
class HandedLeases:
    """Leases of partitions that other sidecars own, and that applications here hold: the
    partitions went there meanwhile, or the messages came from there.

    Kept only with `server.stop = "release"`, at most `HANDED_MAX`; the rest ends at its deadlines.
    """

    keep: bool = False
    leases: list[str] = field(default_factory=list)

    def note(self, partition: Partition) -> None:
        """Keep the open leases of a partition that this sidecar is letting go."""
        self.add(held_leases(partition))

    def add(self, leases: Iterable[str]) -> None:
        """Keep leases of applications here on partitions of other sidecars."""
        if self.keep:
            self.leases += leases
            del self.leases[:-HANDED_MAX]

    def take(self) -> list[str]:
        """Return all leases, and forget them."""
        leases, self.leases = self.leases, []
        return leases
