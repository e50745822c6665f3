"""Stopping: hand out nothing new, then wait for settles, or give back what the application held.

`server.stop` says which. Beside an application in one pod the sidecar is stopped after it: nobody
is left who could settle, so waiting would only cost the messages their time, and an attempt.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ackd.api.messages import SettleItem, Status, Verb
from ackd.core.ledger.entry import Hold

if TYPE_CHECKING:
    from ackd.engine.partition.partition import Partition
    from ackd.engine.publishing.publishing import Publishing
    from ackd.engine.settlement.settle import Settler
    from ackd.engine.subscription import Subscription

DRAIN_POLL_MS = 20
BATCH = 500
BEHIND_MAX = 10_000


def held_leases(partition: Partition) -> Iterator[str]:
    """Tokens of the open leases that were handed out here, in this time of ownership.

    Those that were open before have no holder: they are of applications of other sidecars.
    """
    for offset, entry in partition.ledger.entries.items():
        if entry.hold is Hold.LEASED and entry.holder:
            yield partition.signer.token(offset, entry.fence, entry.rterm, entry.attempt)


@dataclass(slots=True)
class Behind:
    """Leases of partitions that went to other sidecars while applications here still held them.

    Kept with `server.stop = "release"` only, and so many: the rest ends at its deadlines.
    """

    keep: bool = False
    leases: list[str] = field(default_factory=list)

    def note(self, partition: Partition) -> None:
        """A partition is let go."""
        if self.keep:
            self.leases += held_leases(partition)
            del self.leases[:-BEHIND_MAX]


class Leaving(ABC):
    """The part of the runtime that ends its work."""

    _subscriptions: dict[str, Subscription]
    _publishing: Publishing
    _draining: bool
    behind: Behind

    @abstractmethod
    def _settling(self) -> Settler:
        """Raises StoreError."""

    def quiesce(self) -> None:
        """Hand out nothing new, for good; settles go on."""
        self._draining = True
        for subscription in self._subscriptions.values():
            subscription.hand_out.stop()

    async def drain(self) -> None:
        """Hand out nothing new; returns when nothing is leased any more. Settles go on."""
        self.quiesce()
        while any(s.hand_out.in_flight() for s in self._subscriptions.values()):  # noqa: ASYNC110 - by settles of any sidecar
            await asyncio.sleep(DRAIN_POLL_MS / 1000)
        await self._publishing.drain()

    async def give_back(self) -> int:
        """End every lease that applications here hold, uncounted; how many. Raises StoreError."""
        self.quiesce()
        ended = await self._end(Verb.RELEASE)
        await self._publishing.drain()
        return ended

    async def end_held(self) -> int:
        """The same, counted: who held them is gone, perhaps by one of them. Raises StoreError."""
        return await self._end(Verb.RETRY)

    async def _end(self, do: Verb) -> int:
        held = list(held_by(self._subscriptions)) + self.behind.leases
        self.behind.leases = []
        results = []
        for start in range(0, len(held), BATCH):
            items = [
                SettleItem(lease, do, delay_ms=0 if do is Verb.RETRY else None)
                for lease in held[start : start + BATCH]
            ]
            results += await self._settling().settle(items)
        return sum(each.status in (Status.RELEASED, Status.RETRYING) for each in results)

    def gate(self, why: str | None) -> None:
        """Hand out nothing while the application is not well, and why; None: go on."""
        for subscription in self._subscriptions.values():
            subscription.control.gate(why)


def held_by(subscriptions: Mapping[str, Subscription]) -> Iterator[str]:
    """Tokens of all leases that were handed out here, of partitions that are still ours."""
    for subscription in subscriptions.values():
        for partition in list(subscription.owned.values()):
            yield from held_leases(partition)
