"""What an owner does to a record besides leases: holes, watermark, freeing, repair, reset.

Each function changes the record and returns a number for the result (0 where there is nothing to
say).
"""

from __future__ import annotations

from collections.abc import Callable

from ackd.core.ledger.bitmap import CHUNK_BYTES, CHUNK_SHIFT
from ackd.core.record import copies, doubt
from ackd.core.record.protocol import Finish, Op
from ackd.core.record.slot import SLOT_CHUNK_SHIFT
from ackd.core.record.state import Record
from ackd.core.record.transitions import Phase, Verb

EXCEPTIONS_KEEP_MS = 13 * 3_600_000
"""Longer than the longest lease (12 h), so that no token outlives what it is told (R15)."""
HOMES = 2
"""`arg` of a REPLAY that is about the homes."""
EPOCH_MARKS = 0x7FFF
SLOT_CHUNK_BITS_BYTES = 1 << (SLOT_CHUNK_SHIFT - 3)


def hole(record: Record, op: Op, now_ms: int) -> int:
    """Finish [offset, arg) except live leases and pending copies; returns how many those are.

    `group` names the reason (`Finish`) for messages that had been handed out before.
    """
    kept = 0
    doubt.add(record, op, op.offset, op.arg)
    start = max(op.offset, record.watermark)
    for offset in sorted(o for o in record.slots if start <= o < op.arg):
        if offset in record.finished:
            continue
        record.finished.add_range(start, offset)
        start = offset + 1
        if record.phase(offset, now_ms) in (Phase.LEASED, Phase.DEAD, Phase.SENDING):
            kept += 1
        else:
            record.exceptions[offset] = (Finish(op.group or Finish.VANISHED), now_ms)
            record.finished.add(offset)
            record.errors.over(offset)
    if start < op.arg:
        record.finished.add_range(start, op.arg)
    record.listed.update(record.finished.chunks)
    first = max(op.offset, record.watermark)
    if first < op.arg:
        record.touched.update(
            range(first >> SLOT_CHUNK_SHIFT, ((op.arg - 1) >> SLOT_CHUNK_SHIFT) + 1)
        )
    return kept


def advance(record: Record, op: Op, now_ms: int) -> int:
    """Move the watermark (never back); exceptions below it are kept for a while (R15).

    One that leads to a home stays as long as that is there.
    """
    doubt.add(record, op, record.watermark, op.offset)
    record.watermark = max(record.watermark, op.offset)
    for offset, (reason, since_ms) in list(record.exceptions.items()):
        if offset < record.watermark and now_ms - since_ms > EXCEPTIONS_KEEP_MS:
            del record.exceptions[offset]
            if reason is Finish.SENT and offset in record.homes:
                record.exceptions[offset] = (reason, now_ms)
    copies.prune(record, now_ms)
    return 0


def drop(record: Record, op: Op, now_ms: int) -> int:  # noqa: ARG001 - one shape for all
    """Free what lies wholly below a position that the broker has confirmed (R16)."""
    limit = min(op.offset, record.watermark)
    record.finished.drop_below(limit)
    record.listed = {i for i in record.listed if (i + 1) << CHUNK_SHIFT > limit}
    for offset in [o for o in record.slots if o < (limit >> SLOT_CHUNK_SHIFT << SLOT_CHUNK_SHIFT)]:
        del record.slots[offset]
    return 0


def epoch_mark(epoch: int) -> int:
    """A reset epoch as it fits into an item; 0 is none."""
    return epoch % EPOCH_MARKS + 1


def replay(record: Record, op: Op, now_ms: int) -> int:
    """A finish that was confirmed before a rollback: merged by union (R10). Returns 1 if it is at
    or above the watermark. `group`: only if this is (the mark of) the record's epoch.

    With `arg` 1 nothing is finished: a lost chunk is only made again, empty; with 2 the record goes
    on without its lost homes.
    """
    if op.arg == HOMES:
        copies.forget_all(record, op.rterm)
    elif op.arg:
        record.finished.chunks.setdefault(op.offset >> CHUNK_SHIFT, bytearray(CHUNK_BYTES))
        record.listed.add(op.offset >> CHUNK_SHIFT)
    elif op.group in (0, epoch_mark(record.epoch)):
        doubt.replayed(record, op, now_ms)
        copies.replayed(record, op, now_ms)
        if op.offset >= record.watermark:
            record.finish(op.offset)
            return 1
    return 0


def reset(record: Record, op: Op, now_ms: int) -> int:
    """An operator moved the group: a new epoch. Live leases survive it (I3).

    With `arg` the log was truncated: the messages at or above the offset are gone, their leases and
    homes too (R1). What is open below it stays, and the watermark goes to `arg` - 1.
    """
    record.epoch += 1
    record.fence_floor = record.fence
    slots, over = record.slots, record.watermark
    if op.arg:
        record.slots = {
            offset: slot
            for offset, slot in slots.items()
            if over <= offset < op.offset and offset not in record.finished
        }
        copies.reset(record, op.offset, now_ms)
    else:
        record.doubt = 0, 0
        record.slots = {
            offset: slot
            for offset, slot in slots.items()
            if offset >= op.offset and record.phase(offset, now_ms) is Phase.LEASED
        }
        record.slots |= copies.reset(record, op.offset, now_ms)
    record.watermark = op.arg - 1 if op.arg else op.offset
    record.errors.clear()
    record.finished.clear()
    record.listed.clear()
    return 0


def settled(record: Record, op: Op, now_ms: int) -> int:  # noqa: ARG001 - one shape for all
    """Every sidecar has replayed: granting goes on."""
    record.repair_until_ms = 0
    return 0


def tidy(record: Record) -> None:
    """Free slots of which all 2^8 offsets are finished, as the store does at the end of a call.

    So what is finished above a stuck head costs its bits and nothing else.
    """
    for index in sorted(record.touched):
        start = index << SLOT_CHUNK_SHIFT
        if record.finished.full(start, SLOT_CHUNK_BITS_BYTES):
            for offset in range(start, start + (1 << SLOT_CHUNK_SHIFT)):
                record.slots.pop(offset, None)
    record.touched.clear()


VERBS: dict[Verb, Callable[[Record, Op, int], int]] = {
    Verb.HOLE: hole,
    Verb.ADVANCE: advance,
    Verb.DROP: drop,
    Verb.REPLAY: replay,
    Verb.RESET: reset,
    Verb.SETTLED: settled,
    Verb.RESTORE: copies.restore,
}
REPEATS = (Verb.REPLAY, Verb.RESTORE)
"""What a rollback forgot is written again by these; others' are told to the owner."""
