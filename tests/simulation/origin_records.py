"""What the simulator knows of messages that were sent back: their origin records, their claims (R2,
R10).
"""

from __future__ import annotations

from ackd.core.record.protocol import OpResult
from ackd.core.record.transitions import Outcome
from tests.simulation.book import Book, Coordinate, Holding, Message
from tests.simulation.process import Process

MEMORY_US = 9_500_000
"""Sidecars keep what they sent back and claimed for at least ten seconds (R10)."""


def noted(message: Message, by: Process, result: OpResult, now_us: int) -> None:
    """Who has sent it back or claimed it."""
    if result.outcome in (Outcome.SENT, Outcome.CLAIMED):
        message.moved_by.append((by, now_us))


def unknown(book: Book, at: Coordinate, since_us: int = 0) -> bool:
    """The whole record was lost: nobody can tell what became of its origin records (R2, data loss).

    So it is from that moment on, not only since an owner has made the record anew. A topic that was
    deleted has no owner any more who would repair its records after a failover.
    """
    if at.topic_id in book.retired and book.failovers:
        return True
    ledger = book.ledger(at.place)
    times = (*ledger.gone_us, *(at_us for _, _, at_us in ledger.losses))
    return any(at_us >= since_us for at_us in times)


def without_origin(book: Book, at: Coordinate, now_us: int) -> bool:
    """A rollback forgot that it was sent back or claimed, and who did it died with its memory.

    Then the message is in the window again and its copy is in the topic: both may be delivered
    (listed in docs/guarantees.md), because neither may be dropped (I1).
    """
    for by, at_us in book.message(at).moved_by:
        if unknown(book, at, at_us):
            return True
        lost = book.rolled_back(at_us, now_us)
        if lost is not None and lost.at_us - at_us > MEMORY_US:
            return True
        if not book.repaired_by(by, at_us, now_us):
            return True
    return False


def apart(book: Book, at: Coordinate, one: Holding, other: Holding, now_us: int) -> bool:
    """One lease is of the copy, one of the message itself, and no origin record ties them (I3: data
    loss).

    Neither is older or newer to the other's record (R17): each decides its own.
    """
    return one.at != other.at and without_origin(book, at, now_us)


def lapsed(message: Message, now_ms: int) -> None:
    """The origin record has decided by its own clock that the lease there is over (I4).

    A jump that nobody measured (R23) may be in its clock and not in that of the copy's record.
    """
    for holding in message.holdings.values():
        holding.lapsed |= holding.told_ms <= now_ms
