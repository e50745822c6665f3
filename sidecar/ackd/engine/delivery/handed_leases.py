"""Open leases of applications here, including those of partitions that other sidecars own by
now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ackd.api.messages import SettleItem, SettleResult, Status
from ackd.core.ledger.entry import EntryStatus
from ackd.engine.partition.partition import Partition

HANDED_MAX = 10_000
_OPEN = frozenset({Status.EXTENDED, Status.INVALID, Status.UNAVAILABLE})
"""After these answers, a lease is as open as before."""
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

    At most `HANDED_MAX`, the latest. One that has expired, or was settled at another sidecar, may
    still be among them: a drain looks them up. `watched`: open leases of any partition, and who is
    to hear that a settle here has ended one, as only the owner's ledger sees that by itself.
    """

    leases: dict[str, None] = field(default_factory=dict)
    watched: dict[str, Callable[[str], None]] = field(default_factory=dict)

    def watch(self, lease: str, ended: Callable[[str], None]) -> None:
        self.watched[lease] = ended

    def unwatch(self, leases: Iterable[str]) -> None:
        for lease in leases:
            self.watched.pop(lease, None)

    def note(self, partition: Partition) -> None:
        """Keep the open leases of a partition that this sidecar is letting go."""
        self.add(held_leases(partition))

    def add(self, leases: Iterable[str]) -> None:
        """Keep leases of applications here on partitions of other sidecars."""
        self.leases.update(dict.fromkeys(leases))
        while len(self.leases) > HANDED_MAX:
            del self.leases[next(iter(self.leases))]

    def settled(self, items: Sequence[SettleItem], results: Sequence[SettleResult]) -> None:
        """Forget those that a settle here has ended, and tell who watches them."""
        if not self.leases and not self.watched:
            return
        for item, result in zip(items, results, strict=True):
            if result.status not in _OPEN:
                self.leases.pop(item.lease, None)
                ended = self.watched.pop(item.lease, None)
                if ended is not None:
                    ended(item.lease)

    def looked(self, lease: str, *, over: bool) -> None:
        """The store has said what became of a lease; one that is open goes to the end, so that the
        others are looked up first.
        """
        if lease in self.leases:
            del self.leases[lease]
            if not over:
                self.leases[lease] = None

    def take(self) -> list[str]:
        """Return all leases, and forget them."""
        leases, self.leases = self.leases, {}
        return list(leases)
