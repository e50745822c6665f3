"""I6: what the all-seeing observer says about the order in which messages are handed out."""

from __future__ import annotations

from collections.abc import Mapping

from ackd.ports import Record
from tests.simulation.book import Book, Coordinate

PARTITION = -1
"""`Plan.ordered`: the whole partition is one line; 0: no order, else so many keys."""


def too_early(
    book: Book, records: Mapping[int, Record], at: Coordinate, keys: int
) -> Coordinate | None:
    """The earlier message of its key that is not over when this one is granted."""
    record = records.get(at.offset)
    if not keys or record is None or (keys > 0 and record.key is None):
        return None
    start = book.ledger(at.place).start
    for offset, earlier in records.items():
        if start <= offset < at.offset and (keys == PARTITION or earlier.key == record.key):
            each = at._replace(offset=offset)
            if not book.message(each).done:
                return each
    return None
