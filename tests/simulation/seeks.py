"""Resets and seeks, beside the other decisions of the store: once, and nothing is forgotten."""

from __future__ import annotations

from collections.abc import Callable

from ackd.core.ids import LedgerKey
from ackd.core.record.protocol import RecordReply
from ackd.engine.operations.seek_document import is_seek, read_seek
from tests.simulation.book import Book, Coordinate, Place
from tests.simulation.log import Topic

Fail = Callable[[str], None]


class Seeks:
    """Seeks that were written down, and what came of them. `carried`: copies and their origins."""

    def __init__(
        self,
        book: Book,
        carried: dict[Coordinate, Coordinate],
        topic: Callable[[bytes], Topic | None],
        fail: Fail,
    ) -> None:
        self._book = book
        self._carried = carried
        self._topic = topic
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
            place = Place(bytes.fromhex(target.topic_id), target.partition)
            ledger = self._book.ledger(place)
            messages = self._book.messages.items()
            ledger.over_before = {at for at, m in messages if at.place == place and m.done}
            ledger.resets.append(target.offset)
            ledger.seeks.add(target.offset)

    def epoch(self, at: Coordinate, reply: RecordReply) -> int:
        """Of resets of the message's own partition, whichever record was asked."""
        return max(reply.epoch, self._book.ledger(at.place).epoch)

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
            message.acked_us, copies = message.meanwhile
            message.copies += copies
        else:
            self._fail(f"I1: {name} skipped, and no copy has it")

    def reset(self, key: LedgerKey, position: int, epoch: int) -> None:
        """R8: every new epoch is one that an operator asked for, and a seek moves once."""
        place = Place(key.topic_id, key.partition)
        ledger = self._book.ledger(place)
        ledger.epoch = epoch
        self._comes_again(place, position)
        again = position in ledger.seeks and (self._book.rollbacks or self._book.flushed_us)
        if position in ledger.resets:
            ledger.resets.remove(position)
        elif not again:
            self._fail(f"R8: partition {key.partition} reset to {position} by nobody")
            return
        self.skip_below(place, position)

    def skip_below(self, place: Place, position: int) -> None:
        """The group has passed these. So their leases are over, unless they are forwarded.

        Those of a topic that was deleted while the seek ran are over, too.
        """
        topic = self._topic(place.topic_id)
        there = () if topic is None else topic.logs[place.partition].records
        known = {at.offset for at in self._book.messages if at.place == place}
        for offset in known.union(there):  # the log may have lost it
            if offset < position:
                message = self._book.message(Coordinate(*place, offset))
                message.skipped = True
                for holding in message.holdings.values():
                    holding.lapsed |= not message.sent

    def _comes_again(self, place: Place, position: int) -> None:
        """What was finished before a seek counts no more (I1); who has a lease goes on (I3).

        A copy that was under lease when the seek began may have come to its end since then. Only
        one that the seek kept, so skipped the message for, has use of that (`skipped`).
        """
        ledger = self._book.ledger(place)
        sought = position in ledger.seeks
        for retry_copy, origin in self._carried.items():
            message = self._book.message(origin)
            if origin.place == place and origin.offset >= position and message.settled(retry_copy):
                message.dismissed.add(retry_copy)
        for at, message in self._book.messages.items():
            if at.place == place and at.offset >= position:
                message.sent = message.skipped = False
                since = sought and at not in ledger.over_before
                message.meanwhile = (message.acked_us, (*message.copies,)) if since else (0, ())
                message.acked_before |= message.acked_us > 0
                message.acked_us, message.claimed_before = 0, message.claimed_by
                message.claimed_by = None
                message.again, message.moving = True, not sought
                message.copies.clear()
