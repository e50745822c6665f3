"""Origin records: a message's lease state after it has left the window
and until its retry copy has claimed it (R2, R4).

MOVE_TO_RETRY writes one beside the slots of the origin. It names the copy that counts
(`generation`) and holds the lease or the delay as it was: the old token settles and extends there.
A retry copy may be delivered only after it has claimed the origin record, and the first copy wins.

Of a blocked key only the first message may be delivered (R19, I6). Its first message
gets an origin record; every later one that the owner meets follows, each with an origin record of
its own. The origin records of a key form its key queue (`line`), in the order of their moves, which
is the order of their offsets. A copy may claim only the first of its key queue. An origin record
leaves the queue when its message is acked there, when the copy that has claimed it is finished, or
when the log has lost its message before there was a copy.
The script that takes the last one out unblocks the key. The queue is stored beside the origin
records and deleted with them, so that it can't be lost alone (R14).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ackd.core.record.operations import (
    AskBlocker,
    ClaimOrigin,
    CloseOrigin,
    LookUp,
    MoveToRetry,
    NameCopy,
    OriginOp,
    ReplayAck,
    ReplayFinished,
    RestoreClaimed,
    RestoreOp,
    Settle,
    VouchCopy,
)
from ackd.core.record.protocol import BlockedBy, Finish, OpResult
from ackd.core.record.slot import Slot
from ackd.core.record.state import Fences, OriginRecord, PartitionRecord
from ackd.core.record.transitions import (
    LATE_PHASE,
    LOST,
    Outcome,
    Phase,
    State,
    Verb,
    step,
)

ORIGIN_KEEP_MS = 600_000
"""A closed origin record is kept for this long, for copies that a slow broker stores late."""
PRUNE_MAX = 64
"""One ADVANCE drops at most this many origin records."""
REPEAT_MS = 7_000
"""A sidecar may restore an origin record for this long after grants resumed: it tries for ten
seconds in all."""
UNKNOWN_AGAIN_MS = 5_000
"""When a copy claims again if, after a rollback, its message is in the window again."""
VOUCH_AGAIN_MS = 1_000
"""When a copy asks again whether it is genuine, if the move of its message is not confirmed yet."""


def decide(record: PartitionRecord, op: OriginOp, now_ms: int) -> OpResult:
    """Answer an operation about an origin record, or a LOOK_UP."""
    match op:
        case LookUp():
            return look(record, op, now_ms)
        case ClaimOrigin():
            return claim(record, op, now_ms)
        case CloseOrigin():
            close(record, op, now_ms)
            return DONE
        case NameCopy():
            name(record, op)
            return DONE
        case VouchCopy():
            return vouch(record, op, now_ms)
        case AskBlocker():
            return head(record, op.key)


def send(record: PartitionRecord, op: MoveToRetry, slot: Slot, fences: Fences) -> None:
    """Move the slot's lease state into a new origin record, and leave a MOVING slot whose fence is
    the copy's generation.
    """
    generation = fences.of(op.number)
    before = record.origins.get(op.offset)
    if before is None:
        record.origin_count += 1
    else:
        leave(record, op.offset, before)
    record.origins[op.offset] = OriginRecord(replace(slot), generation, key=op.key, signs=True)
    if op.key:
        block(record, op.key, op.offset)
    slot.fence, slot.rollback_epoch = generation, record.rollback_epoch


def forwarded(record: PartitionRecord, offset: int, phase: Phase) -> bool:
    """Whether its origin record decides its settles."""
    if phase is Phase.GONE:
        odd = record.exceptions.get(offset)
        return odd is not None and odd[0] is Finish.SENT
    return phase is Phase.MOVING


def decides(record: PartitionRecord, op: Settle, phase: Phase, now_ms: int) -> bool:
    """Whether the origin record decides a settle. After a rollback its owner may yet have to
    restore that record (R10): a commit that has the message as finished proves nothing about its
    lease (I7). An ack is kept in any case.
    """
    old = op.rollback_epoch != record.rollback_epoch and now_ms < record.repair_until_ms
    if phase is Phase.ACKED and old and op.verb is not Verb.ACK:
        return True
    return forwarded(record, op.offset, phase)


def settle(record: PartitionRecord, op: Settle, now_ms: int) -> OpResult:
    """Settle a message in its origin record, by the same table. A claimed one never changes."""
    there = State.FINISHED if record.over(op.offset) else State.MOVING
    origin = record.origins.get(op.offset)
    if origin is None:
        unknown = there is State.FINISHED and op.offset not in record.exceptions
        outcome = Outcome.UNREPAIRED if unknown else Outcome.LOST
        return record.slot(op.offset).result(outcome, state=there)
    slot = origin.slot
    phase = slot.phase(now_ms)
    ended = phase in (Phase.EXPIRED, Phase.READY)  # READY: made again, without its lease
    if ended and origin.claimed_by is None and perhaps_claimed(record, op, now_ms):
        return slot.result(Outcome.UNREPAIRED, state=there)
    if phase is not Phase.ACKED:
        phase = record.seen_by(op, phase, slot, now_ms)
    row = step(phase, op.verb)
    if origin.claimed_by is not None and (row.changes or phase in _HANDED_ON):
        row = LOST
    if row.changes and row.state is State.FINISHED:
        # From here on an ack like any other, but its copy has yet to learn of it. The sidecar that
        # served the ack remembers the generation, as a rollback may erase the origin record
        # (`replayed`).
        slot = replace(slot, fence=origin.generation)
        origin.slot.state = there = State.FINISHED
        record.exceptions.pop(op.offset, None)
        if op.offset >= record.watermark:  # below it the chunk may have been dropped
            record.finish(op.offset)
        leave(record, op.offset, origin)
        record.texts.over(op.offset)
    elif row.changes:
        record.settle(op, row.state, slot, now_ms)
    return slot.result(row.outcome, state=there, late=row.changes and phase is LATE_PHASE)


def perhaps_claimed(record: PartitionRecord, op: Settle, now_ms: int) -> bool:
    """True while we cannot rule out that a copy already claimed this expired, pre-rollback lease.
    The claimer reports its claim again during the repair window, so the settle must wait (R10). A
    repair itself may revive the lease before that.
    """
    repair = op.verb is Verb.EXTEND and not op.counted
    return (
        not repair
        and op.rollback_epoch != record.rollback_epoch
        and now_ms < record.repair_until_ms
    )


def look(record: PartitionRecord, op: LookUp, now_ms: int) -> OpResult:
    """Where is this lease? ACKED, HELD (live), RETRYING, RELEASED, DEAD, LOST or UNREPAIRED;
    changes nothing.
    """
    phase, slot = record.phase(op.offset, now_ms), record.slot(op.offset)
    if op.message:
        return message(record, op.offset, phase, slot)
    there = State.FINISHED if record.over(op.offset) else slot.state
    if forwarded(record, op.offset, phase):
        origin = record.origins.get(op.offset)
        if origin is None or origin.claimed_by is not None:
            return slot.result(Outcome.LOST, state=there)
        slot = origin.slot
        phase = slot.phase(now_ms)
    if phase is Phase.ACKED:
        return slot.result(Outcome.ALREADY_ACKED, state=there)
    if phase is not Phase.GONE and (
        op.fence != slot.fence or op.rollback_epoch != slot.rollback_epoch
    ):
        forgotten = record.seen_by(op, phase, slot, now_ms) is Phase.FORGOTTEN
        return slot.result(Outcome.UNREPAIRED if forgotten else Outcome.LOST, state=there)
    return slot.result(_LOOKS.get(phase, Outcome.LOST), state=there, late=phase is Phase.EXPIRED)


def message(record: PartitionRecord, offset: int, phase: Phase, slot: Slot) -> OpResult:
    """Where is this message, whoever holds it? MOVING: in its copy (`OpResult.copy`), if it is
    known which one has claimed it.
    """
    outcome = Outcome.ALREADY_ACKED if phase is Phase.ACKED else Outcome.LOST
    state, attempt, after, partition = slot.state, slot.attempt, 0, 0
    if forwarded(record, offset, phase):
        origin = record.origins.get(offset)
        state = State.MOVING
        if origin is not None:
            attempt = origin.slot.attempt
            if origin.claimed_by is None:
                state = origin.slot.state
            else:
                partition, after = origin.claimed_by.partition, origin.claimed_by.offset + 1
    elif phase is Phase.GONE:
        dead = record.exceptions[offset][0] is Finish.DEAD
        state = State.DEAD if dead else State.FINISHED
    elif phase is Phase.ACKED:
        state = State.FINISHED
    return OpResult(outcome, state, attempt, after, partition, 0, late=False)


def claim(record: PartitionRecord, op: ClaimOrigin, now_ms: int) -> OpResult:
    """Decide whether a retry copy is the one that counts. The same copy gets CLAIMED again."""
    origin = record.origins.get(op.offset)
    if origin is None:
        return _unknown(record, op, now_ms)
    if op.generation < origin.generation:
        return _answer(Outcome.REFUSED, origin)
    if op.generation > origin.generation and origin.slot.state is not State.FINISHED:
        # A rollback erased a later move.
        waits = now_ms < record.repair_until_ms
        if waits or origin.claimed_by is not None:
            until_ms = record.repair_until_ms if waits else 0
            return _answer(Outcome.HELD if waits else Outcome.LOST, origin, until_ms)
        # No other copy has claimed it, and nobody else will settle its lease.
        origin.generation, origin.named = op.generation, None
    if origin.slot.state is State.FINISHED:
        close(record, CloseOrigin(op.offset, op.generation), now_ms)
        return _answer(Outcome.FINISHED, origin)
    if origin.claimed_by is None:
        if origin.key and record.blocked[origin.key][0] != op.offset:
            return blocked_by(record, origin.key)
        held_ms = record.held_until(origin.slot.phase(now_ms), origin.slot, now_ms, waiting=False)
        if held_ms:
            return _answer(Outcome.HELD, origin, held_ms)
        origin.claimed_by = op.copy
    if origin.claimed_by != op.copy:
        return _answer(Outcome.REFUSED, origin)
    waiting = origin.slot.state is State.WAITING
    return _answer(Outcome.CLAIMED, origin, origin.slot.when_ms if waiting else 0)


def _answer(outcome: Outcome, origin: OriginRecord, when_ms: int = 0) -> OpResult:
    """The state is LEASED even if the lease has ended: a claimed copy is ready then."""
    slot = origin.slot
    return OpResult(
        outcome, slot.state, slot.attempt, origin.generation, when_ms, slot.first_s, late=False
    )


def _unknown(record: PartitionRecord, op: ClaimOrigin, now_ms: int) -> OpResult:
    """No origin record: it is of an earlier epoch, was dropped, or a rollback erased it."""
    slot = Slot()
    if op.generation <= record.fence_floor:
        return slot.result(Outcome.FINISHED)
    if op.rollback_epoch == record.rollback_epoch:
        return slot.result(Outcome.LOST if op.must_deliver else Outcome.REFUSED)
    if now_ms < record.repair_until_ms:
        return slot.result(Outcome.HELD, when_ms=record.repair_until_ms)  # see `restore`
    if not record.over(op.offset):
        # The rollback put the message back into the window. Either it is delivered from there, or
        # its owner finds that it was finished: only then is the copy all there is.
        return slot.result(Outcome.HELD, when_ms=now_ms + UNKNOWN_AGAIN_MS)
    # From here on the copy holds the message: earlier leases are over.
    record.origins[op.offset] = OriginRecord(Slot(attempt=op.attempt), op.generation, op.copy)
    record.origin_count += 1
    record.exceptions.setdefault(op.offset, (Finish.SENT, now_ms))
    return slot.result(Outcome.LOST)


def name(record: PartitionRecord, op: NameCopy) -> None:
    """Its mover says where the copy is stored. After a claim that place is of no use any more."""
    origin = record.origins.get(op.offset)
    if origin is None or origin.claimed_by is not None or origin.generation != op.generation:
        return
    origin.signs, origin.named = True, op.copy


def vouch(record: PartitionRecord, op: VouchCopy, now_ms: int) -> OpResult:
    """Whether a copy without a valid signature is genuine: CLAIMED, REFUSED, HELD = ask again, or
    LOST = this record knows nothing of it.

    The broker chooses the place of a record, so nobody forges one. Builds that do not sign name no
    place: a copy of theirs is believed.
    """
    origin = record.origins.get(op.offset)
    repairs = now_ms < record.repair_until_ms
    if origin is None:
        outcome = Outcome.HELD if repairs else Outcome.LOST
        return Slot().result(outcome, when_ms=record.repair_until_ms if repairs else 0)
    known = origin.claimed_by or origin.named
    outcome, when_ms = Outcome.REFUSED, 0
    if op.generation != origin.generation:
        if op.generation > origin.generation and repairs:
            outcome, when_ms = Outcome.HELD, record.repair_until_ms
        elif op.generation > origin.generation and origin.claimed_by is None and not origin.signs:
            outcome = Outcome.LOST
    elif known is not None:
        outcome = Outcome.CLAIMED if known == op.copy else Outcome.REFUSED
    elif not origin.signs or origin.slot.state is State.FINISHED:
        outcome = Outcome.CLAIMED  # an acked message's copy ends with its claim
    elif repairs:
        outcome, when_ms = Outcome.HELD, record.repair_until_ms
    elif not record.over(op.offset):
        outcome, when_ms = Outcome.HELD, now_ms + VOUCH_AGAIN_MS
    return _answer(outcome, origin, when_ms)


def close(record: PartitionRecord, op: CloseOrigin, now_ms: int) -> None:
    """Its copy has a slot (or got the answer that it is acked): let `prune` drop it after a while.

    One in a key queue is closed only when its copy is finished. This also repairs a claim that a
    rollback erased, for which it needs the generation.
    """
    origin = record.origins.get(op.offset)
    if origin is None or origin.closed_ms:
        return
    if op.finished is not None:
        if origin.claimed_by is None and origin.generation == op.generation:
            origin.claimed_by = op.finished
        if origin.claimed_by != op.finished:
            return
        leave(record, op.offset, origin)
    elif origin.generation != op.generation or origin.key:
        return
    if origin.claimed_by is not None or origin.slot.state is State.FINISHED:
        mark_closed(record, op.offset, origin, now_ms)


def mark_closed(record: PartitionRecord, offset: int, origin: OriginRecord, now_ms: int) -> None:
    """Nobody needs it but copies that come late."""
    origin.closed_ms = now_ms
    record.closing.append((now_ms, offset))
    record.texts.over(offset)


def prune(record: PartitionRecord, now_ms: int) -> None:
    """Drop the origin records that were closed `ORIGIN_KEEP_MS` ago, oldest first."""
    until_ms = now_ms - ORIGIN_KEEP_MS
    for _ in range(PRUNE_MAX):
        if not record.origin_count or not record.closing or record.closing[0][0] > until_ms:
            return
        closed_ms, offset = record.closing.popleft()
        origin = record.origins.get(offset)
        if origin is None or origin.closed_ms != closed_ms:
            continue
        if origin.claimed_by is None and origin.slot.phase(now_ms) is Phase.LEASED:
            origin.closed_ms = now_ms  # made by `doubt.replayed`, and its lease still lives
            record.closing.append((now_ms, offset))
        else:
            del record.origins[offset]
            record.origin_count -= 1


def acked(record: PartitionRecord, op: Settle, slot: Slot, now_ms: int) -> Slot:
    """An ack in the window, by a lease from before a rollback that may have erased an origin record
    (R10).

    Leaves an origin record that shows the message as acked to its copy, and to the sidecar that
    restores the erased one.
    """
    old = op.rollback_epoch != record.rollback_epoch and now_ms < record.repair_until_ms + REPEAT_MS
    if not old or op.offset in record.origins or record.origins_lost:
        return slot
    acked_as(record, op.offset, op.fence + 1, now_ms)
    return replace(slot, fence=op.fence + 1)


def acked_as(record: PartitionRecord, offset: int, generation: int, now_ms: int) -> None:
    """Write an origin record that only shows that its message is acked."""
    before = record.origins.get(offset)
    if before is None:
        record.origin_count += 1
    else:
        leave(record, offset, before)
    record.origins[offset] = OriginRecord(Slot(State.FINISHED), generation, closed_ms=now_ms)
    record.closing.append((now_ms, offset))
    record.texts.over(offset)


def replayed(record: PartitionRecord, op: ReplayAck | ReplayFinished, now_ms: int) -> None:
    """A sidecar replays a finish after a rollback: an ack, or a finish of unknown kind.

    A sidecar that got the answer "acked" from the origin record is right, whichever copy has
    claimed that record since (I2). The rollback may have erased the record, too.
    """
    origin = record.origins.get(op.offset)
    generation = op.generation if isinstance(op, ReplayAck) else 0
    if (
        generation > (origin.generation if origin else record.fence_floor)
        and not record.origins_lost
    ):
        acked_as(record, op.offset, generation, now_ms)
        record.exceptions.pop(op.offset, None)
        return
    if origin is None or origin.slot.state is State.FINISHED:
        record.texts.over(op.offset)
        return
    if isinstance(op, ReplayFinished):
        record.exceptions[op.offset] = (Finish.SENT, now_ms)
        return
    record.texts.over(op.offset)
    record.exceptions.pop(op.offset, None)
    if origin.claimed_by is None or generation == origin.generation:
        origin.slot.state = State.FINISHED
        leave(record, op.offset, origin)


def restore(record: PartitionRecord, op: RestoreOp, now_ms: int) -> int:
    """Restore an origin record that a rollback may have erased, from `op` (R2, R10). A repeat
    changes nothing. Returns 1 if this finishes the offset.

    Without it the message would be both in the window and in its copy. If the watermark had passed
    it, nobody could know whether it was acked.
    """
    if op.generation <= record.fence_floor:
        return 0
    found = record.origins.get(op.offset)
    if found is None or found.generation < op.generation:
        found = _made_again(record, op, found, now_ms)
    if found.generation > op.generation:
        return 0
    if found.slot.state is not State.FINISHED:
        _known_of(record, op, found)
    else:
        record.texts.over(op.offset)
    if record.over(op.offset) or isinstance(op, RestoreClaimed) or op.stored:
        if found.slot.state is not State.FINISHED:
            record.exceptions[op.offset] = (Finish.SENT, now_ms)
        if not record.over(op.offset):
            record.finish(op.offset)
            return 1
        return 0
    slot = record.slot(op.offset)
    if slot.state is not State.MOVING or slot.fence < op.generation:
        record.slots[op.offset] = replace(
            slot,
            state=State.MOVING,
            attempt=op.attempt,
            fence=op.generation,
            rollback_epoch=op.rollback_epoch,
        )
    return 0


def _known_of(record: PartitionRecord, op: RestoreOp, found: OriginRecord) -> None:
    """Set its key queue, or the copy that claimed it. A closed one has left its key queue."""
    if isinstance(op, RestoreClaimed):
        found.claimed_by = found.claimed_by or op.copy
    elif op.key and not found.key and not found.closed_ms:
        found.key = op.key
        block(record, op.key, op.offset)


def _made_again(
    record: PartitionRecord, op: RestoreOp, before: OriginRecord | None, now_ms: int
) -> OriginRecord:
    """Make it again without its lease: whoever knows that restores it by an uncounted EXTEND."""
    record.fence = max(record.fence, op.generation)
    if before is not None and before.slot.state is State.FINISHED:
        before.generation = op.generation
        return before
    if before is None:
        record.origin_count += 1
    else:
        leave(record, op.offset, before)
    moved = not isinstance(op, RestoreClaimed)
    made = OriginRecord(Slot(attempt=op.attempt), op.generation, signs=moved)
    record.origins[op.offset] = made
    if isinstance(op, RestoreClaimed):
        return made
    slot = record.slots.get(op.offset)
    lives = slot is not None and slot.fence < op.generation and slot.phase(now_ms) is Phase.LEASED
    if slot is not None and lives and not record.over(op.offset):
        made.slot = replace(slot)  # its holder has got a deadline since the rollback
    bit = op.offset >= record.watermark and op.offset in record.finished
    first, end = record.doubt
    unknown = first <= op.offset < end  # so says a successor, which the rollback forgot
    if bit and not unknown and not op.released and op.offset not in record.exceptions:
        # Its ack was replayed before the origin record. Only the owner knows that nothing but an
        # ack finished it.
        made.slot.state = State.FINISHED
    return made


# --- key queues of blocked keys


def block(record: PartitionRecord, key: int, offset: int) -> None:
    """Append to its key queue. One with a smaller offset than the first (a rollback erased its ack)
    goes to the front.
    """
    line = record.blocked.setdefault(key, [])
    if line and offset < line[0]:
        line.insert(0, offset)
    else:
        line.append(offset)


def leave(record: PartitionRecord, offset: int, origin: OriginRecord) -> None:
    """Take it out of its key queue: it blocks no other message any more."""
    if not origin.key:
        return
    line = record.blocked[origin.key]
    line.remove(offset)
    if not line:
        del record.blocked[origin.key]
    origin.key = 0


def blocked_by(record: PartitionRecord, key: int) -> OpResult:
    """The answer BLOCKED, with the first of a key queue."""
    first = record.blocked[key][0]
    return OpResult.blocked(BlockedBy(first, record.origins[first].claimed_by))


def head(record: PartitionRecord, key: int) -> OpResult:
    """Which message blocks a key: BLOCKED, or FINISHED if the key is free."""
    if key in record.blocked:
        return blocked_by(record, key)
    return OpResult(Outcome.FINISHED, State.READY, 0, 0, 0, 0, late=False)


# --- all of them


def forget_all(record: PartitionRecord, rollback_epoch: int) -> None:
    """The store has lost the origin records (R14). With a new `rollback_epoch`, `claim` treats a
    missing one as forgotten instead of refusing the copy.
    """
    record.origins.clear()
    record.blocked.clear()
    record.closing.clear()
    record.texts.clear()
    record.origin_count = 0
    record.rollback_epoch = rollback_epoch


def skip(record: PartitionRecord, offsets: Iterable[int]) -> None:
    """A reset passes over messages that are being moved to the retry topic: drop the origin records
    that no copy has claimed.

    The owner writes no copy of them any more, so these records would block their keys for good. A
    copy that was written before is refused like every copy whose origin record is gone.
    """
    for offset in offsets:
        origin = record.origins.get(offset)
        if origin is not None and origin.claimed_by is None:
            leave(record, offset, origin)
            del record.origins[offset]


def reset(record: PartitionRecord, position: int, now_ms: int) -> dict[int, Slot]:
    """A new epoch from `position` on: drop the origin records there. Returns their live leases."""
    leases = {}
    for offset in [o for o in record.origins if o >= position]:
        origin = record.origins.pop(offset)
        leave(record, offset, origin)
        if origin.claimed_by is None and origin.slot.phase(now_ms) is Phase.LEASED:
            leases[offset] = origin.slot
    record.origin_count = len(record.origins)
    if not record.origins:
        record.closing.clear()
    record.exceptions = {
        offset: (Finish.SENT, now_ms)
        for offset, origin in record.origins.items()
        if origin.slot.state is not State.FINISHED
    }
    return leases


_HANDED_ON = (Phase.WAITING, Phase.RELEASED)
"""A repeated settle gets the same answer until the message is delivered again (R17), which may
follow a claim."""
_LOOKS = {
    Phase.LEASED: Outcome.HELD,
    Phase.EXPIRED: Outcome.HELD,
    Phase.WAITING: Outcome.RETRYING,
    Phase.RELEASED: Outcome.RELEASED,
    Phase.DEAD: Outcome.DEAD,
}
DONE = OpResult(Outcome.DONE, State.READY, 0, 0, 0, 0, late=False)
