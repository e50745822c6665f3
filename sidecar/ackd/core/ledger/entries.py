"""The messages of one partition above its watermark, and how they move between their states.

What moves them (the broker, the store, the applications) is the business of `ledger`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from heapq import heappush
from typing import Generic, TypeGuard

from ackd.core.ledger.bitmap import ChunkedBitmap
from ackd.core.ledger.effects import (
    Bury,
    Claim,
    Effect,
    FinishRange,
    Restore,
    SendBack,
    SendDead,
    Unpark,
)
from ackd.core.ledger.entry import HOLD_OF, TIMED, UNKNOWN_RTERM, B, Entry, Hold
from ackd.core.ledger.offset_set import Offsets
from ackd.core.ledger.order import Place, Turns
from ackd.core.ledger.repair import unchanged
from ackd.core.ledger.timers import Timers
from ackd.core.record.protocol import Finish, SlotView
from ackd.core.record.transitions import State


class Window(Generic[B]):
    """Entries, finished offsets, what is ready, what is due.

    `lapsed`: whose leases ended at each moment, for whoever measures; it empties it. `waits`:
    offsets that began to wait, or got a body meanwhile, for whoever keeps bodies elsewhere.
    `deliveries_max`: a message that was handed out so often is given up, 0 = never. `give_up_ms`:
    so is one that was first handed out so long ago, as soon as nobody works on it; 0 = never.
    `turns`: whose turn it is of an ordered subscription, None = no order (I6).
    """

    def __init__(self) -> None:
        self.entries: dict[int, Entry[B]] = {}
        self.finished = ChunkedBitmap()
        self.watermark = 0
        self.position = 0
        self.dirty = False
        self.deliveries_max = 0
        self.give_up_ms = 0
        self.seen_ms = 0
        self.grace_until_ms = 0
        self.leased = 0
        self.waiting = 0
        self.bytes = 0
        self.lapsed: dict[int, list[int]] = {}
        self.waits: dict[int, None] = {}
        self.turns: Turns | None = None
        self._ticked_ms = 0
        self._place_of: Callable[[B], Place | None] = _nowhere
        self._bodiless = Offsets()
        self._ready: list[int] = []
        self._skew_ms = 0
        self._timers = Timers()
        self._effects: list[Effect] = []

    def slots(
        self,
        slots: Iterable[SlotView],
        store_ms: int,
        now_ms: int,
        before: dict[int, Entry[B]] | None = None,
    ) -> None:
        """Leases and attempts that a record tells of. `before`: what was known until now; a lease
        that is the same goes over from there as it is: a record with many is soon read again.
        """
        known = {} if before is None else before
        plain, later_ms, timers = self.turns is None, now_ms - store_ms, self._timers
        for slot in slots:
            offset = slot.offset
            old = known.get(offset)
            if old is not None and plain and unchanged(old, slot):
                self.entries[offset] = known.pop(offset)
                self.bytes += old.size
                self.leased += 1
                old.due_ms = old.when_ms + later_ms
                timers.add(old.due_ms, offset)
                continue
            entry: Entry[B] = Entry(None)
            entry.attempt, entry.fence, entry.first_s = slot.attempt, slot.fence, slot.first_s
            entry.rterm, entry.gone = slot.rterm, old is not None and old.gone
            self.entries[offset] = entry
            self._bodiless.add(offset)
            self._hold(offset, entry, slot.state, slot.when_ms, store_ms, now_ms)

    def _keep_lease(self, offset: int, fence: int, rterm: int, attempt: int, due_ms: int) -> None:
        """A lease that the store forgot is a lease until its holder's deadline (I3, I4)."""
        entry = self.entries.get(offset)
        if entry is None:
            entry = self.entries[offset] = Entry(None)
            self._bodiless.add(offset)
        self._let_go(entry)
        entry.hold = Hold.LEASED
        self.leased += 1
        entry.fence, entry.rterm, entry.attempt, entry.due_ms = fence, rterm, attempt, due_ms
        self._timers.add(due_ms, offset)

    def _hold(
        self, offset: int, entry: Entry[B], state: State, when_ms: int, store_ms: int, now_ms: int
    ) -> None:
        """Set where a message is, from the store's state of it."""
        self._let_go(entry)
        entry.hold = HOLD_OF.get(state, Hold.READY)
        entry.when_ms = when_ms
        self.seen_ms = max(self.seen_ms, store_ms)
        if entry.hold is Hold.READY:
            self._make_ready(offset, entry)
        elif entry.hold is Hold.DEAD:
            self._send_dead(offset, entry)
        elif entry.hold is Hold.SENDING:
            self._send_back(offset, entry)
        elif entry.hold is Hold.WAITING and self._used_up(entry):
            self._bury(offset, entry)
        else:
            if self.give_up_ms and entry.first_s and entry.hold is Hold.WAITING:
                # Looked at when it is given up, if that is sooner.
                when_ms = min(when_ms, self._end_ms(entry))
            self._time(offset, entry, now_ms + when_ms - store_ms)

    def _time(self, offset: int, entry: Entry[B], due_ms: int) -> None:
        """It is leased or waits until `due_ms`."""
        self.leased += entry.hold is Hold.LEASED
        self.waiting += entry.hold is Hold.WAITING
        entry.due_ms = due_ms
        self._timers.add(due_ms, offset)
        if entry.hold is Hold.WAITING:
            self.waits[offset] = None

    def _send_dead(self, offset: int, entry: Entry[B]) -> None:
        """Give the copy out as soon as there is a body, or certainly none will come."""
        if entry.body is not None or entry.gone:
            self._effects.append(SendDead(offset, entry.fence, entry.attempt))

    def _send_back(self, offset: int, entry: Entry[B]) -> None:
        if entry.body is not None or entry.gone:
            self._effects.append(SendBack(offset, entry.fence, entry.attempt))

    def _used_up(self, entry: Entry[B]) -> bool:
        return 0 < self.deliveries_max <= entry.attempt or self.out_of_time(entry)

    def give_up_after(self, give_up_ms: int, now_ms: int) -> None:
        """Set it while messages wait: who is out of time by it goes now."""
        self.give_up_ms = give_up_ms
        for offset, entry in self.entries.items() if give_up_ms else ():
            if entry.first_s and entry.hold in (Hold.READY, Hold.WAITING):
                due_ms = max(self._end_ms(entry) - self._skew_ms, now_ms)
                if entry.hold is Hold.READY or due_ms < entry.due_ms:
                    entry.due_ms = due_ms
                    self._timers.add(due_ms, offset)

    def _end_ms(self, entry: Entry[B]) -> int:
        """When it is given up (store's clock). `first_s` is cut to seconds: never too early."""
        return entry.first_s * 1000 + 999 + self.give_up_ms

    def out_of_time(self, entry: Entry[B]) -> bool:
        """It was first handed out so long ago that it is given up."""
        return self.give_up_ms > 0 and entry.first_s > 0 and self._end_ms(entry) <= self.seen_ms

    def _bury(self, offset: int, entry: Entry[B]) -> None:
        """Its attempts or its time are used up. The store decides: a late ack may have been
        first.
        """
        entry.hold = Hold.BURYING
        self._effects.append(Bury(offset, entry.fence, self.out_of_time(entry)))

    @staticmethod
    def _see(entry: Entry[B], fence: int) -> None:
        """A lease that this owner did not grant: its rollback term is not known here."""
        if entry.fence != fence:
            entry.fence, entry.rterm = fence, UNKNOWN_RTERM

    def _let_go(self, entry: Entry[B]) -> None:
        if entry.hold is Hold.LEASED:
            self.leased -= 1
        elif entry.hold is Hold.WAITING:
            self.waiting -= 1

    def _make_ready(self, offset: int, entry: Entry[B]) -> None:
        entry.hold = Hold.READY
        if entry.gone:
            self._vanish(offset)
        elif self._used_up(entry):
            self._bury(offset, entry)
        elif self.turns is not None and not self.turns.free(offset):
            self.turns.follow(offset)  # else it comes again when the one before it is over
        elif entry.spilled:
            self._effects.append(Restore(offset))
        elif entry.body is not None:
            heappush(self._ready, offset)
        if self.give_up_ms and entry.first_s and entry.hold is Hold.READY:
            # It may be that nobody asks for it any more.
            entry.due_ms = self._end_ms(entry) - self._skew_ms
            self._timers.add(entry.due_ms, offset)

    @property
    def ready(self) -> int:
        """At most so many can be handed out now (an upper bound: entries that changed are weeded
        out late).
        """
        if self.turns is not None and self._ready and self._ready[0] >= self._known_to():
            return 0
        return len(self._ready)

    # --- in order (I6)

    @property
    def buffered(self) -> int:
        """As `ready`, with what waits for an earlier one of its chain: fetched, not handed out."""
        return len(self._ready) + (0 if self.turns is None else self.turns.behind)

    @property
    def must_fetch(self) -> bool:
        """Nothing of what is here may go before something below it was fetched (again)."""
        return self.turns is not None and bool(self._ready) and self._ready[0] >= self.position

    def keep_order(self, place_of: Callable[[B], Place | None]) -> None:
        """Hand out in the order of chains, from the start; `place_of` is asked once a message."""
        self._place_of, self.turns = place_of, Turns()

    def key(self, offset: int) -> int:
        """The key of a message as the store knows it, 0 = none."""
        place = None if self.turns is None else self.turns.place(offset)
        return place.chain if place is not None and isinstance(place.chain, int) else 0

    @property
    def parked(self) -> Collection[Hashable]:
        """Keys that may be parked; who is not is found out when one of its messages comes."""
        return () if self.turns is None else self.turns.parked.keys()

    def blocked_by(self, offset: int) -> int | None:
        """The earlier message that this one waits for; itself if it has to follow a parked key."""
        if self.turns is None:
            return None
        before = self.turns.before(offset)
        return offset if before is None and not self.turns.free(offset) else before

    def over(self, offset: int) -> bool:
        """It is finished, as far as this owner knows."""
        return offset < self.watermark or offset in self.finished

    def _line_up(self, turns: Turns, body: B) -> None:
        place = self._place_of(body)
        if place is not None:
            turns.arrived(body.offset, place)

    def _turns_again(self, before: Mapping[int, Entry[B]], parked: Collection[int]) -> None:
        """The record was read again: the places that are known, before anything is made ready."""
        turns = self.turns
        if turns is None:
            return
        self.turns = Turns()
        self.turns.parked = dict.fromkeys(parked)
        for offset, entry in self.entries.items():
            if entry.gone:
                self.turns.gone(offset, turns.place(offset))
        for offset, entry in before.items():
            place = None if entry.body is None else turns.place(offset)
            if place is not None and not self.over(offset):
                self.turns.arrived(offset, place)
            elif place is not None and place.home is not None:
                self._effects.append(Unpark(offset, place.home))

    def _known_to(self) -> int:
        """All that is unfinished below this offset was seen; above it, one may have to wait."""
        return self.position if self.turns is None else self.turns.end(self.position)

    def _next_turn(self, offset: int | None) -> None:
        """The one before it of its chain is over."""
        entry = None if offset is None else self.entries.get(offset)
        if offset is None or entry is None:
            return
        if entry.hold is Hold.READY:
            self._make_ready(offset, entry)
        elif entry.hold is Hold.CLAIMING:
            entry.due_ms = 0
            self._effects.append(Claim(offset))

    def _over(self, turns: Turns, offset: int, entry: Entry[B] | None) -> None:
        """Whoever waited for it may go. A carrier that was never claimed is told nobody of."""
        place = turns.place(offset)
        placed = entry is not None and entry.hold is not Hold.CLAIMING
        if placed and place is not None and place.home is not None:
            self._effects.append(Unpark(offset, place.home))
        self._next_turn(turns.finished(offset))

    def _finish_range(self, start: int, end: int, reason: int) -> None:
        if start < end:
            self.finished.add_range(start, end)
            self._effects.append(FinishRange(start, end, reason))

    def _vanish(self, offset: int) -> None:
        """A message that was handed out before, whose record compaction has removed.

        It is finished once the store has said that nobody holds it (`vanished`).
        """
        self.entries[offset].hold = Hold.GRANTING
        self._effects.append(FinishRange(offset, offset + 1, Finish.VANISHED))

    def vanished(self, offset: int) -> None:
        """The store finished a message that the log does not have any more."""
        self._finish(offset)
        self._advance()

    def _finish(self, offset: int) -> None:
        self.finished.add(offset)
        entry = self.entries.pop(offset, None)
        if entry is not None:
            if entry.body is None:
                self._bodiless.discard(offset)
            if entry.hold is Hold.LEASED:  # as nearly always
                self.leased -= 1
            else:
                self._let_go(entry)
            self.bytes -= entry.size
        if self.turns is not None:
            self._over(self.turns, offset, entry)

    def _advance(self) -> None:
        # Bits beyond the position are true finishes of earlier fetches, so it may pass over it.
        if self.watermark in self.finished:
            self.watermark = self.finished.first_clear(self.watermark)

    # --- time

    def tick(self, now_ms: int) -> int:
        """Leases that ended and waits that are over become ready, carriers claim again. Returns how
        many.

        Before `grace_until_ms` no lease ends: the store was away, and its holder may have been told
        503 (R23).
        """
        woken, self._ticked_ms = 0, now_ms
        for due_ms, offset in self._timers.passed(now_ms):
            entry = self.entries.get(offset)
            if not self._waits(entry, due_ms):
                continue
            if entry.hold is Hold.READY:
                woken += self._end(offset, entry, now_ms)
                continue
            if entry.hold is Hold.CLAIMING:
                entry.due_ms = 0
                self._effects.append(Claim(offset))
                woken += 1
                continue
            if entry.hold is Hold.LEASED:
                if now_ms < self.grace_until_ms:
                    entry.due_ms = self.grace_until_ms
                    self._timers.add(entry.due_ms, offset)
                    continue
                self.lapsed.setdefault(due_ms, []).append(offset)
            self._let_go(entry)
            self._make_ready(offset, entry)
            woken += 1
        return woken

    def newly_due_ms(self) -> int | None:
        """The earliest moment that came up since this was last asked."""
        return self._timers.news()

    def next_due_ms(self) -> int | None:
        """When `tick` has something to do next. Each offset that is over is passed once."""
        entries, timers = self.entries, self._timers
        while (first := timers.first()) is not None:
            due_ms, offsets = first
            for offset in offsets:
                if (entry := entries.get(offset)) is not None and self._waits(entry, due_ms):
                    return due_ms
            timers.drop_first()
        return None

    def _end(self, offset: int, entry: Entry[B], now_ms: int) -> bool:
        """Nobody has asked for it in its time; whether that is over."""
        self.seen_ms = max(self.seen_ms, now_ms + self._skew_ms)
        if self.out_of_time(entry):
            self._bury(offset, entry)
            return True
        entry.due_ms = now_ms + max(self._end_ms(entry) - self.seen_ms, 1)
        self._timers.add(entry.due_ms, offset)
        return False

    def _waits(self, entry: Entry[B] | None, due_ms: int) -> TypeGuard[Entry[B]]:
        """It is leased, delayed or kept until just then (a timer that was overtaken is not taken
        back).
        """
        if entry is None or entry.due_ms != due_ms:
            return False
        return entry.hold in TIMED or (self.give_up_ms > 0 and entry.hold is Hold.READY)


def _nowhere(_: object) -> None:
    """No order."""
