"""The owner's view of one partition: what is fetched, ready, leased, waiting, finished.

The record in the store is the truth about leases and finished offsets; this is the cache that
decides what to ask the store for. It alone knows the log: bodies, holes (rule R7), where fetching
stands.

Every method is an event; what has to be done comes out of `drain()`. `now_ms` is the owner's
monotonic clock. A store time is translated with the pair (now_ms, store_ms) of the reply that
brought it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush

from ackd.core.ledger.bitmap import ChunkedBitmap
from ackd.core.ledger.effects import Effect, FetchFrom
from ackd.core.ledger.entry import HOLD_OF, STATE_AFTER, B, Entry, Hold
from ackd.core.ledger.offset_set import Offsets
from ackd.core.ledger.repair import Before, Repair, compare
from ackd.core.ledger.send_back import Rules, SendingBack
from ackd.core.ledger.timers import Timers
from ackd.core.record.protocol import Finish, JournalEntry, Result, Snapshot
from ackd.core.record.transitions import Outcome, State

SKIP_MIN_OFFSETS = 1_000
"""A finished stretch at least this long is skipped by a new fetch; a shorter one is read over."""


class Ledger(SendingBack[B]):
    """One partition. `watermark` is the smallest unfinished offset, `confirmed` what the store has
    of it. `rules`, `deliveries_max` and `carriers` may be set at any time.
    """

    def __init__(
        self, rules: Rules | None = None, deliveries_max: int = 0, *, carriers: bool = False
    ) -> None:
        super().__init__()
        self.rules, self.deliveries_max, self.carriers = rules, deliveries_max, carriers
        self.confirmed = 0
        self.session = 0
        self.opened_epoch = -1
        self._shared = (0, 0, 0, 0)

    # --- from the store: the whole record

    def opened(self, snapshot: Snapshot, now_ms: int) -> Repair:
        """Take over what the store says; bodies that are held stay, if their offset is unfinished.

        If this ledger was open before, in the same epoch, then what the store had confirmed to it
        and does not have any more (rollback, R9, R10) is merged back: the answer says how.
        """
        before = Before(self.entries, self.finished, self.confirmed)
        same = self.opened_epoch == snapshot.epoch
        self.opened_epoch = snapshot.epoch
        self.entries, self._bodiless, self._ready, self._timers = {}, Offsets(), [], Timers()
        self.leased = self.waiting = self.bytes = 0
        self._asked.clear()
        self._long.clear()
        self._skew_ms = snapshot.now_ms - now_ms
        self.seen_ms = snapshot.now_ms
        self.watermark = self.confirmed = snapshot.watermark
        self.finished = ChunkedBitmap()
        for index, data in snapshot.chunks.items():
            self.finished.load(index, data)
        if not same or snapshot.created:  # no copy of before belongs to a record made anew
            self.sent_before.clear()
        self.slots(snapshot.slots, snapshot.now_ms, now_ms, before.entries)
        self._ticked_ms = now_ms
        self._turns_again(before.entries, snapshot.parked)
        repair = self._merge(before) if same else Repair([], 0, [], [])
        repair = repair._replace(homes=self._homes_again(snapshot.now_ms, now_ms))
        self._put_off_again(before.entries)
        for offset, old in before.entries.items():
            if old.body is not None and offset >= self.watermark and offset not in self.finished:
                self._arrived(offset, old.body, old)
        self.dirty = False
        self._advance()
        self._fetch_again()
        return repair

    def _fetch_again(self) -> None:
        """What was passed and is unfinished again, without a body here, has to be fetched anew."""
        passed = self._bodiless.between(self.watermark, self.position)
        lacking = next((o for o in passed if not self.entries[o].gone), self.position)
        if self._unknown():
            offset = self.finished.first_clear(self.watermark)
            while offset < lacking and offset in self.entries:
                offset = self.finished.first_clear(offset + 1)
            lacking = min(lacking, offset)
        if lacking < self.position:
            self._effects.append(FetchFrom(lacking))

    def _unknown(self) -> bool:
        """Whether an offset was passed that is neither finished nor an entry (counting tells, so
        that nobody walks over 100,000 open ones at each re-read).
        """
        span = max(self.position - self.watermark, 0)
        known = sum(map(self.position.__gt__, self.entries))
        return known + self.finished.count_between(self.watermark, self.position) != span

    def _merge(self, before: Before[B]) -> Repair:
        # What was sent back is not merely finished: see `_homes_again`.
        repair = compare(before, self.entries, self.finished, self.watermark, self.sent_before)
        for offset in repair.finished:
            self._finish(offset)
        for lease in repair.leases:
            self._keep_lease(*lease)
        if repair.watermark:
            self.watermark = repair.watermark
            for offset in [o for o in self.entries if o < repair.watermark]:
                self._finish(offset)
        return repair

    def known_end(self) -> int:
        """Nothing is known of this offset and of all above it, as far as the record says."""
        highest = self.finished.highest()
        seen = [self.watermark, *(each + 1 for each in self.entries)]
        return max(seen if highest is None else [*seen, highest + 1])

    # --- from the broker

    def fetching(self, session: int, offset: int) -> None:
        """A new fetch session starts at `offset`; records of earlier ones don't count any more."""
        self.session = session
        self.position = offset

    def fetched(self, session: int, records: Sequence[B]) -> int:
        """Records of the current session, in offset order. Returns how many became ready."""
        if session != self.session:
            return 0
        before = len(self._ready)
        finished = self.finished
        new = bool(records) and finished.empty(records[0].offset, records[-1].offset + 1)
        for record in records:
            offset = record.offset
            if offset < self.position:
                continue
            if offset > self.position:
                self._hole(self.position, offset)
            self.position = offset + 1
            if offset >= self.watermark and (new or offset not in finished):
                self._arrived(offset, record)
            elif offset in self.hearsay:
                self._retell(record)
        self._skip()
        return len(self._ready) - before

    def end_reached(self, session: int, offset: int) -> None:
        """Nothing more below `offset`: what was not seen of it is a hole (a transaction marker,
        say).
        """
        if session == self.session and offset > self.position:
            self._hole(self.position, offset)
            self.position = offset

    def _arrived(self, offset: int, record: B, before: Entry[B] | None = None) -> None:
        """A body is there, fetched or kept from `before` the record was read again."""
        if self.turns is not None:
            self._line_up(self.turns, record)
        entry = self.entries.get(offset)
        if entry is None:
            entry = self.entries[offset] = Entry(record)
            entry.spilled = before is not None and before.spilled
            self.bytes += entry.size
            if self.carriers:
                self._claim(offset)
            elif entry.spilled or self.turns is not None:
                self._make_ready(offset, entry)
            else:
                heappush(self._ready, offset)
        elif entry.body is None:
            self._bodiless.discard(offset)
            entry.body, entry.size = record, record.size()
            entry.spilled = before is not None and before.spilled
            self.bytes += entry.size
            if entry.hold is Hold.READY:
                self._make_ready(offset, entry)
            elif entry.hold is Hold.DEAD:
                self._send_dead(offset, entry)
            elif entry.hold is Hold.SENDING:
                self._send_back(offset, entry)
            elif entry.hold is Hold.WAITING:
                self.waits[offset] = None
            if self.carriers and before is None and entry.hold is not Hold.CLAIMING:
                self._close_home(offset)

    def expired(self, log_start: int) -> int:
        """Retention removed all below `log_start`; bodies that are held can still be handed out.

        Returns how many unfinished messages are lost by it.
        """
        start = max(self.position, self.watermark)
        if start >= log_start:
            return 0
        known = sum(
            min(end, log_start) - first
            for first, end in self.finished.ranges(start)
            if first < log_start
        )
        self._hole(start, log_start, Finish.EXPIRED)
        self.position = log_start
        return log_start - start - known

    def _hole(self, start: int, end: int, reason: int = 0) -> None:
        """The log does not have [start, end). A lease in it is kept until it ends (rule R7).

        At or above the position only messages without a body are known: leases of earlier owners.
        """
        start = max(start, self.watermark)
        for offset in self._bodiless.between(start, end):
            self._finish_range(start, offset, reason)
            start = offset + 1
            entry = self.entries[offset]
            entry.gone = True
            if self.turns is not None:
                self.turns.gone(offset, None)
            if entry.hold is Hold.READY:
                self._vanish(offset)
            elif entry.hold is Hold.DEAD:
                self._send_dead(offset, entry)
            elif entry.hold is Hold.SENDING:
                self._send_back(offset, entry)
        self._finish_range(start, end, reason)
        self._advance()

    def _skip(self) -> None:
        """Don't fetch a long finished stretch again."""
        if self.position < self.hearsay.stop:
            return
        following = self.finished.first_clear(self.position)
        if following - self.position >= SKIP_MIN_OFFSETS:
            self._effects.append(FetchFrom(following))

    # --- handing out

    def take(self, most: int, bytes_max: int) -> list[int]:
        """Choose messages to grant, smallest offset first. The first one is given whatever its
        size.
        """
        taken: list[int] = []
        total, turns, known_to = 0, self.turns, self._known_to()
        while self._ready and len(taken) < most:
            offset = self._ready[0]
            entry = self.entries.get(offset)
            if entry is None or entry.hold is not Hold.READY or entry.body is None or entry.spilled:
                heappop(self._ready)
                continue
            if self.give_up_ms and self.out_of_time(entry):
                self._bury(heappop(self._ready), entry)
                continue
            if turns is not None:
                if offset >= known_to:
                    break
                if not turns.free(offset):
                    heappop(self._ready)
                    continue
            total += entry.size
            if taken and total > bytes_max:
                break
            entry.hold = Hold.GRANTING
            taken.append(heappop(self._ready))
        return taken

    def granted(
        self, offset: int, result: Result, rterm: int, store_ms: int, now_ms: int
    ) -> Entry[B] | None:
        """The store's answer to a grant. Returns the entry if it is leased now.

        A lease counts even if the record was read again while the request waited to be sent.
        """
        entry = self.entries.get(offset)
        granted = result.outcome is Outcome.GRANTED
        if entry is None or (entry.hold is not Hold.GRANTING and not granted):
            return None
        match result.outcome:
            case Outcome.GRANTED:
                if entry.hold is not Hold.GRANTING:
                    self._let_go(entry)
                entry.hold = Hold.LEASED
                self.leased += 1
                if result.fence != self._shared[0] or result.when_ms != self._shared[1]:
                    due_ms = now_ms + result.when_ms - store_ms
                    self._shared = (result.fence, result.when_ms, due_ms, result.first_s)
                # Leases of one receive share their numbers: 100,000 open ones take 13 MB less.
                entry.fence, entry.when_ms, entry.due_ms, first_s = self._shared
                entry.first_s = first_s if first_s == result.first_s else result.first_s
                entry.attempt, entry.rterm = result.attempt, rterm
                self._timers.add(entry.due_ms, offset)
                return entry
            case Outcome.HELD:
                self._see(entry, result.fence)
                entry.attempt = result.attempt
                state = result.state if result.state in HOLD_OF else State.WAITING
                self._hold(offset, entry, state, result.when_ms, store_ms, now_ms)
            case Outcome.FINISHED:
                self._finish(offset)
                self._advance()
            case _:
                self._see(entry, result.fence)
                entry.attempt = result.attempt
                self._hold(offset, entry, result.state, result.when_ms, store_ms, now_ms)
        return None

    def not_granted(self, offsets: Iterable[int]) -> None:
        """The store decided nothing: they are ready as before."""
        for offset in offsets:
            entry = self.entries.get(offset)
            if entry is not None and entry.hold is Hold.GRANTING:
                self._make_ready(offset, entry)

    # --- settles, own and others'

    def settled(
        self,
        offset: int,
        outcome: Outcome,
        fence: int,
        when_ms: int,
        store_ms: int,
        now_ms: int,
        rterm: int | None = None,
        attempt: int | None = None,
    ) -> None:
        """A settle that the store confirmed. `fence` (and `rterm`, if known) is that of the lease,
        `attempt` what counts after it.
        """
        if outcome is Outcome.ACKED or outcome is Outcome.ALREADY_ACKED:
            self.acked((offset,))
            return
        self.sent_before.settled(offset, outcome, fence, now_ms + when_ms - store_ms)
        entry = self.entries.get(offset)
        state = STATE_AFTER.get(outcome)
        if entry is None or state is None or fence < entry.fence:
            return
        if entry.hold is Hold.GRANTING or (entry.hold is Hold.DEAD and fence == entry.fence):
            return  # the grant's own answer tells; a repeated `dead` sends no second copy
        if entry.hold is Hold.SENDING:
            return  # it was settled in its home record, where its copy will see it
        self._see(entry, fence)
        if attempt is not None:
            entry.attempt = attempt
        if rterm is not None:
            entry.rterm = rterm
        self._hold(offset, entry, state, when_ms, store_ms, now_ms)

    def acked(self, offsets: Sequence[int]) -> None:
        """Acks that the store confirmed in one call: the watermark is looked for once."""
        if self.carriers:
            self._were_claimed(offsets)
        for offset in offsets:
            self._finish(offset)
        self._advance()

    def journal(self, entries: Iterable[JournalEntry], store_ms: int, now_ms: int) -> None:
        """Settles that other sidecars served (rule R16). Comes with every reply, so it also shows
        the clock.
        """
        self._skew_ms = store_ms - now_ms
        self.seen_ms = max(self.seen_ms, store_ms)
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

    def dead_sent(self, offset: int) -> None:
        """The dead-letter copy is durable and the record says finished."""
        self._finish(offset)
        self._advance()

    # --- progress

    def store_confirmed(self, watermark: int) -> None:
        """A reply's watermark: only this may be committed to the broker (R16)."""
        self.confirmed = max(self.confirmed, watermark)

    @property
    def undone(self) -> bool:
        """There is something to do."""
        return bool(self._effects)

    def drain(self) -> list[Effect]:
        """What has to be done now, in order; empty after it."""
        effects, self._effects = self._effects, []
        return effects
