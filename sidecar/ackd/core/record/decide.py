"""One partition's record: the truth about leases, attempts and finished offsets, decided
atomically.

This is the reference for `store/ledger.lua`: the memory store runs it, the contract suite and a
differential test hold the script to it. It knows nothing about message bodies, holes in the log or
who is waiting; those are the owner's business (`ledger`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from ackd.core.ledger.bitmap import CHUNK_SHIFT, ChunkedBitmap
from ackd.core.record import copies, key_queues, maintenance
from ackd.core.record.copies import Home
from ackd.core.record.failures import Errors
from ackd.core.record.protocol import (
    Call,
    Finish,
    JournalEntry,
    Op,
    Open,
    Reply,
    Result,
    SlotView,
    Snapshot,
    Verdict,
)
from ackd.core.record.slot import Slot
from ackd.core.record.transitions import (
    LATE_PHASE,
    LOST,
    SETTLES,
    Outcome,
    Phase,
    State,
    Verb,
    step,
)
from ackd.core.store_layout import FIRST

ATTEMPT_MAX = 0xFFFF
JOURNAL_MAX = 10_000
REPAIR_WAIT_MS = 3_000
"""After a possible rollback nothing is granted before all sidecars replayed, or this has passed
(R10).
"""


@dataclass(slots=True)
class Record:
    """The record of one partition. `run` is the server run that it was last used on."""

    layout: int = FIRST
    incarnation: int = 0
    version: int = 0
    owner: str = ""
    term: int = 0
    seq: int = 0
    epoch: int = 0
    rterm: int = 0
    fence: int = 0
    fence_floor: int = 0
    watermark: int = 0
    clock_ms: int = 0
    shift_ms: int = 0
    run: str = ""
    grace_until_ms: int = 0
    repair_until_ms: int = 0
    finished: ChunkedBitmap = field(default_factory=ChunkedBitmap)
    listed: set[int] = field(default_factory=set)
    slots: dict[int, Slot] = field(default_factory=dict)
    touched: set[int] = field(default_factory=set)
    exceptions: dict[int, tuple[Finish, int]] = field(default_factory=dict)
    homes: dict[int, Home] = field(default_factory=dict)
    home_count: int = 0
    parked: dict[int, list[int]] = field(default_factory=dict)
    closing: deque[tuple[int, int]] = field(default_factory=deque)
    errors: Errors = field(default_factory=Errors)
    journal: deque[JournalEntry] = field(default_factory=deque)
    journal_next: int = 1

    # --- opening

    @classmethod
    def create(cls, request: Open, start: int, run: str, written: int = FIRST) -> Record:
        """A new record that starts at `start`, in the layout `written`."""
        return cls(written, request.incarnation, watermark=start, run=run, rterm=request.rterm)

    def open(
        self, request: Open, now_us: int, run: str, *, created: bool, written: int = FIRST
    ) -> Snapshot:
        """Take the partition (term + 1), or read it again under the same term. An older layout
        than the one to be `written` is left behind.
        """
        if request.term and request.term != self.term:
            return Snapshot(Verdict.FENCED, term=self.term, previous_owner=self.owner)
        self.layout = max(self.layout, written)
        moved = self._rejoin(request, now_us, run)
        now_ms = self._clock(now_us)
        previous = self.owner
        if not request.term:
            # Like the fence: a term that a rollback forgot must not be given to somebody else
            # again.
            self.term = max(self.term + 1, now_us // 1000)
            self.owner = request.owner
            self.seq = 0
        self.seq += 1
        self.version += 1
        return Snapshot(
            verdict=Verdict.OK,
            created=created,
            moved=moved,
            previous_owner=previous,
            now_ms=now_ms,
            version=self.version,
            incarnation=self.incarnation,
            term=self.term,
            seq=self.seq,
            epoch=self.epoch,
            rterm=self.rterm,
            watermark=self.watermark,
            fence=self.fence,
            journal_next=self.journal_next,
            slots=[
                SlotView(o, s.state, s.attempt, s.releases, s.fence, s.rterm, s.when_ms, s.first_s)
                for o, s in sorted(self.slots.items())
                if o >= self.watermark and o not in self.finished
            ],
            chunks={i: bytes(c) for i, c in sorted(self.finished.chunks.items())},
            lost_chunks=sorted(self.listed - self.finished.chunks.keys()),
            lost_homes=self.homes_lost,
            parked=sorted(self.parked),
        )

    def _rejoin(self, request: Open, now_us: int, run: str) -> bool:
        """A change of the server run is a possible rollback: new term for tokens, grace, wait for
        replays.
        """
        if self.run == run:
            return False
        self.run = run
        self.rterm = request.rterm
        self.shift_ms = max(self.shift_ms + request.jump_ms, 0)
        now_ms = self._clock(now_us)
        self.grace_until_ms = now_ms + request.grace_ms
        self.repair_until_ms = now_ms + REPAIR_WAIT_MS
        return True

    def _clock(self, now_us: int) -> int:
        """The logical clock: it never goes back, and a measured jump ahead is taken out (R23)."""
        self.clock_ms = max(self.clock_ms, now_us // 1000 - self.shift_ms)
        return self.clock_ms

    # --- calls

    def apply(self, call: Call, now_us: int, run: str) -> Reply:
        """Decide every item in order. Anything but OK means that nothing was changed."""
        verdict = self._admit(call, run)
        if verdict is not Verdict.OK:
            return Reply(verdict, term=self.term, version=self.version)
        now_ms = self._clock(now_us)
        if call.term:
            self.seq = call.seq
        fences = Fences(self, now_us)
        results = [self._decide(op, now_ms, fences) for op in call.ops]
        maintenance.tidy(self)
        self.errors.decided(call, results)
        if call.ops:
            self.version += 1
        journal = self._journal(call, results)
        return Reply(
            verdict=Verdict.OK,
            now_ms=now_ms,
            version=self.version,
            rterm=self.rterm,
            epoch=self.epoch,
            term=self.term,
            watermark=self.watermark,
            journal_next=self.journal_next,
            results=results,
            journal=journal,
            said=bool(self.errors),
        )

    def _admit(self, call: Call, run: str) -> Verdict:
        if call.incarnation and call.incarnation != self.incarnation:
            return Verdict.ABSENT
        if call.term and call.term != self.term:
            return Verdict.FENCED
        if call.term and call.seq <= self.seq:
            return Verdict.STALE
        if self.run != run:
            return Verdict.MOVED
        lost = self.listed - self.finished.chunks.keys()
        if lost and any(_touches(op, lost) for op in call.ops):
            return Verdict.CHUNK_LOST
        if self.homes_lost and any(op.verb in _WITH_HOMES for op in call.ops):
            return Verdict.CHUNK_LOST
        return Verdict.OK

    @property
    def homes_lost(self) -> bool:
        """The head counts homes and there are none (R14)."""
        return self.home_count > 0 and not self.homes

    def _decide(self, op: Op, now_ms: int, fences: Fences) -> Result:
        match op.verb:
            case Verb.LOOK | Verb.CLAIM | Verb.CLOSE:
                return copies.VERBS[op.verb](self, op, now_ms)
            case Verb.HEAD:
                return key_queues.head(self, op.arg)
            case verb if verb in maintenance.VERBS:
                return copies.DONE._replace(when_ms=maintenance.VERBS[verb](self, op, now_ms))
            case _:
                return self._transition(op, now_ms, fences)

    # --- the table's verbs

    def phase(self, offset: int, now_ms: int) -> Phase:
        """How an offset looks at `now_ms`."""
        if self.over(offset):
            return Phase.GONE if offset in self.exceptions else Phase.ACKED
        slot = self.slots.get(offset)
        return Phase.READY if slot is None else slot.phase(now_ms)

    def slot(self, offset: int) -> Slot:
        """What the record knows of an offset besides its bit."""
        return self.slots.get(offset) or Slot()

    def _transition(self, op: Op, now_ms: int, fences: Fences) -> Result:
        phase = self.phase(op.offset, now_ms)
        if op.verb in SETTLES and copies.decides(self, op, phase, now_ms):
            return copies.settle(self, op, now_ms, fences)
        slot = self.slot(op.offset)
        row = step(phase, op.verb)
        if phase is Phase.READY and op.verb is Verb.SEND and not self._follows(op, now_ms):
            row = LOST
        if op.verb is Verb.BURY and phase not in _OVER:
            if op.fence != slot.fence:
                row = LOST
            elif slot.attempt < op.attempt:
                return slot.result(Outcome.REFUSED)
        elif op.verb not in _OWNERS and phase not in _OVER:
            phase = self.seen_by(op, phase, slot, now_ms)
            # It went on without this lease, which does not mean that it is finished.
            stale = phase is Phase.GONE and op.verb is Verb.FINISH
            row = LOST if stale else step(phase, op.verb)
            if phase is Phase.EXPIRED and copies.perhaps_claimed(self, op, now_ms):
                return slot.result(Outcome.UNREPAIRED)
        held_ms = self._held(op, phase, slot, now_ms) if row is not LOST else 0
        if held_ms:
            return slot.result(Outcome.HELD, when_ms=held_ms)
        late = phase is LATE_PHASE and op.verb in SETTLES and row.changes
        if row.changes and row.state is State.FINISHED:
            if op.verb is Verb.FINISH:
                self.exceptions[op.offset] = (Finish(op.arg), now_ms)
            else:
                slot = copies.acked(self, op, slot, now_ms)
            self.finish(op.offset)
            self.errors.over_by(op)
        elif row.changes:
            self.slots[op.offset] = slot
            self.change(op, row.state, slot, now_ms, fences)
        over = row.state is State.FINISHED or self.over(op.offset)
        return slot.result(row.outcome, state=State.FINISHED if over else slot.state, late=late)

    def _held(self, op: Op, phase: Phase, slot: Slot, now_ms: int) -> int:
        """When the owner may ask for this again; 0 = now."""
        if op.verb in (Verb.GRANT, Verb.BURY):
            return self.held_until(phase, slot, now_ms, waiting=op.verb is Verb.GRANT)
        if op.verb is Verb.SEND and phase not in _SETTLED and now_ms < self.repair_until_ms:
            return self.repair_until_ms
        return 0

    def _follows(self, op: Op, now_ms: int) -> bool:
        """What was never handed out is sent back only behind others of its key (R19)."""
        return op.arg in self.parked or (op.arg > 0 and now_ms < self.repair_until_ms)

    def over(self, offset: int) -> bool:
        """Finished, in whatever way."""
        return offset < self.watermark or offset in self.finished

    def held_until(self, phase: Phase, slot: Slot, now_ms: int, *, waiting: bool = True) -> int:
        """When a grant may be asked for again; 0 = now. After an outage, expiry waits for the
        grace. `waiting` False: a delay holds nothing up.
        """
        if phase in _SETTLED:
            return 0
        if now_ms < self.repair_until_ms:
            return self.repair_until_ms
        if phase is Phase.EXPIRED and now_ms < self.grace_until_ms:
            return self.grace_until_ms
        delayed = waiting and phase is Phase.WAITING and slot.when_ms > now_ms
        return slot.when_ms if phase is Phase.LEASED or delayed else 0

    def seen_by(self, op: Op, phase: Phase, slot: Slot, now_ms: int) -> Phase:
        """The phase as this token sees it; GONE = the message went on without it."""
        if op.fence == slot.fence and op.rterm == slot.rterm:
            return phase
        # The store may have forgotten this token's grant in a rollback (R9): then it has the larger
        # fence, and what the slot shows was not granted after the last possible rollback.
        since = phase is Phase.LEASED and slot.rterm == self.rterm and op.rterm != self.rterm
        newer = op.fence > slot.fence and op.fence > self.fence_floor
        if newer and not since and phase is not Phase.DEAD:
            return Phase.FORGOTTEN if now_ms < self.repair_until_ms else Phase.EXPIRED
        return Phase.GONE

    def change(self, op: Op, state: State, slot: Slot, now_ms: int, fences: Fences) -> None:
        """Write a row of the table that does not finish into a slot."""
        match op.verb:
            case Verb.GRANT:
                slot.attempt = min(slot.attempt + 1, ATTEMPT_MAX)
                slot.fence, slot.rterm = fences.of(op.group), self.rterm
                slot.first_s = slot.first_s or now_ms // 1000
                slot.when_ms = now_ms + op.arg
            case Verb.EXTEND:
                # A repair (not counted) gives a forgotten lease back, never shortens a known one.
                known_ms = slot.when_ms if op.fence == slot.fence and not op.counted else 0
                slot.fence, slot.rterm, slot.attempt = op.fence, op.rterm, op.attempt
                slot.when_ms = max(known_ms, now_ms + op.arg)
                slot.first_s = slot.first_s or now_ms // 1000
                self.fence = max(self.fence, op.fence)
            case Verb.RETRY:
                slot.when_ms = now_ms + op.arg
                if not op.counted:
                    slot.uncount()
            case Verb.RELEASE:
                slot.when_ms = now_ms
                slot.uncount()
            case Verb.SEND:
                copies.send(self, op, slot, fences)
            case Verb.PLACE:
                slot.fence, slot.rterm, slot.attempt = op.fence, self.rterm, op.attempt
                slot.when_ms = op.arg or now_ms
                slot.first_s = op.group or now_ms // 1000
                self.fence = max(self.fence, op.fence)
            case _:
                slot.when_ms = 0
        slot.state = state

    def finish(self, offset: int) -> None:
        """Set the bit of one offset."""
        self.finished.add(offset)
        self.listed.add(offset >> CHUNK_SHIFT)
        self.touched.add(offset >> maintenance.SLOT_CHUNK_SHIFT)

    # --- what the owner is told of others' settles (R16)

    def _journal(self, call: Call, results: list[Result]) -> list[JournalEntry] | None:
        if call.term:
            first = self.journal_next - len(self.journal)
            if not call.journal_from:
                return []
            if not first <= call.journal_from <= self.journal_next:
                return None
            return list(self.journal)[call.journal_from - first :]
        for op, result in zip(call.ops, results, strict=True):
            if result.outcome in _JOURNALED:
                entry = JournalEntry(
                    op.offset, result.outcome, result.when_ms, result.fence, result.attempt
                )
            elif op.verb in maintenance.REPEATS and result.when_ms:
                # An ack that the owner may never have heard of: the rollback took its entry too.
                entry = JournalEntry(op.offset, Outcome.ACKED, 0, 0, 0)
            else:
                continue
            self.journal.append(entry)
            self.journal_next += 1
        while len(self.journal) > JOURNAL_MAX:
            self.journal.popleft()
        return []


class Fences:
    """Fencing numbers of one call: one per receive, each larger than all before (R9)."""

    def __init__(self, record: Record, now_us: int) -> None:
        self._record = record
        self._now_us = now_us
        self._of: dict[int, int] = {}

    def of(self, group: int) -> int:
        """The fence of a receive."""
        fence = self._of.get(group)
        if fence is None:
            fence = self._of[group] = max(self._record.fence + 1, self._now_us)
            self._record.fence = fence
        return fence


def _touches(op: Op, lost: set[int]) -> bool:
    """Whether the item needs a lost chunk; a replay makes it again instead (R14)."""
    if op.verb in (*maintenance.REPEATS, Verb.CLAIM, Verb.CLOSE, Verb.HEAD):
        return False
    first = op.offset >> CHUNK_SHIFT
    last = max(first, (op.arg - 1) >> CHUNK_SHIFT) if op.verb is Verb.HOLE else first
    return any(first <= index <= last for index in lost)


_OVER = (Phase.ACKED, Phase.GONE)
_SETTLED = (Phase.ACKED, Phase.GONE, Phase.DEAD, Phase.SENDING)
_OWNERS = (Verb.GRANT, Verb.SEND, Verb.PLACE)
"""These name no lease."""
_WITH_HOMES = (Verb.SEND, Verb.CLAIM, Verb.CLOSE, Verb.HEAD, Verb.ADVANCE, Verb.RESTORE)
_JOURNALED = frozenset(
    {Outcome.ACKED, Outcome.RETRYING, Outcome.EXTENDED, Outcome.DEAD, Outcome.RELEASED}
)
