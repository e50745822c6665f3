"""What an owner does to a record besides leases: gaps, watermark, freeing, repair, reset.

`decide` calls one function for each operation and returns the number for its result (0 if it has
none).
"""

from __future__ import annotations

from ackd.core.bitmap import CHUNK_BYTES, CHUNK_SHIFT
from ackd.core.record import copies, doubt
from ackd.core.record.operations import (
    Advance,
    Drop,
    EndRepair,
    ForgetOriginRecords,
    Gap,
    RemakeChunk,
    ReplayAck,
    ReplayFinished,
    Reset,
    Truncate,
    UpkeepOp,
)
from ackd.core.record.protocol import Finish
from ackd.core.record.slot import SLOT_CHUNK_SHIFT
from ackd.core.record.state import PartitionRecord
from ackd.core.record.transitions import Phase, State, Verb

EXCEPTIONS_KEEP_MS = 13 * 3_600_000
"""Longer than the longest lease (12 h), so that no token outlives its answer (R15)."""
EPOCH_MARKS = 0x7FFF
SLOT_CHUNK_BITS_BYTES = 1 << (SLOT_CHUNK_SHIFT - 3)


def decide(record: PartitionRecord, op: UpkeepOp, now_ms: int) -> int:
    """Carry out an operation of the owner. Returns the number of its result."""
    match op:
        case Gap():
            return gap(record, op, now_ms)
        case Advance():
            if op.repair:
                doubt.add(record, record.watermark, op.offset)
            advance(record, op.offset, now_ms)
        case Drop():
            drop(record, op.offset)
        case ReplayAck() | ReplayFinished():
            return replay(record, op, now_ms)
        case RemakeChunk():
            remake_chunk(record, op.index)
        case ForgetOriginRecords():
            copies.forget_all(record, op.rollback_epoch)
        case Reset():
            reset(record, op.offset, now_ms)
        case Truncate():
            truncate(record, op, now_ms)
        case EndRepair():
            record.repair_until_ms = 0
        case _:
            return copies.restore(record, op, now_ms)
    return 0


def gap(record: PartitionRecord, op: Gap, now_ms: int) -> int:
    """Finish a gap. Returns how many live leases and pending copies in it stay."""
    kept = 0
    if op.repair:
        doubt.add(record, op.start, op.end)
    start = max(op.start, record.watermark)
    for offset in sorted(o for o in record.slots if start <= o < op.end):
        if offset in record.finished:
            continue
        record.finished.add_range(start, offset)
        start = offset + 1
        if record.phase(offset, now_ms) in (Phase.LEASED, Phase.DEAD, Phase.MOVING):
            kept += 1
        else:
            record.exceptions[offset] = (Finish(op.reason or Finish.VANISHED), now_ms)
            record.finished.add(offset)
            record.texts.over(offset)
    if start < op.end:
        if op.reason and op.end - op.start == 1 and start not in record.finished:
            # It may have been delivered before a reset dropped its slot: no ack finishes it now.
            record.exceptions[start] = (Finish(op.reason), now_ms)
        record.finished.add_range(start, op.end)
    record.listed.update(record.finished.chunks)
    first = max(op.start, record.watermark)
    if first < op.end:
        record.touched.update(
            range(first >> SLOT_CHUNK_SHIFT, ((op.end - 1) >> SLOT_CHUNK_SHIFT) + 1)
        )
    return kept


def advance(record: PartitionRecord, offset: int, now_ms: int) -> None:
    """Move the watermark (never back); exceptions below it are kept for a while (R15).

    One that leads to an origin record stays as long as that does.
    """
    record.watermark = max(record.watermark, offset)
    for each, (reason, since_ms) in list(record.exceptions.items()):
        if each < record.watermark and now_ms - since_ms > EXCEPTIONS_KEEP_MS:
            del record.exceptions[each]
            if reason is Finish.SENT and each in record.origins:
                record.exceptions[each] = (reason, now_ms)
    copies.prune(record, now_ms)


def drop(record: PartitionRecord, confirmed: int) -> None:
    """Free the chunks that are wholly below a position that the broker has confirmed (R16)."""
    limit = min(confirmed, record.watermark)
    record.finished.drop_below(limit)
    record.listed = {i for i in record.listed if (i + 1) << CHUNK_SHIFT > limit}
    for offset in [o for o in record.slots if o < (limit >> SLOT_CHUNK_SHIFT << SLOT_CHUNK_SHIFT)]:
        del record.slots[offset]


def epoch_mark(epoch: int) -> int:
    """A reset epoch as it fits into an item; 0 is none."""
    return epoch % EPOCH_MARKS + 1


def replay(record: PartitionRecord, op: ReplayAck | ReplayFinished, now_ms: int) -> int:
    """Merge a finish that the store had confirmed before a rollback, by union (R10). Returns 1 if
    it is at or above the watermark.
    """
    if op.mark not in (0, epoch_mark(record.epoch)):
        return 0
    if isinstance(op, ReplayFinished):
        doubt.replayed(record, op.offset, now_ms)
    copies.replayed(record, op, now_ms)
    if op.offset < record.watermark:
        return 0
    record.finish(op.offset)
    return 1


def remake_chunk(record: PartitionRecord, index: int) -> None:
    """Make a lost chunk again, empty (R14)."""
    record.finished.chunks.setdefault(index, bytearray(CHUNK_BYTES))
    record.listed.add(index)


def reset(record: PartitionRecord, position: int, now_ms: int) -> None:
    """Begin a new reset epoch, as an operator moved the group. Live leases survive it (I3)."""
    record.doubt = 0, 0
    skipped = [
        offset
        for offset, slot in record.slots.items()
        if offset < position and slot.state is State.MOVING and not record.over(offset)
    ]
    record.slots = {
        offset: slot
        for offset, slot in record.slots.items()
        if offset >= position and record.phase(offset, now_ms) is Phase.LEASED
    }
    copies.skip(record, skipped)
    record.slots |= copies.reset(record, position, now_ms)
    _new_epoch(record, position)


def truncate(record: PartitionRecord, op: Truncate, now_ms: int) -> None:
    """Drop the leases and origin records of messages that a truncated log no longer has (R1).
    Unfinished messages below the cut stay.
    """
    record.slots = {
        offset: slot
        for offset, slot in record.slots.items()
        if offset < op.offset and not record.over(offset)
    }
    copies.reset(record, op.offset, now_ms)
    _new_epoch(record, op.watermark)


def _new_epoch(record: PartitionRecord, watermark: int) -> None:
    record.epoch += 1
    record.fence_floor = record.fence
    record.watermark = watermark
    record.texts.clear()
    record.finished.clear()
    record.listed.clear()


def free_full_chunks(record: PartitionRecord) -> None:
    """Free each chunk of 2^8 slots whose offsets are all finished, as the script does at the end
    of a call. Then a finished message above a stuck one costs one bit.
    """
    bits = SLOT_CHUNK_BITS_BYTES
    full = {
        index for index in record.touched if record.finished.full(index << SLOT_CHUNK_SHIFT, bits)
    }
    if len(full) << SLOT_CHUNK_SHIFT > len(record.slots):  # a wide gap touches more than there is
        gone = [offset for offset in record.slots if offset >> SLOT_CHUNK_SHIFT in full]
        for offset in gone:
            del record.slots[offset]
    else:
        for index in full:
            start = index << SLOT_CHUNK_SHIFT
            for offset in range(start, start + (1 << SLOT_CHUNK_SHIFT)):
                record.slots.pop(offset, None)
    record.touched.clear()


REPEATS = (Verb.REPLAY, Verb.RESTORE)
"""Verbs that write again what a rollback erased. The owner gets those of others in the journal."""
