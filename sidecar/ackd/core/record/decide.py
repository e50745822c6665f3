"""One partition's record: the truth about leases, attempts and finished offsets, decided
atomically.

This is the reference for `store/ledger.lua`: the memory store runs it, the contract suite and a
differential test hold the script to it. It knows nothing about message bodies, holes in the log or
who is waiting; those are the owner's business (`ledger`).
"""

from __future__ import annotations

from ackd.core.ledger.bitmap import CHUNK_SHIFT
from ackd.core.record import copies, doubt, maintenance
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
from ackd.core.record.state import SETTLED_PHASES, Fences, Record
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


# --- opening


def create(request: Open, start: int, run: str, written: int = FIRST) -> Record:
    """Make a record that starts at `start`, in the layout `written`."""
    return Record(written, request.incarnation, watermark=start, run=run, rterm=request.rterm)


def open_record(
    record: Record, request: Open, now_us: int, run: str, *, created: bool, written: int = FIRST
) -> Snapshot:
    """Take the partition (term + 1), or read it again under the same term. An older layout
    than the one to be `written` is left behind.
    """
    if request.term and request.term != record.term:
        return Snapshot(Verdict.FENCED, term=record.term, previous_owner=record.owner)
    record.layout = max(record.layout, written)
    moved = _rejoin(record, request, now_us, run)
    now_ms = record.clock(now_us)
    previous = record.owner
    if not request.term:
        # Like the fence: a term that a rollback forgot must not be given to somebody else
        # again.
        record.term = max(record.term + 1, now_us // 1000)
        record.owner = request.owner
        record.seq = 0
    record.seq += 1
    record.version += 1
    return Snapshot(
        verdict=Verdict.OK,
        created=created,
        moved=moved,
        previous_owner=previous,
        now_ms=now_ms,
        version=record.version,
        incarnation=record.incarnation,
        term=record.term,
        seq=record.seq,
        epoch=record.epoch,
        rterm=record.rterm,
        watermark=record.watermark,
        fence=record.fence,
        journal_next=record.journal_next,
        slots=[
            SlotView(o, s.state, s.attempt, s.releases, s.fence, s.rterm, s.when_ms, s.first_s)
            for o, s in sorted(record.slots.items())
            if o >= record.watermark and o not in record.finished
        ],
        chunks={i: bytes(c) for i, c in sorted(record.finished.chunks.items())},
        lost_chunks=sorted(record.listed - record.finished.chunks.keys()),
        lost_homes=record.homes_lost,
        parked=sorted(record.parked),
    )


def _rejoin(record: Record, request: Open, now_us: int, run: str) -> bool:
    """A change of the server run is a possible rollback: new term for tokens, grace, wait for
    replays.
    """
    if record.run == run:
        return False
    record.run = run
    record.rterm = request.rterm
    record.shift_ms = max(record.shift_ms + request.jump_ms, 0)
    now_ms = record.clock(now_us)
    record.grace_until_ms = now_ms + request.grace_ms
    record.repair_until_ms = now_ms + REPAIR_WAIT_MS
    return True


# --- calls


def apply(record: Record, call: Call, now_us: int, run: str) -> Reply:
    """Decide every item in order. Anything but OK means that nothing was changed."""
    verdict = _admit(record, call, run)
    if verdict is not Verdict.OK:
        return Reply(verdict, term=record.term, version=record.version)
    now_ms = record.clock(now_us)
    if call.term:
        record.seq = call.seq
    fences = Fences(record, now_us)
    results = [_decide(record, op, now_ms, fences) for op in call.ops]
    maintenance.tidy(record)
    record.errors.decided(call, results)
    if call.ops:
        record.version += 1
    journal = _journal(record, call, results)
    return Reply(
        verdict=Verdict.OK,
        now_ms=now_ms,
        version=record.version,
        rterm=record.rterm,
        epoch=record.epoch,
        term=record.term,
        watermark=record.watermark,
        journal_next=record.journal_next,
        results=results,
        journal=journal,
        said=bool(record.errors),
    )


def _admit(record: Record, call: Call, run: str) -> Verdict:
    if call.incarnation and call.incarnation != record.incarnation:
        return Verdict.ABSENT
    if call.term and call.term != record.term:
        return Verdict.FENCED
    if call.term and call.seq <= record.seq:
        return Verdict.STALE
    if record.run != run:
        return Verdict.MOVED
    lost = record.listed - record.finished.chunks.keys()
    if lost and any(_touches(op, lost) for op in call.ops):
        return Verdict.CHUNK_LOST
    if record.homes_lost and any(op.verb in _WITH_HOMES for op in call.ops):
        return Verdict.CHUNK_LOST
    return Verdict.OK


def _decide(record: Record, op: Op, now_ms: int, fences: Fences) -> Result:
    match op.verb:
        case Verb.LOOK | Verb.CLAIM | Verb.CLOSE:
            return copies.VERBS[op.verb](record, op, now_ms)
        case Verb.HEAD:
            return copies.head(record, op.arg)
        case verb if verb in maintenance.VERBS:
            return copies.DONE._replace(when_ms=maintenance.VERBS[verb](record, op, now_ms))
        case _:
            return _transition(record, op, now_ms, fences)


# --- the table's verbs


def _transition(record: Record, op: Op, now_ms: int, fences: Fences) -> Result:
    phase = record.phase(op.offset, now_ms)
    elsewhere = doubt.settle(record, op, phase, now_ms)
    if elsewhere is not None:
        return elsewhere
    slot = record.slot(op.offset)
    row = step(phase, op.verb)
    if phase is Phase.READY and op.verb is Verb.SEND and not _follows(record, op, now_ms):
        row = LOST
    if op.verb is Verb.BURY and phase not in _OVER:
        if op.fence != slot.fence:
            row = LOST
        elif slot.attempt < op.attempt:
            return slot.result(Outcome.REFUSED)
    elif op.verb not in _OWNERS and phase not in _OVER:
        phase = record.seen_by(op, phase, slot, now_ms)
        # It went on without this lease, which does not mean that it is finished.
        stale = phase is Phase.GONE and op.verb is Verb.FINISH
        row = LOST if stale else step(phase, op.verb)
        if phase is Phase.EXPIRED and copies.perhaps_claimed(record, op, now_ms):
            return slot.result(Outcome.UNREPAIRED)
    held_ms = _held(record, op, phase, slot, now_ms) if row is not LOST else 0
    if held_ms:
        return slot.result(Outcome.HELD, when_ms=held_ms)
    late = phase is LATE_PHASE and op.verb in SETTLES and row.changes
    if row.changes and row.state is State.FINISHED:
        if op.verb is Verb.FINISH:
            record.exceptions[op.offset] = (Finish(op.arg), now_ms)
        else:
            slot = copies.acked(record, op, slot, now_ms)
        record.finish(op.offset)
        record.errors.over_by(op)
    elif row.changes:
        record.slots[op.offset] = slot
        _change(record, op, row.state, slot, now_ms, fences)
    over = row.state is State.FINISHED or record.over(op.offset)
    return slot.result(row.outcome, state=State.FINISHED if over else slot.state, late=late)


def _change(record: Record, op: Op, state: State, slot: Slot, now_ms: int, fences: Fences) -> None:
    """Write a row of the table that does not finish into a slot."""
    match op.verb:
        case Verb.GRANT:
            slot.attempt = min(slot.attempt + 1, ATTEMPT_MAX)
            slot.fence, slot.rterm = fences.of(op.group), record.rterm
            slot.first_s = slot.first_s or now_ms // 1000
            slot.when_ms = now_ms + op.arg
        case Verb.SEND:
            copies.send(record, op, slot, fences)
        case Verb.PLACE:
            slot.fence, slot.rterm, slot.attempt = op.fence, record.rterm, op.attempt
            slot.when_ms = op.arg or now_ms
            slot.first_s = op.group or now_ms // 1000
            record.fence = max(record.fence, op.fence)
        case _:
            record.settle(op, state, slot, now_ms)
    slot.state = state


def _held(record: Record, op: Op, phase: Phase, slot: Slot, now_ms: int) -> int:
    """When the owner may ask for this again; 0 = now."""
    if op.verb in (Verb.GRANT, Verb.BURY):
        return record.held_until(phase, slot, now_ms, waiting=op.verb is Verb.GRANT)
    if op.verb is Verb.SEND and phase not in SETTLED_PHASES and now_ms < record.repair_until_ms:
        return record.repair_until_ms
    return 0


def _follows(record: Record, op: Op, now_ms: int) -> bool:
    """What was never handed out is sent back only behind others of its key (R19)."""
    return op.arg in record.parked or (op.arg > 0 and now_ms < record.repair_until_ms)


# --- what the owner is told of others' settles (R16)


def _journal(record: Record, call: Call, results: list[Result]) -> list[JournalEntry] | None:
    if call.term:
        first = record.journal_next - len(record.journal)
        if not call.journal_from:
            return []
        if not first <= call.journal_from <= record.journal_next:
            return None
        return list(record.journal)[call.journal_from - first :]
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
        record.journal.append(entry)
        record.journal_next += 1
    while len(record.journal) > JOURNAL_MAX:
        record.journal.popleft()
    return []


def _touches(op: Op, lost: set[int]) -> bool:
    """Whether the item needs a lost chunk; a replay makes it again instead (R14)."""
    if op.verb in (*maintenance.REPEATS, Verb.CLAIM, Verb.CLOSE, Verb.HEAD):
        return False
    first = op.offset >> CHUNK_SHIFT
    last = max(first, (op.arg - 1) >> CHUNK_SHIFT) if op.verb is Verb.HOLE else first
    return any(first <= index <= last for index in lost)


_OVER = (Phase.ACKED, Phase.GONE)
_OWNERS = (Verb.GRANT, Verb.SEND, Verb.PLACE)
"""These name no lease."""
_WITH_HOMES = (Verb.SEND, Verb.CLAIM, Verb.CLOSE, Verb.HEAD, Verb.ADVANCE, Verb.RESTORE)
_JOURNALED = frozenset(
    {Outcome.ACKED, Outcome.RETRYING, Outcome.EXTENDED, Outcome.DEAD, Outcome.RELEASED}
)
