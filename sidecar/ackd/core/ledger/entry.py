"""An unfinished message as its owner sees it."""

from __future__ import annotations

from enum import IntEnum
from typing import Generic, Protocol, TypeVar

from ackd.core.record.transitions import Outcome, State


class EntryStatus(IntEnum):
    """Where a message is, for its owner.

    CLAIMING: a carrier that may not be handed out before its home record says so. BURYING: the
    store is asked to give it up. PLACING: others put it off, and the store is told so.
    """

    READY = 0
    GRANTING = 1
    LEASED = 2
    WAITING = 3
    DEAD = 4
    SENDING = 5
    CLAIMING = 6
    BURYING = 7
    PLACING = 8


TIMED = frozenset({EntryStatus.LEASED, EntryStatus.WAITING, EntryStatus.CLAIMING})
"""These end, or are looked at again, at `Entry.due_ms`."""

HOLD_OF = {
    State.LEASED: EntryStatus.LEASED,
    State.WAITING: EntryStatus.WAITING,
    State.DEAD: EntryStatus.DEAD,
    State.SENDING: EntryStatus.SENDING,
}
"""Where a message is in each state of its slot; ready in every other one."""

STATE_AFTER = {
    Outcome.RETRYING: State.WAITING,
    Outcome.EXTENDED: State.LEASED,
    Outcome.RELEASED: State.RELEASED,
    Outcome.DEAD: State.DEAD,
}
"""The state of an unfinished message after a settle with this outcome."""


UNKNOWN_RTERM = -1
"""Nothing can be settled for such a lease before its slot was read again."""


class HeldBody(Protocol):
    """What the ledger must know of a fetched message; the rest is none of its business."""

    @property
    def offset(self) -> int:
        """Its place in the partition."""

    def size(self) -> int:
        """Bytes that it holds."""


B = TypeVar("B", bound=HeldBody)


class Entry(Generic[B]):
    """One message above the watermark.

    `due_ms`: end of its lease or its waiting on the owner's clock, `when_ms`: the same on the
    store's. `body` None: not fetched, so it can't be handed out. `gone`: the log does not have it
    any more. `spilled`: `body` only says where the body is kept.
    """

    __slots__ = (
        "attempt",
        "body",
        "due_ms",
        "fence",
        "first_s",
        "gone",
        "hold",
        "holder",
        "rterm",
        "size",
        "spilled",
        "when_ms",
    )

    def __init__(self, body: B | None, hold: EntryStatus = EntryStatus.READY) -> None:
        self.body = body
        self.size = 0 if body is None else body.size()
        self.hold = hold
        self.attempt = 0
        self.fence = 0
        self.rterm = 0
        self.due_ms = 0
        self.when_ms = 0
        self.first_s = 0
        self.holder = ""
        self.gone = False
        self.spilled = False
