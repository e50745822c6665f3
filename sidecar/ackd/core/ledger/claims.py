"""Copies in a retry topic, as the owner of their partition sees them (rule R2).

A carrier is not handed out before it has claimed its home record. A claim that the home confirmed
is written into the carrier's own record (PLACE), so a carrier that has a slot was claimed; only
then may the home go (CLOSE).
"""

from __future__ import annotations

from collections.abc import Iterable

from ackd.core.ledger.effects import Claim, CloseHome, FetchFrom, Unpark
from ackd.core.ledger.entries import Window
from ackd.core.ledger.entry import B, Hold
from ackd.core.record.protocol import Result
from ackd.core.record.transitions import Outcome, State

CLAIM_AGAIN_MS = 5_000
"""A home whose lease is live is asked again at least this often: it may be acked or released."""
BEHIND_AGAIN_MS = 1_000
"""A carrier that is behind another one, which is not here, asks again after this."""
IN_LINE_MS = 60_000
"""One that waits for a carrier that is here is told when that is over, and asks after this."""


class Carriers(Window[B]):
    """Adds claims, and bodies that are kept elsewhere for a while.

    `carriers`: this is a partition of a retry topic. `hearsay`: where copies were finished
    that this owner did not see, by a commit's word or before they were fetched. It is read over to
    tell the lines of their homes, which a rollback may have put back to before the claim.
    """

    def __init__(self) -> None:
        super().__init__()
        self.carriers = False
        self.hearsay = range(0)

    @property
    def buffered(self) -> int:
        """Carriers in line are not counted: the first of them may be stored behind the others, and
        a fetch that waits for them would wait for ever.
        """
        return len(self._ready) if self.carriers else super().buffered

    def _claim(self, offset: int) -> None:
        """A carrier without a slot arrived. One that is not the first of its chain asks later."""
        self.entries[offset].hold = Hold.CLAIMING
        if self.turns is None or self.turns.first(offset):
            self._effects.append(Claim(offset))
        else:
            self._claim_at(offset, self._ticked_ms + IN_LINE_MS)

    def _close_home(self, offset: int) -> None:
        """A home that stands in a line goes when its carrier is finished (`Unpark`)."""
        place = None if self.turns is None else self.turns.place(offset)
        if place is None or place.home is None:
            self._effects.append(CloseHome(offset))

    def claimed(self, offset: int, result: Result, rterm: int, store_ms: int, now_ms: int) -> None:
        """What the home said (HELD, FINISHED, REFUSED), or what PLACE or BURY made of the carrier.

        LOST: no carrier, or nothing is known of it and it was not placed: ready as it is.
        """
        entry = self.entries.get(offset)
        if entry is None or entry.hold is not Hold.CLAIMING:
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
                self._finish(offset)
                self._finish_range(offset, offset + 1, 0)
                self._advance()
            case Outcome.LOST:
                self._make_ready(offset, entry)
            case _:
                entry.fence, entry.rterm = result.fence, rterm
                entry.attempt, entry.first_s = result.attempt, result.first_s
                due = result.state is State.WAITING and result.when_ms <= store_ms
                state = State.READY if due else result.state
                self._hold(offset, entry, state, result.when_ms, store_ms, now_ms)
                self._close_home(offset)

    def not_claimed(self, offsets: Iterable[int], again_ms: int, now_ms: int) -> None:
        """No answer: ask again in `again_ms`."""
        for offset in offsets:
            entry = self.entries.get(offset)
            if entry is not None and entry.hold is Hold.CLAIMING:
                self._claim_at(offset, now_ms + again_ms)

    def _claim_at(self, offset: int, due_ms: int) -> None:
        self.entries[offset].due_ms = due_ms
        self._timers.add(due_ms, offset)
        self.waits[offset] = None

    def _were_claimed(self, offsets: Iterable[int]) -> None:
        """Who was acked was handed out, so it had its home, whatever a rollback forgot of that: its
        line has to hear that it is over, now or when it is fetched.
        """
        told = self.hearsay
        for offset in offsets:
            entry = self.entries.get(offset)
            if entry is not None and entry.hold is Hold.CLAIMING:
                entry.hold = Hold.READY
            elif entry is None and offset >= self.position:
                first = min(told.start, offset) if told else offset
                told = self.hearsay = range(first, max(told.stop, offset + 1))

    def _retell(self, body: B) -> None:
        """A copy that is over: nobody else may tell the line of its home."""
        place = self._place_of(body)
        if place is not None and place.home is not None:
            self._effects.append(Unpark(body.offset, place.home))

    # --- bodies that are kept elsewhere

    def spilled(self, offset: int, stub: B) -> None:
        """`stub` stands for the body, which can be read back."""
        self._replace(offset, stub, spilled=True)

    def restored(self, offset: int, body: B) -> None:
        """The body is here again; what is ready can be handed out."""
        entry = self.entries.get(offset)
        if entry is not None and entry.spilled:
            self._replace(offset, body, spilled=False)
            if entry.hold is Hold.READY:
                self._make_ready(offset, entry)

    def lost_bodies(self, offsets: Iterable[int]) -> None:
        """These can't be read back: they are fetched again."""
        found = [o for o in offsets if (e := self.entries.get(o)) is not None and e.spilled]
        for offset in found:
            entry = self.entries[offset]
            self.bytes -= entry.size
            entry.body, entry.size, entry.spilled = None, 0, False
            self._bodiless.add(offset)
        if found:
            self._effects.append(FetchFrom(min(found)))

    def _replace(self, offset: int, body: B, *, spilled: bool) -> None:
        entry = self.entries.get(offset)
        if entry is None or entry.body is None:
            return
        size = body.size()
        self.bytes += size - entry.size
        entry.body, entry.size, entry.spilled = body, size, spilled
