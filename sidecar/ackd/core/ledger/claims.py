"""Copies in a retry topic, as the owner of their partition sees them (rule R2).

A carrier is not handed out before it has claimed its home record. A claim that the home confirmed
is written into the carrier's own record (PLACE), so a carrier that has a slot was claimed; only
then may the home go (CLOSE).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic

from ackd.core.ledger.bodies import Bodies
from ackd.core.ledger.effects import Claim, CloseHome, Unpark
from ackd.core.ledger.entries import Entries
from ackd.core.ledger.entry import B, EntryStatus
from ackd.core.ledger.lifecycle import Lifecycle
from ackd.core.record.protocol import OpResult
from ackd.core.record.transitions import Outcome, State

CLAIM_AGAIN_MS = 5_000
"""A home whose lease is live is asked again at least this often: it may be acked or released."""
BEHIND_AGAIN_MS = 1_000
"""A carrier that is behind another one, which is not here, asks again after this."""
IN_LINE_MS = 60_000
"""One that waits for a carrier that is here is told when that is over, and asks after this."""


class ClaimTracker(Generic[B]):
    """Whoever has a partition of a retry topic has one of these.

    `finished_by_commit`: where copies were finished that this owner did not see, by a commit's word
    or before they were fetched. It is read over to tell the lines of their homes, which a rollback
    may have put back to before the claim.
    """

    __slots__ = ("_bodies", "_entries", "_life", "finished_by_commit")

    def __init__(self, entries: Entries[B], life: Lifecycle[B], bodies: Bodies[B]) -> None:
        self._entries = entries
        self._life = life
        self._bodies = bodies
        self.finished_by_commit = range(0)

    def read_over(self, start: int, end: int) -> None:
        """A commit says that copies of [start, end) are finished: see `finished_by_commit`."""
        self.finished_by_commit = range(start, end)

    def arrived(self, offset: int) -> None:
        """A carrier without a slot. One that is not the first of its chain asks later."""
        self._entries.by_offset[offset].hold = EntryStatus.CLAIMING
        order = self._life.order
        if order is None or order.first(offset):
            self._entries.effects.append(Claim(offset))
        else:
            self._claim_at(offset, self._entries.clock.ticked_ms + IN_LINE_MS)

    def fetched_again(self, body: B) -> None:
        """A copy that is over: nobody else may tell the line of its home."""
        order = self._life.order
        if order is None or body.offset not in self.finished_by_commit:
            return
        place = order.place_of(body)
        if place is not None and place.home is not None:
            self._entries.effects.append(Unpark(body.offset, place.home))

    def close_home(self, offset: int) -> None:
        """A home that stands in a line goes when its carrier is finished (`Unpark`)."""
        order = self._life.order
        place = None if order is None else order.place(offset)
        if place is None or place.home is None:
            self._entries.effects.append(CloseHome(offset))

    def claimed(
        self, offset: int, result: OpResult, rterm: int, store_ms: int, now_ms: int
    ) -> None:
        """What the home said (HELD, FINISHED, REFUSED), or what PLACE or BURY made of the carrier.

        LOST: no carrier, or nothing is known of it and it was not placed: ready as it is.
        """
        entry = self._entries.by_offset.get(offset)
        if entry is None or entry.hold is not EntryStatus.CLAIMING:
            return
        match result.outcome:
            case Outcome.HELD:
                # For people who ask: the message itself says it again when it is claimed.
                entry.attempt, entry.first_s = result.attempt, result.first_s
                entry.when_ms = result.when_ms
                again_ms = max(result.when_ms - store_ms, 1)
                if result.state is State.LEASED:
                    again_ms = min(again_ms, CLAIM_AGAIN_MS)
                self._claim_at(offset, now_ms + again_ms)
            case Outcome.BEHIND:
                # Somebody else's carrier, or one that is not stored yet.
                self._claim_at(offset, now_ms + BEHIND_AGAIN_MS)
            case Outcome.FINISHED | Outcome.REFUSED:
                self._life.finish(offset)
                self._entries.finish_range(offset, offset + 1, 0)
                self._entries.advance()
            case Outcome.LOST:
                self._life.make_ready(offset, entry)
            case _:
                self._life.decided(offset, entry, result, rterm, store_ms, now_ms)
                self.close_home(offset)

    def not_claimed(self, offsets: Iterable[int], again_ms: int, now_ms: int) -> None:
        """No answer: ask again in `again_ms`."""
        for offset in offsets:
            entry = self._entries.by_offset.get(offset)
            if entry is not None and entry.hold is EntryStatus.CLAIMING:
                self._claim_at(offset, now_ms + again_ms)

    def _claim_at(self, offset: int, due_ms: int) -> None:
        self._entries.by_offset[offset].due_ms = due_ms
        self._life.timers.add(due_ms, offset)
        self._bodies.waits(offset)

    def acked(self, offsets: Iterable[int]) -> None:
        """An acked copy must have claimed its home, even if a rollback erased the claim. Its line
        has to hear that it is over, now or when it is fetched: call this before `finish`.
        """
        seen = self.finished_by_commit
        for offset in offsets:
            entry = self._entries.by_offset.get(offset)
            if entry is not None and entry.hold is EntryStatus.CLAIMING:
                entry.hold = EntryStatus.READY
            elif entry is None and offset >= self._entries.position:
                first = min(seen.start, offset) if seen else offset
                seen = range(first, max(seen.stop, offset + 1))
        self.finished_by_commit = seen
