"""An unfinished message as its owner sees it."""

from __future__ import annotations

from enum import IntEnum
from typing import Generic, Protocol, TypeVar

from ackd.core.record.settles import OF_OUTCOME
from ackd.core.record.transitions import State


class EntryStatus(IntEnum):
    """What the owner is doing with a message.

    CLAIMING: a retry copy that waits until its origin record allows its delivery. EXHAUSTED: the
    owner has asked the store to dead-letter it. PLACING: another client delayed it, and the owner
    is writing that delay into the record.
    """

    READY = 0
    GRANTING = 1
    LEASED = 2
    WAITING = 3
    DEAD = 4
    MOVING = 5
    CLAIMING = 6
    EXHAUSTED = 7
    PLACING = 8


TIMED = frozenset({EntryStatus.LEASED, EntryStatus.WAITING, EntryStatus.CLAIMING})
"""An entry with one of these statuses ends, or is checked again, at `Entry.due_ms`."""

STATUS_OF = {
    State.LEASED: EntryStatus.LEASED,
    State.WAITING: EntryStatus.WAITING,
    State.DEAD: EntryStatus.DEAD,
    State.MOVING: EntryStatus.MOVING,
}
"""The status of a message for each state of its slot; READY for every other state."""

STATE_AFTER = {
    outcome: rule.state for outcome, rule in OF_OUTCOME.items() if rule.state is not State.FINISHED
}
"""The state of an unfinished message after a settle with this outcome."""


UNKNOWN_ROLLBACK_EPOCH = -1
"""The owner does not know this lease's rollback epoch. It must read the slot again before it can
settle the lease."""


class HeldBody(Protocol):
    """What the ledger needs to know about a fetched message."""

    @property
    def offset(self) -> int: ...

    def size(self) -> int:
        """Bytes of memory that the message takes."""


B = TypeVar("B", bound=HeldBody)


class Entry(Generic[B]):
    """One message above the watermark.

    `due_ms`: end of its lease or its delay on the owner's clock. `when_ms`: the same on the store's
    clock. `body` None: not fetched, so it can't be delivered. `gone`: the log no longer has it.
    `spilled`: `body` is a stub that says where the body is stored.
    """

    __slots__ = (
        "attempt",
        "body",
        "due_ms",
        "fence",
        "first_s",
        "gone",
        "holder",
        "rollback_epoch",
        "size",
        "spilled",
        "status",
        "when_ms",
    )

    def __init__(self, body: B | None, status: EntryStatus = EntryStatus.READY) -> None:
        self.body = body
        self.size = 0 if body is None else body.size()
        self.status = status
        self.attempt = 0
        self.fence = 0
        self.rollback_epoch = 0
        self.due_ms = 0
        self.when_ms = 0
        self.first_s = 0
        self.holder = ""
        self.gone = False
        self.spilled = False
