"""Stopping: partitions go to other sidecars at once; then this one waits for settles, or releases
the application's leases.

`server.stop` decides which. In a pod, the sidecar stops after its application: nobody is left who
could settle, so waiting would only delay the messages and cost them an attempt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from itertools import islice

from ackd.api.messages import SettleItem, SettleVerb
from ackd.core.record.settles import SETTLES
from ackd.engine.base.tasks import Tasks
from ackd.engine.delivery.dispatcher import Dispatcher
from ackd.engine.delivery.handed_leases import HandedLeases, held_leases
from ackd.engine.departure import Departure
from ackd.engine.partition.owned import OwnedPartitions
from ackd.engine.publishing.publishing import Publishing
from ackd.engine.settlement.settle import Settler
from ackd.errors import AckdError

DRAIN_POLL_MS = 20
LOOK_MS = 100
LOOKS_MAX = 1_000
"""Most leases of partitions owned elsewhere that one round looks up."""
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
        departures: Mapping[str, Departure],
        publishing: Publishing,
        handed: HandedLeases,
        settler: Callable[[], Settler],
    ) -> None:
        self._partitions = partitions
        self._dispatchers = dispatchers
        self._departures = departures
        self._publishing = publishing
        self._handed = handed
        self._settler = settler
        self._tasks = Tasks("drain")
        self._looked_s = 0.0
        self.begun = False

    def begin(self) -> None:
        self.begun = True

    def quiesce(self) -> None:
        """Deliver nothing new, for good; others get what is owned here, and settles go on."""
        self.begun = True
        for dispatcher in self._dispatchers.values():
            dispatcher.stop()
        self._tasks.start(self._depart(), "departure", vital=False, ends=True)

    async def drain(self, serve_s: float = 0.0, quiet: Callable[[], None] | None = None) -> None:
        """Give the partitions to other sidecars, deliver nothing new, and return when no
        application here has a lease any more. Settles go on.

        Before it delivers nothing new (`quiet`, or `quiesce`), receives are served over links until
        the leases that were open at first have ended, for `serve_s` at most: a long job keeps
        nobody beside it waiting.
        """
        self.begun = True
        await self._depart()
        for name, dispatcher in self._dispatchers.items():
            if not self._departures[name].serves:
                dispatcher.stop()
        first, until_s = set(self._handed.leases), asyncio.get_running_loop().time() + serve_s
        while first & self._handed.leases.keys() and asyncio.get_running_loop().time() < until_s:
            await self._pause()
        (quiet or self.quiesce)()
        while self._handed.leases or any(each.leased() for each in self._partitions.values()):
            await self._pause()
            await self._depart()  # somebody may have come who takes the partitions
        await self._publishing.drain()

    async def _depart(self) -> None:
        await asyncio.gather(*(each.leave() for each in list(self._departures.values())))

    async def _pause(self) -> None:
        """Wait a moment, for settles at any sidecar and for deadlines."""
        await asyncio.sleep(DRAIN_POLL_MS / 1000)
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._looked_s + LOOK_MS / 1000:
            self._looked_s = now_s
            some = list(islice(self._handed.leases, LOOKS_MAX))
            await asyncio.gather(*(self._look(lease) for lease in some))

    async def _look(self, lease: str) -> None:
        """Forget a lease that has ended, and was not settled here."""
        try:
            view = await self._settler().look(lease)
        except AckdError:
            return  # not known now; asked again later
        self._handed.looked(lease, over=view.state != "leased" or view.late)

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
        held = list(dict.fromkeys([*held, *self._handed.take()]))
        results = []
        for start in range(0, len(held), BATCH):
            items = [
                SettleItem(lease, do, delay_ms=0 if do is SettleVerb.RETRY else None)
                for lease in held[start : start + BATCH]
            ]
            results += await self._settler().settle(items)
        return sum(each.status in _ENDED for each in results)

    async def stop(self) -> None:
        """Wait no longer for what is under way."""
        await self._tasks.stop()
        await asyncio.gather(*(each.stop() for each in list(self._departures.values())))
