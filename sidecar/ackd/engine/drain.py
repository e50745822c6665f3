"""Stopping: deliver nothing new, then wait for settles, or release the application's leases.

`server.stop` decides which. In a pod, the sidecar stops after its application: nobody is left who
could settle, so waiting would only delay the messages and cost them an attempt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from ackd.api.messages import SettleItem, SettleVerb
from ackd.core.record.settles import SETTLES
from ackd.engine.delivery.dispatcher import Dispatcher
from ackd.engine.delivery.handed_leases import HandedLeases, held_leases
from ackd.engine.partition.owned import OwnedPartitions
from ackd.engine.publishing.publishing import Publishing
from ackd.engine.settlement.settle import Settler

DRAIN_POLL_MS = 20
BATCH = 500
_ENDED = frozenset(rule.status for rule in SETTLES.values() if rule.ends)


class Drain:
    """Ends the work of all subscriptions of a sidecar. `settler` raises StoreError without a
    store.
    """

    def __init__(
        self,
        partitions: Mapping[str, OwnedPartitions],
        dispatchers: Mapping[str, Dispatcher],
        publishing: Publishing,
        handed: HandedLeases,
        settler: Callable[[], Settler],
    ) -> None:
        self._partitions = partitions
        self._dispatchers = dispatchers
        self._publishing = publishing
        self._handed = handed
        self._settler = settler
        self.begun = False

    def begin(self) -> None:
        self.begun = True

    def quiesce(self) -> None:
        """Deliver nothing new, for good; settles go on."""
        self.begun = True
        for dispatcher in self._dispatchers.values():
            dispatcher.stop()

    async def drain(self) -> None:
        """Deliver nothing new; return when no message is leased any more. Settles go on."""
        self.quiesce()
        while any(each.leased() for each in self._partitions.values()):  # noqa: ASYNC110 - by settles of any sidecar
            await asyncio.sleep(DRAIN_POLL_MS / 1000)
        await self._publishing.drain()

    async def give_back(self) -> int:
        """Release every lease of applications here, uncounted; returns how many. Raises
        StoreError.
        """
        self.quiesce()
        ended = await self._end(SettleVerb.RELEASE)
        await self._publishing.drain()
        return ended

    async def end_held(self) -> int:
        """The same, but counted: the application is gone, and a message may be the cause. Raises
        StoreError.
        """
        return await self._end(SettleVerb.RETRY)

    async def _end(self, do: SettleVerb) -> int:
        held = [
            lease
            for owned in self._partitions.values()
            for partition in owned.all()
            for lease in held_leases(partition)
        ]
        held += self._handed.take()
        results = []
        for start in range(0, len(held), BATCH):
            items = [
                SettleItem(lease, do, delay_ms=0 if do is SettleVerb.RETRY else None)
                for lease in held[start : start + BATCH]
            ]
            results += await self._settler().settle(items)
        return sum(each.status in _ENDED for each in results)
