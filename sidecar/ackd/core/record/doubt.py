"""Offsets that a repair reports as finished without knowing how (R10, R15, I7).

After a rollback the owner, or its commit, knows which messages were finished, but not whether by an
ack or by a move to the retry topic. The same holds below the start of a record that is made anew.
`PartitionRecord.doubt` bounds such offsets. There the record never answers "already acked" to an
older lease: it takes the ack as a new one, and the copy learns of it when it claims. A lease that
lives in the record goes on in an origin record, as if its message had just moved.
"""

from __future__ import annotations

from dataclasses import replace

from ackd.core.record import copies
from ackd.core.record.operations import Settle
from ackd.core.record.protocol import OpResult
from ackd.core.record.state import OriginRecord, PartitionRecord
from ackd.core.record.transitions import Outcome, Phase, State, Verb


def add(record: PartitionRecord, first: int, end: int) -> None:
    """A repair finishes [first, end): widen `doubt` to include it."""
    if first < end:
        before = record.doubt if record.doubt[1] else (first, end)
        record.doubt = min(before[0], first), max(before[1], end)


def replayed(record: PartitionRecord, offset: int, now_ms: int) -> None:
    """A sidecar replays a finish without knowing whether it was an ack."""
    if record.over(offset):
        return
    add(record, offset, offset + 1)
    slot = record.slots.get(offset)
    known = offset in record.origins or record.origins_lost
    if slot is not None and not known and slot.phase(now_ms) is Phase.LEASED:
        # Closed at once, since most are never used again. It stays while its lease lives.
        record.origins[offset] = OriginRecord(
            replace(slot), slot.fence, closed_ms=now_ms, signs=True
        )
        record.origin_count += 1
        record.closing.append((now_ms, offset))


def settle(record: PartitionRecord, op: Settle, phase: Phase, now_ms: int) -> OpResult | None:
    """Answer a settle that an origin record decides, or one of a message that is finished in an
    unknown way. None for all others.
    """
    if copies.decides(record, op, phase, now_ms):
        return copies.settle(record, op, now_ms)
    first, end = record.doubt
    unknown = phase is Phase.ACKED and first <= op.offset < end and op.offset not in record.origins
    if (
        op.verb is not Verb.ACK
        or not unknown
        or op.rollback_epoch == record.rollback_epoch
        or record.origins_lost
    ):
        return None
    slot = record.slot(op.offset)
    if now_ms < record.repair_until_ms:
        return slot.result(Outcome.UNREPAIRED, state=State.FINISHED)
    copies.acked_as(record, op.offset, op.fence + 1, now_ms)
    slot = replace(slot, fence=op.fence + 1)
    return slot.result(Outcome.ACKED, state=State.FINISHED)
