"""Gives open leases the lease time that an operator has set, also those in origin records (R30)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from ackd.core.ledger.entry import UNKNOWN_ROLLBACK_EPOCH, EntryStatus
from ackd.core.record.operations import LookUp, Op, Settle
from ackd.core.record.protocol import CallStatus
from ackd.core.record.transitions import Verb
from ackd.engine.base.context import Context
from ackd.engine.base.live import Live, OpenLeaseChange
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.partition.owned import OwnedPartitions
from ackd.engine.partition.partition import Partition
from ackd.errors import StoreError
from ackd.store.flusher import LedgerHandle

LOG = logging.getLogger("ackd.engine")

EXTEND_BATCH = 1_000
HANDOVER_MS = 10_000
"""How long after a change sidecars still look for leases to move: a sidecar may have died before it
did so, and a copy asks its origin record at least every five seconds.
"""


class LeaseTimeChange:
    """Asks the store to move deadlines."""

    def __init__(
        self,
        state: SubscriptionState,
        context: Context,
        partitions: OwnedPartitions,
        store_now_ms: Callable[[], int],
        claim: Callable[[Partition, int], None],
    ) -> None:
        self._state = state
        self._context = context
        self._partitions = partitions
        self._store_now_ms = store_now_ms
        self._claim = claim

    def changed(self, before: Live, live: Live) -> None:
        """A new version of the live value: change open leases if it asks for that, once for each
        version.
        """
        change = live.open_leases
        if change is not None and before.version < change.version:
            for partition in self._partitions.owned.values():
                self.all_of(partition, change)

    def _recent(self, change: OpenLeaseChange | None) -> bool:
        now_ms = self._store_now_ms()
        return change is not None and now_ms < change.at_ms + HANDOVER_MS

    def opened(self, partition: Partition) -> None:
        """The previous owner may have died before it changed the open leases: do it now."""
        change = self._state.live.open_leases
        if change is not None and self._recent(change):
            self.all_of(partition, change)

    def all_of(self, partition: Partition, change: OpenLeaseChange) -> None:
        """Ask the store to move the deadlines of all open leases."""
        ops = self._extensions(partition, change)
        for start in range(0, len(ops), EXTEND_BATCH):
            partition.tell(*ops[start : start + EXTEND_BATCH])
        if partition.ledger.holds_copies:
            for offset, entry in partition.ledger.entries.items():
                if entry.hold is EntryStatus.CLAIMING:
                    # The answer shows that the lease is open, and leads to `forwarded`.
                    self._claim(partition, offset)

    def _extensions(self, partition: Partition, change: OpenLeaseChange) -> list[Op]:
        """An uncounted extend never shortens a lease; a counted one does."""
        new_ms = self._context.clock.monotonic_ms() + change.lease_ms
        return [
            Settle(
                Verb.EXTEND,
                offset,
                entry.fence,
                entry.rollback_epoch,
                entry.attempt,
                change.lease_ms,
                counted=change.force and entry.due_ms > new_ms,
            )
            for offset, entry in partition.ledger.entries.items()
            if entry.hold is EntryStatus.LEASED and entry.rollback_epoch != UNKNOWN_ROLLBACK_EPOCH
        ]

    # --- leases in origin records

    def wanted(self, deadline_ms: int) -> bool:
        """Whether a lease that a claim met in an origin record has to be moved."""
        change = self._state.live.open_leases
        if change is None or not self._recent(change):
            return False
        new_ms = change.at_ms + change.lease_ms
        return deadline_ms < new_ms or (change.force and deadline_ms > new_ms + HANDOVER_MS)

    async def forwarded(self, handle: LedgerHandle, offsets: Sequence[int]) -> None:
        """Move the deadlines of leases in the origin records of these messages."""
        change = self._state.live.open_leases
        if change is None:
            return
        flusher = self._context.flusher
        try:
            seen = await flusher.submit(handle, [LookUp(offset) for offset in offsets])
            if seen.verdict is not CallStatus.OK:
                return  # the next claim tries again
            new_ms = seen.now_ms + change.lease_ms
            extensions = [
                Settle(
                    Verb.EXTEND,
                    offset,
                    result.fence,
                    seen.rollback_epoch,
                    result.attempt,
                    change.lease_ms,
                    counted=change.force and result.when_ms > new_ms,
                )
                for offset, result in zip(offsets, seen.results, strict=True)
                if result.fence and result.when_ms > seen.now_ms
            ]
            if extensions:
                await flusher.submit(handle, extensions)
        except StoreError as error:
            LOG.info("%s: open leases not extended: %s", self._state.name, error.detail)
