"""Parked keys: of a key that was sent back, only the first message may be delivered (R19, I6).

What is stuck in an ordered subscription is the key. Its first message gets a home, and every later
one that the owner meets follows it, each with a home of its own. The homes of a key form a line in
the order in which they were parked, which is the order of their offsets. A copy may claim only the
first home of its line; a home leaves the line when its message is acked there, or when the copy
that has claimed it is finished. The script that takes the last one out frees the key.

The line is kept beside the homes and goes with them, so that it can't be lost alone (R14).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ackd.core.record.protocol import Result
from ackd.core.record.transitions import Outcome, State

if TYPE_CHECKING:
    from ackd.core.record.copies import Home
    from ackd.core.record.decide import Record


def park(record: Record, key: int, offset: int) -> None:
    """To the end of its line. One from before the first (a rollback forgot its ack) goes first."""
    line = record.parked.setdefault(key, [])
    if line and offset < line[0]:
        line.insert(0, offset)
    else:
        line.append(offset)


def leave(record: Record, offset: int, home: Home) -> None:
    """Its message is over: it holds back no other one."""
    if not home.key:
        return
    line = record.parked[home.key]
    line.remove(offset)
    if not line:
        del record.parked[home.key]
    home.key = 0


def behind(record: Record, key: int) -> Result:
    """About the first of a line; see `Outcome.BEHIND`."""
    first = record.parked[key][0]
    partition, place = record.homes[first].carrier or (0, -1)
    return Result(Outcome.BEHIND, State.SENDING, 0, first, place + 1, partition, late=False)


def head(record: Record, key: int) -> Result:
    """Who holds a key back: BEHIND, or FINISHED when it is free."""
    if key in record.parked:
        return behind(record, key)
    return Result(Outcome.FINISHED, State.READY, 0, 0, 0, 0, late=False)
