"""What a seek may do, beside the other decisions of the store: once, and nothing is forgotten."""

from __future__ import annotations

from collections.abc import Callable

from ackd.core.wire import Reply
from ackd.engine.seek_document import is_seek, read_seek
from tests.simulation.book import Book, Coordinate, Place

Fail = Callable[[str], None]


class Seeks:
    """Seeks that were written down, and what came of them. `carried`: copies and their origins."""

    def __init__(self, book: Book, carried: dict[Coordinate, Coordinate], fail: Fail) -> None:
        self._book = book
        self._carried = carried
        self._fail = fail
        self._seen: set[str] = set()

    def written(self, name: str, value: bytes) -> None:
        """A value was set. A new seek is once, for each of its partitions, what somebody wants."""
        if not (name.startswith("operation:") and is_seek(value)):
            return
        document = read_seek(value)
        if document.id in self._seen:
            return
        self._seen.add(document.id)
        for target in document.targets:
            ledger = self._book.ledger(Place(bytes.fromhex(target.topic_id), target.partition))
            ledger.resets.append(target.offset)
            ledger.seeks.add(target.offset)

    def epoch(self, at: Coordinate, reply: Reply) -> int:
        """Of resets of the message's own partition, whichever record was asked."""
        return max(reply.epoch, self._book.ledger(at.place).epoch) if self._seen else reply.epoch

    def skipped(self, at: Coordinate) -> None:
        """A seek finishes a copy of what comes again, or what a copy under lease stands for."""
        origin = self._carried.get(at, at)
        message = self._book.message(origin)
        name = f"{origin.partition}/{origin.offset}"
        if origin != at:
            message.dismissed.add(at)
            if not self._book.ledger(origin.place).epoch:
                self._fail(f"R8: a copy of {name} dismissed; it does not come again")
        elif message.claimed_before is not None:
            message.sent, message.claimed_by = True, message.claimed_before
        else:
            self._fail(f"I1: {name} skipped, and no copy has it")

    def moved(self, place: Place, position: int) -> None:
        """What was finished before a seek counts no more (I1); who has a lease goes on (I3)."""
        if position not in self._book.ledger(place).seeks:
            return
        for carrier, origin in self._carried.items():
            message = self._book.message(origin)
            if origin.place == place and origin.offset >= position and message.settled(carrier):
                message.dismissed.add(carrier)
        for at, message in self._book.messages.items():
            if at.place == place and at.offset >= position:
                message.sent = message.skipped = False
                message.acked_us, message.claimed_before = 0, message.claimed_by
                message.claimed_by = None
                message.copies.clear()
