"""One partition's record: the truth about leases, attempts and finished offsets, decided
atomically.

This is the reference for `store/ledger.lua`: the memory store runs it, and the contract suite and a
differential test compare the script with it. It knows nothing about message bodies, gaps in the log
or waiting requests; the owner's `Ledger` handles those. It asks `copies` about origin records,
`doubt` about repaired offsets and `maintenance` for the owner's upkeep.
"""

from __future__ import annotations

from ackd.core.bitmap import CHUNK_SHIFT
from ackd.core.record import copies, doubt, maintenance, vanished
from ackd.core.record.operations import (
    AskBlocker,
    ClaimOrigin,
    CloseOrigin,
    FinishOrigin,
    Gap,
    Grant,
    LookUp,
    MarkDead,
    MoveToRetry,
    NameCopy,
    Op,
    OwnersOp,
    PlaceCopy,
    Settle,
    VouchCopy,
)
from ackd.core.record.protocol import (
    CallStatus,
    Finish,
    JournalEntry,
    Open,
    OpResult,
    RecordCall,
    RecordReply,
    SlotView,
    Snapshot,
)
from ackd.core.record.settles import OF_OUTCOME
from ackd.core.record.slot import Slot
from ackd.core.record.state import SETTLED_PHASES, BrokenRecordError, Fences, PartitionRecord
from ackd.core.record.transitions import (
    LATE_PHASE,
    LOST,
    Outcome,
    Phase,
    State,
    TransitionStep,
    Verb,
    step,
)

ATTEMPT_MAX = 0xFFFF
JOURNAL_MAX = 10_000
REPAIR_WAIT_MS = 3_000
"""After a possible rollback the record grants nothing until all sidecars have replayed, or this
time has passed (R10).
"""


# --- opening


def create(request: Open, start: int, run: str) -> PartitionRecord:
    """Make a record that starts at `start`.

    A store that lost the record before it may have forgotten leases below: nobody knows how their
    messages were finished (`doubt`).
    """
    return PartitionRecord(
        incarnation=request.incarnation,
        watermark=start,
        run=run,
        rollback_epoch=request.rollback_epoch,
        doubt=(0, start),
    )


def open_record(
    record: PartitionRecord,
    request: Open,
    now_us: int,
    run: str,
    *,
    created: bool,
) -> Snapshot:
    """Take the partition (term + 1), or read it again under the same term."""
    if request.term and request.term != record.term:
        return Snapshot(CallStatus.FENCED, term=record.term, previous_owner=record.owner)
    moved = _rejoin(record, request, now_us, run)
    now_ms = record.clock(now_us)
    previous, term = record.owner, record.term
    if not request.term:
        # Like the fence: the record must not give another owner a term that a rollback erased.
        record.term = max(record.term + 1, now_us // 1000)
        record.owner = request.owner
        record.seq = 0
    if record.term < term:
        raise BrokenRecordError(f"term: {term} to {record.term}")
    record.seq += 1
    record.version += 1
    return Snapshot(
        verdict=CallStatus.OK,
        created=created,
        moved=moved,
        previous_owner=previous,
        now_ms=now_ms,
        version=record.version,
        incarnation=record.incarnation,
        term=record.term,
        seq=record.seq,
        epoch=record.epoch,
        rollback_epoch=record.rollback_epoch,
        watermark=record.watermark,
        fence=record.fence,
        journal_next=record.journal_next,
        slots=[
            SlotView(
                o, s.state, s.attempt, s.releases, s.fence, s.rollback_epoch, s.when_ms, s.first_s
            )
            for o, s in sorted(record.slots.items())
            if o >= record.watermark and o not in record.finished
        ],
        chunks={i: bytes(c) for i, c in sorted(record.finished.chunks.items())},
        lost_chunks=sorted(record.listed - record.finished.chunks.keys()),
        lost_origins=record.origins_lost,
        blocked=sorted(record.blocked),
        journal=_journal_from(record, request.journal_from),
    )


def _rejoin(record: PartitionRecord, request: Open, now_us: int, run: str) -> bool:
    """A changed server run is a possible rollback: start a new rollback epoch,
    the grace and the wait for replays.
    """
    if record.run == run:
        return False
    record.run = run
    record.rollback_epoch = request.rollback_epoch
    record.shift_ms = max(record.shift_ms + request.jump_ms, 0)
    now_ms = record.clock(now_us)
    record.grace_until_ms = now_ms + request.grace_ms
    record.repair_until_ms = now_ms + REPAIR_WAIT_MS
    return True


# --- calls


def apply(record: PartitionRecord, call: RecordCall, now_us: int, run: str) -> RecordReply:
    """Decide every operation in order. Any status other than OK means that nothing was changed."""
    verdict = _admit(record, call, run)
    if verdict is not CallStatus.OK:
        return RecordReply(verdict, term=record.term, version=record.version)
    now_ms = record.clock(now_us)
    if call.term:
        record.seq = call.seq
    fences, before = Fences(record, now_us), (record.epoch, record.watermark, record.fence)
    results = [_decide(record, op, now_ms, fences) for op in call.ops]
    _check(record, *before)
    maintenance.free_full_chunks(record)
    dropped = record.texts.decided(call, results, now_ms)
    if call.ops:
        record.version += 1
    journal = _journal(record, call, results)
    return RecordReply(
        verdict=CallStatus.OK,
        now_ms=now_ms,
        version=record.version,
        rollback_epoch=record.rollback_epoch,
        epoch=record.epoch,
        term=record.term,
        watermark=record.watermark,
        journal_next=record.journal_next,
        results=results,
        journal=journal,
        has_texts=bool(record.texts),
        has_notes=record.texts.notes > 0,
        dropped=dropped,
    )


def _check(record: PartitionRecord, epoch: int, watermark: int, fence: int) -> None:
    """Check that what only grows has not shrunk (R9). Only a new epoch moves the watermark back."""
    if record.fence < fence or (record.epoch, record.watermark) < (epoch, watermark):
        now = record.epoch, record.watermark, record.fence
        raise BrokenRecordError(f"epoch, watermark, fence: {(epoch, watermark, fence)} to {now}")


def _admit(record: PartitionRecord, call: RecordCall, run: str) -> CallStatus:
    if call.incarnation and call.incarnation != record.incarnation:
        return CallStatus.ABSENT
    if call.term and call.term != record.term:
        return CallStatus.FENCED
    if call.term and call.seq <= record.seq:
        return CallStatus.STALE
    if record.run != run:
        return CallStatus.MOVED
    lost = record.listed - record.finished.chunks.keys()
    if lost and any(_touches(op, lost) for op in call.ops):
        return CallStatus.CHUNK_LOST
    if record.origins_lost and any(op.verb in _WITH_ORIGINS for op in call.ops):
        return CallStatus.CHUNK_LOST
    return CallStatus.OK


def _decide(record: PartitionRecord, op: Op, now_ms: int, fences: Fences) -> OpResult:
    match op:
        case Settle():
            return _settle(record, op, now_ms)
        case Grant() | MoveToRetry() | MarkDead() | PlaceCopy() | FinishOrigin():
            return _own(record, op, now_ms, fences)
        case LookUp() | ClaimOrigin() | CloseOrigin() | NameCopy() | VouchCopy() | AskBlocker():
            return copies.decide(record, op, now_ms)
        case _:
            return copies.DONE._replace(when_ms=maintenance.decide(record, op, now_ms))


# --- the table's verbs


def _settle(record: PartitionRecord, op: Settle, now_ms: int) -> OpResult:
    """Decide what a lease token asks for."""
    offset = op.offset
    phase = record.phase(offset, now_ms)
    elsewhere = doubt.settle(record, op, phase, now_ms)
    if elsewhere is not None:
        return elsewhere
    slot = record.slot(offset)
    if phase not in _OVER:
        phase = record.seen_by(op, phase, slot, now_ms)
        if phase is Phase.EXPIRED and copies.perhaps_claimed(record, op, now_ms):
            return slot.result(Outcome.UNREPAIRED)
    row = step(phase, op.verb)
    if row.changes and row.state is State.FINISHED:
        slot = copies.acked(record, op, slot, now_ms)
        record.finish(offset)
        record.texts.over(offset)
    elif row.changes:
        record.slots[offset] = slot
        record.settle(op, row.state, slot, now_ms)
    return _answered(record, offset, row, slot, late=row.changes and phase is LATE_PHASE)


def _own(record: PartitionRecord, op: Grant | OwnersOp, now_ms: int, fences: Fences) -> OpResult:
    """Decide what an owner does with a message."""
    offset = op.offset
    phase, slot = record.phase(offset, now_ms), record.slot(offset)
    row = step(phase, op.verb)
    held_ms = 0
    match op:
        case Grant():
            held_ms = record.held_until(phase, slot, now_ms)
        case MoveToRetry():
            undelivered = _undelivered(op, phase, slot, now_ms)
            if undelivered and not _follows(record, op, now_ms):
                row = LOST
            elif phase not in SETTLED_PHASES and now_ms < record.repair_until_ms:
                held_ms = record.repair_until_ms
        case MarkDead() if phase not in _OVER:
            if op.fence != slot.fence:
                row = LOST
            elif slot.attempt < op.deliveries_max:
                return slot.result(Outcome.REFUSED)
            elif not (op.claimed and phase is Phase.WAITING):
                held_ms = record.held_until(phase, slot, now_ms, waiting=False)
        case FinishOrigin() if phase not in _OVER:
            # GONE here: the message went on without this lease. That does not make it finished.
            phase = record.seen_by(op, phase, slot, now_ms)
            row = LOST if phase is Phase.GONE else step(phase, op.verb)
            held_ms = vanished.lets_go_ms(record, op, phase, now_ms)
    if held_ms and row is not LOST:
        return slot.result(Outcome.HELD, when_ms=held_ms)
    if row.changes:
        _change(record, op, row.state, slot, now_ms, fences)
    return _answered(record, offset, row, slot)


def _answered(
    record: PartitionRecord, offset: int, row: TransitionStep, slot: Slot, *, late: bool = False
) -> OpResult:
    over = row.state is State.FINISHED or record.over(offset)
    return slot.result(row.outcome, state=State.FINISHED if over else slot.state, late=late)


def _change(
    record: PartitionRecord,
    op: Grant | OwnersOp,
    state: State,
    slot: Slot,
    now_ms: int,
    fences: Fences,
) -> None:
    """Write a row of the table."""
    match op:
        case FinishOrigin():
            reason = Finish(op.reason)
            if reason is Finish.VANISHED:
                reason = vanished.finish(record, op.offset, now_ms)
            record.exceptions[op.offset] = (reason, now_ms)
            record.finish(op.offset)
            if reason is not Finish.SENT:  # that one goes on in its origin record
                record.texts.over(op.offset)
            return
        case Grant():
            slot.attempt = min(slot.attempt + 1, ATTEMPT_MAX)
            slot.fence, slot.rollback_epoch = fences.of(op.receive), record.rollback_epoch
            slot.first_s = slot.first_s or now_ms // 1000
            slot.when_ms = now_ms + op.lease_ms
        case MoveToRetry():
            copies.send(record, op, slot, fences)
        case PlaceCopy():
            slot.fence, slot.rollback_epoch, slot.attempt = (
                op.generation,
                record.rollback_epoch,
                op.attempt,
            )
            slot.when_ms = op.due_ms or now_ms
            slot.first_s = op.first_s or now_ms // 1000
            record.fence = max(record.fence, op.generation)
        case MarkDead():
            slot.when_ms = 0
    slot.state = state
    record.slots[op.offset] = slot


def _undelivered(op: MoveToRetry, phase: Phase, slot: Slot, now_ms: int) -> bool:
    """Whether nobody was ever given it. One of a key may have a slot all the same, without a fence:
    another client's attempts are counted there, and none of its delays is left (PLACE_COPY).
    """
    counted = phase is Phase.WAITING and op.key > 0
    return phase is Phase.READY or (counted and not slot.fence and slot.when_ms <= now_ms)


def _follows(record: PartitionRecord, op: MoveToRetry, now_ms: int) -> bool:
    """A message that was never delivered moves only after others of its key (R19)."""
    return op.key in record.blocked or (op.key > 0 and now_ms < record.repair_until_ms)


# --- the journal: settles through other sidecars, for the owner (R16)


def _journal(
    record: PartitionRecord, call: RecordCall, results: list[OpResult]
) -> list[JournalEntry] | None:
    if call.term:
        first = record.journal_next - len(record.journal)
        if not call.journal_from:
            return []
        if not first <= call.journal_from <= record.journal_next:
            return None
        return list(record.journal)[call.journal_from - first :]
    for op, result in zip(call.ops, results, strict=True):
        if result.outcome in JOURNALED:
            entry = JournalEntry(
                op.offset, result.outcome, result.when_ms, result.fence, result.attempt
            )
        elif op.verb in maintenance.REPEATS and result.number:
            # The owner may not know of this ack: the rollback erased its journal entry, too.
            entry = JournalEntry(op.offset, Outcome.ACKED, 0, 0, 0)
        else:
            continue
        record.journal.append(entry)
        record.journal_next += 1
    while len(record.journal) > JOURNAL_MAX:
        record.journal.popleft()
    return []


def _journal_from(record: PartitionRecord, start: int) -> list[JournalEntry]:
    """The newest entries that are not older than `start`, as far as the store has them."""
    wanted = max(record.journal_next - start, 0) if start else 0
    return list(record.journal)[max(len(record.journal) - wanted, 0) :]


def _touches(op: Op, lost: set[int]) -> bool:
    """Whether the operation needs a lost chunk. A replay makes the chunk again instead (R14)."""
    if op.verb in (*maintenance.REPEATS, *_OF_ORIGINS):
        return False
    first = op.offset >> CHUNK_SHIFT
    last = max(first, (op.end - 1) >> CHUNK_SHIFT) if isinstance(op, Gap) else first
    return any(first <= index <= last for index in lost)


_OVER = (Phase.ACKED, Phase.GONE)
_OF_ORIGINS = (Verb.CLAIM, Verb.CLOSE, Verb.NAME_COPY, Verb.VOUCH, Verb.ASK_BLOCKER)
_WITH_ORIGINS = (
    Verb.MOVE_TO_RETRY,
    *_OF_ORIGINS,
    Verb.ADVANCE,
    Verb.RESTORE,
)
JOURNALED = frozenset(OF_OUTCOME)
