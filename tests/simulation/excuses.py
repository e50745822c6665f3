"""What a loss of data excuses, and what it does not: the store forgot, and nobody could know."""

from __future__ import annotations

from ackd.core.bitmap import CHUNK_SHIFT
from tests.simulation.book import Ack, Book, Coordinate, Holding, Message
from tests.simulation.origin_records import without_origin
from tests.simulation.process import Process
from tests.simulation.world import World

FOREIGN_MEMORY_US = 9_500_000
"""Sidecars keep acks that they served for others' partitions at least ten seconds (R10)."""


class Excuses:
    """What was seen of a run, and what it allows."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.book = Book()

    def disturbed(self) -> bool:
        """The store forgot something, or an operator began an epoch: copies may be made again."""
        book = self.book
        epochs = any(ledger.epoch for ledger in book.ledgers.values())
        return bool(book.rollbacks or book.flushed_us or book.evicted or epochs)

    def still_held(self, holding: Holding, now_ms: int) -> bool:
        """Somebody knows that he holds it, and neither he nor a fault has ended that (I3, I4)."""
        since_us, now_us = holding.changed_us, self.world.now_us
        if (
            holding.ended
            or holding.lapsed
            or holding.told_ms <= now_ms
            or holding.told_us <= now_us
        ):
            return False
        cancelled_us = holding.cancelled_us
        if cancelled_us and self.book.rolled_back(cancelled_us, now_us) is None:
            return False  # an operator has ended its message, and the store has not forgotten that
        if self.book.flushed_since(since_us):
            return False
        return self.book.repaired_by(holding.told_by or holding.by, since_us, now_us)

    def _without_origin(self, at: Coordinate) -> bool:
        return without_origin(self.book, at, self.world.now_us)

    def _forgotten(self, at: Coordinate, holding: Holding, by: Process) -> bool:
        """A rollback lost the lease, and no owner's memory of it was there (I3: data loss)."""
        lost = self.book.rolled_back(holding.changed_us, self.world.now_us)
        if lost is None:
            return False
        return by is not holding.told_by or self.book.ledger(at.place).taken_us >= lost.at_us

    def _outranked(self, message: Message, holding: Holding) -> bool:
        """A rollback with a clock that is behind gave a smaller fence than before (R9)."""
        return any(
            each.fence > holding.fence and each.granted_us < holding.granted_us
            for each in message.holdings.values()
        )

    def _ack_excused(self, at: Coordinate, ack: Ack, epoch: int, by: Process) -> bool:
        """The listed ways in which an acked message may come again (I2)."""
        book, now_us = self.book, self.world.now_us
        if self._without_origin(at):
            return True
        if epoch > ack.epoch:
            return True  # `Seeks.reset` has made sure that an operator wanted this epoch
        for base, ranges, at_us in book.ledger(at.place).losses:
            if at_us > ack.applied_us and at.offset >= base and at.offset not in ranges:
                return True
        evicted = book.evicted.get((at.place, at.offset >> CHUNK_SHIFT))
        if evicted is not None and evicted[0] >= ack.applied_us:
            owner = evicted[1]
            if by is not owner and book.ledger(at.place).taken_us >= evicted[0]:
                return True  # handed over before the loss was noticed: only the commit knows
            return owner is not ack.by or not owner.undisturbed_since(ack.applied_us)
        lost = book.rolled_back(ack.applied_us, now_us)
        if lost is not None and lost.at_us - ack.applied_us > FOREIGN_MEMORY_US:
            return True
        return not book.repaired_by(ack.by, ack.applied_us, now_us)
