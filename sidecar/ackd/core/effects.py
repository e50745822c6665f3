"""What a ledger decides and the engine does: plain values, in the order in which they were
decided.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FetchFrom:
    """Fetch this partition anew, from `offset` (a long finished stretch is skipped)."""

    offset: int


@dataclass(frozen=True, slots=True)
class SendDead:
    """The message was given up: store its copy in the dead-letter topic, then finish it.

    `fence` names the lease that ended so; it is the generation of the copy (rule R2).
    """

    offset: int
    fence: int
    attempt: int


@dataclass(frozen=True, slots=True)
class FinishRange:
    """[start, end) is not in the log: write it into the record.

    `reason` (`ackd.core.wire.Finish`, 0 = a plain hole) is for messages that had been handed out.
    """

    start: int
    end: int
    reason: int = 0


Effect = FetchFrom | SendDead | FinishRange
