"""Delays that other clients gave to messages (`ackd.ports.Delay`): from the adapter into the
record.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ackd.core.ledger.effects import StoreForeignDelays
from ackd.core.record.decide import ATTEMPT_MAX
from ackd.engine.partition.copy_notes import Copies
from ackd.engine.partition.partition import Partition
from ackd.ports import Delay

DUE_MS_MAX: Final = 0xFFFF_FFFF * 1000
"""The latest time that the record has room for, in 2106."""


def reported(partition: Partition, session: int, delays: Mapping[int, Delay]) -> None:
    """Give the ledger the delays of messages that the adapter is about to bring. ackd's own copies
    have none.
    """
    if not partition.ledger.holds_copies:
        rows = ((offset, *_bounded(delay)) for offset, delay in sorted(delays.items()))
        partition.ledger.intake.foreign_delays(session, rows)


def write(partition: Partition, effect: StoreForeignDelays) -> None:
    """Write the delays into the record. A delayed message counts as first delivered when it is due:
    a message TTL must not dead-letter it before that.
    """
    partition.tell(
        *(
            Copies.place(offset, 0, attempt, due_ms, due_ms // 1000)
            for offset, attempt, due_ms in effect.messages
        )
    )


def _bounded(delay: Delay) -> tuple[int, int]:
    return min(max(delay.due_ms, 0), DUE_MS_MAX), min(max(delay.attempts, 0), ATTEMPT_MAX)
