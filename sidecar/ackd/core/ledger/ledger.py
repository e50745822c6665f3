"""The owner's view of one partition: what is fetched, ready, leased, waiting, finished.

The record in the store is the truth about leases and finished offsets. The ledger is the owner's
cache of it and decides what to ask the store for. Only the ledger knows the log: bodies, gaps (rule
R7) and the fetch position.

Every method is an event; `drain()` returns the effects that the engine has to carry out. `now_ms`
is the owner's monotonic clock. The pair (now_ms, store_ms) of a reply translates the store times
in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic

from ackd.core.bitmap import ChunkedBitmap
from ackd.core.ledger.bodies import Bodies
from ackd.core.ledger.claims import ClaimTracker
from ackd.core.ledger.deadlines import Deadlines
from ackd.core.ledger.effects import Effect, LeaveKeyQueue
from ackd.core.ledger.entries import Entries
from ackd.core.ledger.entry import STATE_AFTER, B, Entry, EntryStatus
from ackd.core.ledger.grants import Grants
from ackd.core.ledger.intake import Intake
from ackd.core.ledger.lifecycle import Lifecycle
from ackd.core.ledger.message_limits import LedgerLimits
from ackd.core.ledger.order import KeyOrder, OrderPosition
from ackd.core.ledger.repair import Before, Repair, compare
from ackd.core.ledger.send_back import Rules, SendBackTracker
from ackd.core.record.protocol import JournalEntry, OpResult, SlotView, Snapshot
from ackd.core.record.transitions import Outcome


# tidy: long-class methods=33 -- 13 facts that the engine reads, an event for each thing it learns
class Ledger(Generic[B]):
    """One partition. The engine creates this and reaches the parts through it. The engine may read
    everything, and changes state only by calling an event.

    - here: the record as read, settles, other answers of the store, time;
    - `grants`: which messages are granted;
    - `intake`: what the broker's log holds;
    - `send_back`: what leaves the window for the retry topic;
    - `bodies`: which bodies are on disk for a while;
    - `deadlines`: what ends by time, and when;
    - `claims`: retry copies and their origin records; None unless in a retry topic;
    - `order`: which message of a key is next; None without an order (I6).

    The parts share one `Entries` and change it through one `Lifecycle`. For an event that concerns
    several parts, this class and `Intake` set the order in which they get it.
    """

    def __init__(
        self,
        rules: Rules | None = None,
        deliveries_max: int = 0,
        *,
        copies: bool = False,
        message_ttl_ms: int = 0,
        position_of: Callable[[B], OrderPosition | None] | None = None,
    ) -> None:
        entries = self._entries = Entries[B]()
        limits = LedgerLimits[B](entries.clock, deliveries_max, message_ttl_ms)
        self.order = None if position_of is None else KeyOrder(position_of)
        life = self._life = Lifecycle(entries, limits, self.order, self._began_waiting)
        self.bodies = Bodies(entries, life)
        self.claims = ClaimTracker(entries, life, self.bodies) if copies else None
        self.send_back = SendBackTracker(entries, life, rules)
        self.deadlines = Deadlines(life)
        self.grants = Grants(entries, life)
        self.intake = Intake(entries, life, self.bodies, self.claims)
        self.confirmed = self._once_confirmed = 0
        self._opened_epoch = -1

    def _began_waiting(self, offset: int) -> None:
        self.bodies.waits(offset)
        self.send_back.began_waiting(offset)

    def go_by(
        self, rules: Rules | None, deliveries_max: int, message_ttl_ms: int, now_ms: int
    ) -> None:
        """Apply changed settings while the partition is owned."""
        self.send_back.rules, limits = rules, self._life.limits
        limits.deliveries_max = deliveries_max
        if limits.message_ttl_ms != message_ttl_ms:
            self._life.set_message_ttl(message_ttl_ms, now_ms)

    # --- to read

    @property
    def entries(self) -> Mapping[int, Entry[B]]:
        """The unfinished messages that are in memory or have a slot, by offset."""
        return self._entries.by_offset

    def entry(self, offset: int) -> Entry[B] | None:
        return self._entries.by_offset.get(offset)

    def over(self, offset: int) -> bool:
        """Whether this owner knows the message to be finished."""
        return self._entries.over(offset)

    @property
    def finished(self) -> ChunkedBitmap:
        """The finished offsets: above the watermark all of them."""
        return self._entries.finished

    @property
    def watermark(self) -> int:
        """The smallest unfinished offset. `confirmed` is the watermark that the store has."""
        return self._entries.watermark

    @property
    def position(self) -> int:
        """The next offset to be fetched."""
        return self._entries.position

    @property
    def dirty(self) -> bool:
        """The owner must read the record again before it decides anything."""
        return self._entries.dirty

    @property
    def leased(self) -> int:
        tracker, leased = self.send_back, self._entries.leased
        return leased + tracker.leased if tracker.sent_before else leased

    @property
    def waiting(self) -> int:
        return self._entries.waiting

    @property
    def bytes(self) -> int:
        """Bytes that the bodies in memory take."""
        return self._entries.bytes

    @property
    def store_ms(self) -> int:
        """The latest known time of the store's clock."""
        return self._entries.clock.seen_ms

    @property
    def limits(self) -> LedgerLimits[B]:
        """When a message is dead-lettered."""
        return self._life.limits

    def mistakes(self) -> list[str]:
        """List broken invariants in words: see `Entries.mistakes`."""
        return self._entries.mistakes()

    @property
    def ready(self) -> int:
        """Upper bound of the messages that can be granted now. It still counts stale entries, which
        `Grants.take` removes.
        """
        ready, order = self._entries.ready, self.order
        if order is not None and ready and ready[0] >= order.end(self._entries.position):
            return 0
        return len(ready)

    @property
    def buffered(self) -> int:
        """`ready` plus the messages that wait for an earlier one of their key: fetched but not
        delivered.

        Waiting retry copies don't count: the first of them may be stored behind the others, and a
        fetch that waits for them would wait forever.
        """
        in_order = 0 if self.order is None or self.claims is not None else self.order.waiting
        return len(self._entries.ready) + in_order

    @property
    def must_fetch(self) -> bool:
        """No message here can be granted until an earlier one has been fetched (again)."""
        ready = self._entries.ready
        return self.order is not None and bool(ready) and ready[0] >= self._entries.position

    @property
    def holds_copies(self) -> bool:
        """Whether this is a partition of a retry topic, and so has `claims`."""
        return self.claims is not None

    # --- from the store: the whole record

    def must_reread(self) -> None:
        """The state here may be wrong: decide nothing by it until `opened`."""
        self._entries.dirty = True

    def rebuilt(self, epoch: int) -> None:
        """The store lost the record, and it was created again with this epoch. The next `opened`
        merges this owner's state into it.
        """
        self._opened_epoch = epoch

    def opened(self, snapshot: Snapshot, now_ms: int) -> Repair:
        """Take over the record. Bodies in memory stay if their offset is unfinished.

        If this ledger was open before in the same epoch, it merges back what the store had
        confirmed and has lost since (rollback: R9, R10). The returned `Repair` says what the owner
        has to write for that.
        """
        entries = self._entries
        same = self._opened_epoch == snapshot.epoch
        self._opened_epoch = snapshot.epoch
        # Not what the last snapshot said: the repair for that one may not have been written.
        self._once_confirmed = max(self._once_confirmed, self.confirmed) if same else 0
        before = Before(entries.by_offset, entries.finished, self._once_confirmed)
        entries.restart(snapshot.watermark, snapshot.chunks)
        self.confirmed = snapshot.watermark
        self._life.timers.clear()
        self.send_back.restart(same=same and not snapshot.created)
        clock = entries.clock
        clock.skew_ms = snapshot.now_ms - now_ms
        clock.seen_ms = snapshot.now_ms
        self._life.slots(snapshot.slots, snapshot.now_ms, now_ms, before.entries)
        clock.ticked_ms = now_ms
        self._order_again(before, snapshot.blocked)
        repair = self._merge(before, snapshot.journal) if same else Repair([], 0, [], [])
        repair = repair._replace(origin_records=self.send_back.reread(snapshot.now_ms, now_ms))
        self.intake.delays.reread(before.entries)
        for offset, old in before.entries.items():
            if old.body is not None and not entries.over(offset):
                self.intake.arrived(offset, old.body, old)
        entries.dirty = False
        entries.advance()
        if same and entries.watermark < before.confirmed:
            entries.mistaken("the watermark went back", may_mend=False)
        for what in entries.mistakes():
            entries.mistaken(what, may_mend=False)
        self._fetch_again()
        return repair

    def slots(self, slots: Iterable[SlotView], store_ms: int, now_ms: int) -> None:
        """Take over more slots of the record that `opened` took over."""
        self._life.slots(slots, store_ms, now_ms, {})

    def _fetch_again(self) -> None:
        self.intake.fetch_again()

    def _order_again(self, before: Before[B], blocked: Sequence[int]) -> None:
        if self.order is None:
            return
        entries = self._entries
        for offset, position in self.order.restart(before.entries, entries.by_offset, blocked):
            if not entries.over(offset):
                self.order.arrived(offset, position)
            elif position.origin_record is not None:
                entries.effects.append(LeaveKeyQueue(offset, position.origin_record))

    def _merge(self, before: Before[B], journal: Iterable[JournalEntry]) -> Repair:
        # A message that moved to the retry topic is not merely finished: see
        # `SendBackTracker.reread`.
        entries, sent = self._entries, self.send_back.sent_before
        known = entries.by_offset, entries.finished, entries.watermark
        repair = compare(before, *known, sent, journal)
        for offset in repair.finished:
            self._life.finish(offset)
        for lease in repair.leases:
            self._life.keep_lease(*lease)
        if repair.watermark:
            entries.raise_to(repair.watermark)
            for offset in [o for o in entries.by_offset if o < repair.watermark]:
                self._life.finish(offset)
        return repair

    # --- settles through this sidecar and through others

    def settled(
        self,
        offset: int,
        outcome: Outcome,
        fence: int,
        when_ms: int,
        store_ms: int,
        now_ms: int,
        rollback_epoch: int | None = None,
        attempt: int | None = None,
    ) -> None:
        """Apply a settle that the store confirmed. `fence` (and `rollback_epoch`, if known) are
        those of the lease, `attempt` is the number after it.
        """
        if outcome is Outcome.ACKED or outcome is Outcome.ALREADY_ACKED:
            self.send_back.sent_before.settled(offset, outcome, fence, 0)
            self.acked((offset,))
            return
        self.send_back.sent_before.settled(offset, outcome, fence, now_ms + when_ms - store_ms)
        entry = self._entries.by_offset.get(offset)
        state = STATE_AFTER.get(outcome)
        if entry is None or state is None or fence < entry.fence:
            return
        if entry.status is EntryStatus.GRANTING or (
            entry.status is EntryStatus.DEAD and fence == entry.fence
        ):
            return  # the grant's own answer decides; a repeated `dead` stores no second copy
        if entry.status is EntryStatus.MOVING:
            return  # settled in its origin record, where its retry copy will find that
        self._life.seen(entry, fence, entry.attempt if attempt is None else attempt)
        if rollback_epoch is not None:
            entry.rollback_epoch = rollback_epoch
        self._life.hold(offset, entry, state, when_ms, store_ms, now_ms)

    def acked(self, offsets: Sequence[int]) -> None:
        """Apply the acks that the store confirmed in one call, and advance the watermark once."""
        if self.claims is not None:
            self.claims.acked(offsets)
        if self.send_back.sent_before:
            self.send_back.sent_before.ended(offsets)
        for offset in offsets:
            self._life.finish(offset)
        self._entries.advance()

    def finish(self, offset: int) -> None:
        """The record says that the message is finished: dead-lettered, or not in the log."""
        self._life.finish(offset)
        self._entries.advance()

    def journal(self, entries: Iterable[JournalEntry], store_ms: int, now_ms: int) -> None:
        """Apply settles that other sidecars served (rule R16). Every reply brings them, so this
        also updates the clock.
        """
        clock = self._entries.clock
        clock.skew_ms = store_ms - now_ms
        clock.saw(store_ms)
        for item in entries:
            self.settled(
                item.offset,
                item.outcome,
                item.fence,
                item.when_ms,
                store_ms,
                now_ms,
                attempt=item.attempt,
            )

    # --- other answers of the store

    def claimed(
        self, offset: int, result: OpResult, rollback_epoch: int, store_ms: int, now_ms: int
    ) -> None:
        """Apply the answer to PLACE_COPY for a client-set delay, or that to a claim
        (`ClaimTracker.claimed`).
        """
        entry = self._entries.by_offset.get(offset)
        if entry is not None and entry.status is EntryStatus.PLACING:
            self.intake.delays.placed(offset, result, rollback_epoch, store_ms, now_ms)
        elif self.claims is not None:
            self.claims.claimed(offset, result, rollback_epoch, store_ms, now_ms)

    def marked_dead(
        self, offset: int, result: OpResult, rollback_epoch: int, store_ms: int, now_ms: int
    ) -> bool:
        """Apply the answer to MARK_DEAD. False: the record has to be read again."""
        return self._life.marked_dead(offset, result, rollback_epoch, store_ms, now_ms)

    # --- progress

    def store_confirmed(self, watermark: int) -> None:
        """Take a reply's watermark. Only a confirmed one may be committed to the broker (R16)."""
        self.confirmed = max(self.confirmed, watermark)

    def dropped(self, committed: int) -> None:
        """The broker has committed this offset: free the bits below it."""
        entries = self._entries
        entries.finished.drop_below(min(committed, entries.watermark))
        self.send_back.sent_before.drop(committed, entries.clock.ticked_ms)

    def tick(self, now_ms: int) -> int:
        """Apply the passing of time: see `Deadlines.tick`."""
        return self.deadlines.tick(now_ms)

    @property
    def undone(self) -> bool:
        """Whether `drain` would return anything."""
        return bool(self._entries.effects)

    def drain(self) -> list[Effect]:
        """Take the effects that have to be carried out now, in order."""
        entries = self._entries
        effects, entries.effects = entries.effects, []
        return effects
