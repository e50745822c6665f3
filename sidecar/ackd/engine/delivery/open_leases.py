"""Count the unsettled leases of one consumer, which a stream or push bounds.

The owner's ledger sees every end of a lease, whoever settled it and wherever, so counting needs no
call. Another sidecar owns the partition where the message came from there, or the partition has
moved: then a settle that is served here ends the lease at once, and the store is asked now and then
about those that end in other ways.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from ackd.api.messages import Delivery
from ackd.core.ledger.entry import EntryStatus
from ackd.engine.base.context import Context
from ackd.engine.delivery.handed_leases import HandedLeases
from ackd.engine.partition.owned import OwnedPartitions
from ackd.engine.settlement.settle import LeaseLook
from ackd.errors import AckdError

LOOK_MS = 1_000
LOOKS_MAX = 100
"""Most leases of partitions owned elsewhere that one round looks up."""


@dataclass(frozen=True, slots=True)
class _OpenLease:
    ledger: tuple[bytes, int]
    offset: int
    fence: int


class OpenLeases:
    """Implements `ackd.api.messages.Unsettled`. `partitions`: those of each subscription; they are
    others after it was built anew.
    """

    def __init__(
        self,
        name: str,
        context: Context,
        partitions: Mapping[str, OwnedPartitions],
        look: LeaseLook,
        handed: HandedLeases,
    ) -> None:
        self._name = name
        self._context = context
        self._partitions = partitions
        self._ask = look
        self._handed = handed
        self._open: dict[str, _OpenLease] = {}
        self._moved = self._context.lease_events.listen(name)
        self._looked_ms = 0

    def add(self, messages: Sequence[Delivery]) -> None:
        for message in messages:
            # A retry copy's token names its offset in the retry topic, the message its origin's.
            token = self._context.keys.open(message.lease)
            ledger = (token.topic_id, token.partition)
            self._open[message.lease] = _OpenLease(ledger, token.offset, token.fence)
            self._handed.watch(message.lease, self._ended)

    def _ended(self, lease: str) -> None:
        """Called when a settle that this sidecar served has ended it."""
        if self._open.pop(lease, None) is not None:
            self._moved.set()

    def count(self) -> int:
        """Return how many leases are still open."""
        over = [lease for lease, each in self._open.items() if self._over(each)]
        for lease in over:
            del self._open[lease]
        self._handed.unwatch(over)
        return len(self._open)

    def leases(self) -> list[str]:
        """Return the tokens of the open leases."""
        self.count()
        return list(self._open)

    def _over(self, lease: _OpenLease) -> bool:
        partition = self._partitions[self._name].by_ledger.get(lease.ledger)
        if partition is None or partition.ledger.dirty:
            return False
        entry = partition.ledger.entry(lease.offset)
        return entry is None or entry.status is not EntryStatus.LEASED or entry.fence != lease.fence

    async def wait(self, timeout_s: float) -> None:
        """Wait until a lease of the subscription begins or ends, or the time is over."""
        try:
            async with asyncio.timeout(min(timeout_s, LOOK_MS / 1000)):
                await self._moved.wait()
        except TimeoutError:
            pass
        self._moved.clear()
        await self._look_up()

    async def _look_up(self) -> None:
        """Ask the store about leases of partitions that this sidecar no longer owns."""
        now_ms = self._context.clock.monotonic_ms()
        if now_ms < self._looked_ms + LOOK_MS:
            return
        owned = self._partitions[self._name].by_ledger
        gone = list(islice((t for t, e in self._open.items() if e.ledger not in owned), LOOKS_MAX))
        if gone:
            self._looked_ms = now_ms
            await asyncio.gather(*(self._look(lease) for lease in gone))

    async def _look(self, lease: str) -> None:
        try:
            view = await self._ask(lease)
        except AckdError:
            return  # not known now; asked again later
        if view.state != "leased" or view.late:
            self._open.pop(lease, None)
            self._handed.unwatch([lease])
        elif lease in self._open:
            self._open[lease] = self._open.pop(lease)  # to the end: the others are looked up first

    def close(self) -> None:
        """Stop listening for lease events and settles."""
        self._handed.unwatch(self._open)
        self._context.lease_events.forget(self._name, self._moved)
