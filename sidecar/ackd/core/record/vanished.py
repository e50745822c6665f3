"""A message that the log loses after its MOVE_TO_RETRY and before its copy is stored (R7).

The broker compacts it away, and the owner that had its body was killed. So there will be no copy.
"""

from __future__ import annotations

from ackd.core.record import copies
from ackd.core.record.operations import FinishOrigin
from ackd.core.record.protocol import Finish
from ackd.core.record.state import PartitionRecord
from ackd.core.record.transitions import Phase


def lets_go_ms(record: PartitionRecord, op: FinishOrigin, phase: Phase, now_ms: int) -> int:
    """When an original may be finished; 0 = now. The lease of a message that vanished is in its
    origin record and has to end first.
    """
    origin = record.origins.get(op.offset)
    if op.reason != Finish.VANISHED or phase is not Phase.MOVING:
        return 0
    if origin is None or origin.claimed_by is not None:
        return 0
    return record.held_until(origin.slot.phase(now_ms), origin.slot, now_ms, waiting=False)


def finish(record: PartitionRecord, offset: int, now_ms: int) -> Finish:
    """Close the origin record of a message that vanished. Returns how the message is finished.

    Nobody finishes a copy that does not exist, so the record leaves the key queue now. If a former
    owner has stored a copy after all, that may still claim the record for a while.
    """
    origin = record.origins.get(offset)
    if origin is None or origin.closed_ms:
        return Finish.VANISHED
    if origin.claimed_by is not None:
        return Finish.SENT
    copies.leave(record, offset, origin)
    copies.mark_closed(record, offset, origin, now_ms)
    return Finish.VANISHED
