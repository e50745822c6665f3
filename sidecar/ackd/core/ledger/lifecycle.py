"""The status of each message, and what follows from each change of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappush
from typing import Generic

from ackd.core.ledger.effects import (
    Claim,
    Exhausted,
    FinishRange,
    LeaveKeyQueue,
    Restore,
    SendBack,
    SendDead,
)
from ackd.core.ledger.entries import Entries
from ackd.core.ledger.entry import STATUS_OF, UNKNOWN_ROLLBACK_EPOCH, B, Entry, EntryStatus
from ackd.core.ledger.message_limits import LedgerLimits
from ackd.core.ledger.order import KeyOrder
from ackd.core.ledger.repair import unchanged
from ackd.core.ledger.timers import Timers
from ackd.core.record.protocol import Finish, OpResult, SlotView
from ackd.core.record.transitions import Outcome, State


class Lifecycle(Generic[B]):
    """Changes the status of single entries. Every other part of the ledger changes it through this.

    `order`: None without an order. `ended`: finished offsets, for a ledger that acks each one at
    the broker; None for one that commits a watermark. `began_waiting` is called with each offset
    that begins to wait.
    """

    __slots__ = ("_began_waiting", "ended", "entries", "limits", "order", "timers")

    def __init__(
        self,
        entries: Entries[B],
        limits: LedgerLimits[B],
        order: KeyOrder[B] | None,
        began_waiting: Callable[[int], None],
    ) -> None:
        self.entries = entries
        self.limits = limits
        self.order = order
        self.timers = Timers()
        self.ended: list[int] | None = None
        self._began_waiting = began_waiting

    # --- from the record

    def slots(
        self,
        slots: Iterable[SlotView],
        store_ms: int,
        now_ms: int,
        known: dict[int, Entry[B]],
    ) -> None:
        """Take over leases and attempts from a record. `known`: the entries from before the read.
        An unchanged lease keeps its entry, which makes re-reading a record with many leases fast.
        """
        entries, plain, timers = self.entries, self.order is None, self.timers
        later_ms = now_ms - store_ms
        for slot in slots:
            offset = slot.offset
            old = known.get(offset)
            if old is not None and plain and unchanged(old, slot):
                entries.by_offset[offset] = known.pop(offset)
                entries.bytes += old.size
                entries.leased += 1
                old.due_ms = old.when_ms + later_ms
                timers.add(old.due_ms, offset)
                continue
            entry: Entry[B] = Entry(None)
            entry.attempt, entry.fence, entry.first_s = slot.attempt, slot.fence, slot.first_s
            entry.rollback_epoch, entry.gone = slot.rollback_epoch, old is not None and old.gone
            entries.add(offset, entry)
            self.hold(offset, entry, slot.state, slot.when_ms, store_ms, now_ms)

    def keep_lease(
        self, offset: int, fence: int, rollback_epoch: int, attempt: int, due_ms: int
    ) -> None:
        """Keep a lease that the store lost until its holder's deadline (I3, I4)."""
        entries = self.entries
        entry = entries.by_offset.get(offset)
        if entry is None:
            entry = Entry(None)
            entries.add(offset, entry)
        entries.uncount(entry)
        entry.status = EntryStatus.LEASED
        entries.leased += 1
        entries.renew(entry, fence, rollback_epoch, attempt)
        entry.due_ms = due_ms
        self.timers.add(due_ms, offset)

    # --- changes of status

    def decided(
        self,
        offset: int,
        entry: Entry[B],
        result: OpResult,
        rollback_epoch: int,
        store_ms: int,
        now_ms: int,
    ) -> None:
        """Apply the attempts and the state that the store reported for a message."""
        self.entries.renew(entry, result.fence, rollback_epoch, result.attempt)
        entry.first_s = result.first_s
        due = result.state is State.WAITING and result.when_ms <= store_ms
        state = State.READY if due else result.state
        self.hold(offset, entry, state, result.when_ms, store_ms, now_ms)

    def seen(self, entry: Entry[B], fence: int, attempt: int) -> None:
        """Note a lease that this owner did not grant: its rollback epoch is not known here."""
        same = entry.fence == fence
        self.entries.renew(
            entry, fence, entry.rollback_epoch if same else UNKNOWN_ROLLBACK_EPOCH, attempt
        )

    def hold(
        self, offset: int, entry: Entry[B], state: State, when_ms: int, store_ms: int, now_ms: int
    ) -> None:
        """Set the status that follows from the store's state of a message."""
        entries, limits = self.entries, self.limits
        entries.uncount(entry)
        entry.status = STATUS_OF.get(state, EntryStatus.READY)
        entry.when_ms = when_ms
        entries.clock.saw(store_ms)
        if entry.status is EntryStatus.READY:
            self.make_ready(offset, entry)
        elif entry.status is EntryStatus.DEAD or entry.status is EntryStatus.MOVING:
            self.copy(offset, entry)
        elif entry.status is EntryStatus.WAITING and limits.used_up(entry):
            self.exhaust(offset, entry)
        else:
            if limits.message_ttl_ms and entry.first_s and entry.status is EntryStatus.WAITING:
                # Check it when its time is up, if that is sooner.
                when_ms = min(when_ms, limits.end_ms(entry))
            self.time(offset, entry, now_ms + when_ms - store_ms)

    def time(self, offset: int, entry: Entry[B], due_ms: int) -> None:
        """Count a message that is leased or waits, and set its timer to `due_ms`."""
        entries = self.entries
        entries.leased += entry.status is EntryStatus.LEASED
        entries.waiting += entry.status is EntryStatus.WAITING
        entry.due_ms = due_ms
        self.timers.add(due_ms, offset)
        if entry.status is EntryStatus.WAITING:
            self._began_waiting(offset)

    def copy(self, offset: int, entry: Entry[B]) -> None:
        """Ask for the copy once there is a body, or none can come any more."""
        if entry.body is not None or entry.gone:
            kind = SendDead if entry.status is EntryStatus.DEAD else SendBack
            self.entries.effects.append(kind(offset, entry.fence, entry.attempt))

    def make_ready(self, offset: int, entry: Entry[B]) -> None:
        """Make a message that nobody holds grantable, unless a limit or the order prevents it."""
        entries, order, limits = self.entries, self.order, self.limits
        entry.status = EntryStatus.READY
        if entry.gone:
            self.vanish(offset)
        elif limits.used_up(entry):
            self.exhaust(offset, entry)
        elif order is not None and not order.free(offset):
            order.follow(offset)  # if not blocked: `next_turn` when the one before it is finished
        elif entry.spilled:
            entries.effects.append(Restore(offset))
        elif entry.body is not None:
            heappush(entries.ready, offset)
        if limits.message_ttl_ms and entry.first_s and entry.status is EntryStatus.READY:
            # Perhaps no application asks for it again.
            entry.due_ms = limits.end_ms(entry) - entries.clock.skew_ms
            self.timers.add(entry.due_ms, offset)

    def exhaust(self, offset: int, entry: Entry[B]) -> None:
        """Its attempts or its time are used up: ask the store to dead-letter it. The store decides,
        because a late ack may have come first.
        """
        entry.status = EntryStatus.EXHAUSTED
        out_of_time = self.limits.out_of_time(entry)
        self.entries.effects.append(Exhausted(offset, entry.fence, out_of_time))

    def marked_dead(
        self, offset: int, result: OpResult, rollback_epoch: int, store_ms: int, now_ms: int
    ) -> bool:
        """Apply the answer to MARK_DEAD. False: the record has to be read again."""
        entries = self.entries
        entry = entries.by_offset.get(offset)
        if entry is None:
            return True
        if result.outcome is Outcome.FINISHED:
            self.finish(offset)
            entries.advance()
            return True
        if result.outcome is Outcome.LOST:
            return False
        entries.renew(entry, result.fence, rollback_epoch, result.attempt)
        if result.outcome is not Outcome.HELD:
            self.hold(offset, entry, result.state, result.when_ms, store_ms, now_ms)
            return True
        # Not now: ask again when the store says so. `hold` would ask at once.
        entries.uncount(entry)
        entry.status = STATUS_OF.get(result.state, EntryStatus.WAITING)
        entry.when_ms = result.when_ms
        self.time(offset, entry, now_ms + result.when_ms - store_ms)
        return True

    def vanish(self, offset: int) -> None:
        """Finish a message that was delivered before and that the log no longer has (compaction).

        It is finished here once the store has confirmed that nobody holds it (`Ledger.finish`).
        """
        self.entries.by_offset[offset].status = EntryStatus.GRANTING
        self.entries.effects.append(FinishRange(offset, offset + 1, Finish.VANISHED))

    def set_message_ttl(self, message_ttl_ms: int, now_ms: int) -> None:
        """Change the limit while messages wait. A message that is out of time by it ends now."""
        limits, skew_ms = self.limits, self.entries.clock.skew_ms
        limits.message_ttl_ms = message_ttl_ms
        for offset, entry in self.entries.by_offset.items() if message_ttl_ms else ():
            if entry.first_s and entry.status in (EntryStatus.READY, EntryStatus.WAITING):
                due_ms = max(limits.end_ms(entry) - skew_ms, now_ms)
                if entry.status is EntryStatus.READY or due_ms < entry.due_ms:
                    entry.due_ms = due_ms
                    self.timers.add(due_ms, offset)

    # --- the end

    def finish(self, offset: int) -> None:
        """Finish a message, and unblock the next one of its key."""
        entry = self.entries.finish(offset)
        if self.order is not None:
            self._left(self.order, offset, entry)
        if self.ended is not None:
            self.ended.append(offset)

    def _left(self, order: KeyOrder[B], offset: int, entry: Entry[B] | None) -> None:
        """Unblock the next message of this key. If this is a retry copy, first take its origin
        record out of the key queue, unless the copy never claimed it.
        """
        position = order.position(offset)
        placed = entry is not None and entry.status is not EntryStatus.CLAIMING
        if placed and position is not None and position.origin_record is not None:
            self.entries.effects.append(LeaveKeyQueue(offset, position.origin_record))
        self.next_turn(order.finished(offset))

    def next_turn(self, offset: int | None) -> None:
        """The message of its key before this one is finished: make it ready, or let it claim."""
        entry = None if offset is None else self.entries.by_offset.get(offset)
        if offset is None or entry is None:
            return
        if entry.status is EntryStatus.READY:
            self.make_ready(offset, entry)
        elif entry.status is EntryStatus.CLAIMING:
            entry.due_ms = 0
            self.entries.effects.append(Claim(offset))
