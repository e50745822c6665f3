"""Retry copies, as the owner of their partition of the retry topic sees them (rule R2).

The owner delivers a retry copy only after the copy has claimed its origin record. It then writes
the confirmed claim into the copy's own record (PLACE_COPY), so a copy that has a slot has claimed.
Only after that may the origin record be closed (CLOSE).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic

from ackd.core.ledger.bodies import Bodies
from ackd.core.ledger.effects import Claim, CloseOriginRecord, LeaveKeyQueue
from ackd.core.ledger.entries import Entries
from ackd.core.ledger.entry import B, EntryStatus
from ackd.core.ledger.lifecycle import Lifecycle
from ackd.core.record.protocol import OpResult
from ackd.core.record.transitions import Outcome, State

CLAIM_AGAIN_MS = 5_000
"""While the forwarded lease is live, the owner claims again this often: the lease may have been
acked or released."""
CLAIMS_A_SECOND = 200
"""So many of these claims of one partition come in a second, at most: with very many copies each
claims less often, so that those whose lease has ended don't wait behind them.
"""
BLOCKED_AGAIN_MS = 1_000
"""When to claim again if the copy must wait for an earlier one that another owner has."""
IN_QUEUE_MS = 60_000
"""When to claim again, at the latest, if the copy must wait for an earlier one of this partition.
The end of that one triggers the claim sooner."""


class ClaimTracker(Generic[B]):
    """Claims origin records for the retry copies of one partition of a retry topic.

    `finished_by_commit`: the range of copies that finished without being seen by this owner: a
    commit reported them, or they were acked before they were fetched. The owner fetches the range
    again to remove them from their key queues, because a rollback may have erased their claims.
    """

    __slots__ = ("_bodies", "_entries", "_life", "finished_by_commit")

    def __init__(self, entries: Entries[B], life: Lifecycle[B], bodies: Bodies[B]) -> None:
        self._entries = entries
        self._life = life
        self._bodies = bodies
        self.finished_by_commit = range(0)

    def read_over(self, start: int, end: int) -> None:
        """A commit reported copies of [start, end) as finished: see `finished_by_commit`."""
        self.finished_by_commit = range(start, end)

    def arrived(self, offset: int) -> None:
        """A copy without a slot was fetched. One that is not the first of its key claims later."""
        self._entries.by_offset[offset].status = EntryStatus.CLAIMING
        order = self._life.order
        if order is None or order.first(offset):
            self._entries.effects.append(Claim(offset))
        else:
            self._claim_at(offset, self._entries.clock.ticked_ms + IN_QUEUE_MS)

    def fetched_again(self, body: B) -> None:
        """A finished copy was fetched: remove it from its key queue, as nobody else may do so."""
        order = self._life.order
        if order is None or body.offset not in self.finished_by_commit:
            return
        position = order.position_of(body)
        if position is not None and position.origin_record is not None:
            self._entries.effects.append(LeaveKeyQueue(body.offset, position.origin_record))

    def close_origin_record(self, offset: int) -> None:
        """Close the origin record of a claimed copy. One in a key queue has to wait until the copy
        is finished (`LeaveKeyQueue`).
        """
        order = self._life.order
        position = None if order is None else order.position(offset)
        if position is None or position.origin_record is None:
            self._entries.effects.append(CloseOriginRecord(offset))

    def claimed(
        self, offset: int, result: OpResult, rollback_epoch: int, store_ms: int, now_ms: int
    ) -> None:
        """Apply the origin record's answer (HELD, FINISHED, REFUSED), or that of PLACE_COPY or
        MARK_DEAD.

        LOST: not a retry copy, or the store knows nothing of it and did not place it. It becomes
        ready as it is.
        """
        entry = self._entries.by_offset.get(offset)
        if entry is None or entry.status is not EntryStatus.CLAIMING:
            return
        match result.outcome:
            case Outcome.HELD:
                # Shown to operators only; the claim will bring these values again.
                entry.attempt, entry.first_s = result.attempt, result.first_s
                entry.when_ms = result.when_ms
                again_ms = max(result.when_ms - store_ms, 1)
                if result.state is State.LEASED:
                    copies = len(self._entries.by_offset)
                    most_ms = max(CLAIM_AGAIN_MS, copies * 1000 // CLAIMS_A_SECOND)
                    again_ms = min(again_ms, most_ms)
                self._claim_at(offset, now_ms + again_ms)
            case Outcome.BLOCKED:
                # The earlier copy is another owner's, or not stored yet.
                self._claim_at(offset, now_ms + BLOCKED_AGAIN_MS)
            case Outcome.FINISHED | Outcome.REFUSED:
                self._life.finish(offset)
                self._entries.finish_range(offset, offset + 1, 0)
                self._entries.advance()
            case Outcome.LOST:
                self._life.make_ready(offset, entry)
            case _:
                self._life.decided(offset, entry, result, rollback_epoch, store_ms, now_ms)
                self.close_origin_record(offset)

    def not_claimed(self, offsets: Iterable[int], again_ms: int, now_ms: int) -> None:
        """The store did not answer: claim again in `again_ms`."""
        for offset in offsets:
            entry = self._entries.by_offset.get(offset)
            if entry is not None and entry.status is EntryStatus.CLAIMING:
                self._claim_at(offset, now_ms + again_ms)

    def _claim_at(self, offset: int, due_ms: int) -> None:
        self._entries.by_offset[offset].due_ms = due_ms
        self._life.timers.add(due_ms, offset)
        self._bodies.waits(offset)

    def acked(self, offsets: Iterable[int]) -> None:
        """An acked copy must have claimed its origin record, even if a rollback erased the claim.
        Remove it from its key queue, now or when it is fetched again. Call this before `finish`.
        """
        seen = self.finished_by_commit
        for offset in offsets:
            entry = self._entries.by_offset.get(offset)
            if entry is not None and entry.status is EntryStatus.CLAIMING:
                entry.status = EntryStatus.READY
            elif entry is None and offset >= self._entries.position:
                first = min(seen.start, offset) if seen else offset
                seen = range(first, max(seen.stop, offset + 1))
        self.finished_by_commit = seen
