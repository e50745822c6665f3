"""What others' clients put off (`ackd.ports.Delay`): from the adapter into the record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ackd.core.ledger.effects import PutOff
from ackd.core.record.decide import ATTEMPT_MAX
from ackd.engine.partition.copy_notes import Copies
from ackd.engine.partition.partition import Partition
from ackd.ports import Delay

DUE_MS_MAX: Final = 0xFFFF_FFFF * 1000
"""What the record has room for, in 2106."""


def told(partition: Partition, session: int, delays: Mapping[int, Delay]) -> None:
    """The adapter is about to bring these; a copy of ackd's own is never among them."""
    if not partition.ledger.holds_copies:
        rows = ((offset, *_bounded(delay)) for offset, delay in sorted(delays.items()))
        partition.ledger.intake.put_off(session, rows)


def write(partition: Partition, effect: PutOff) -> None:
    """Tell the store. They count as first handed out when they are due: what gives a message up by
    its age must not do so before that.
    """
    partition.tell(
        *(
            Copies.place(offset, 0, attempt, due_ms, due_ms // 1000)
            for offset, attempt, due_ms in effect.messages
        )
    )


def _bounded(delay: Delay) -> tuple[int, int]:
    return min(max(delay.due_ms, 0), DUE_MS_MAX), min(max(delay.attempts, 0), ATTEMPT_MAX)
