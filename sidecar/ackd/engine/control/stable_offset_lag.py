"""Measures how far open transactions hold readers back from the ends of logs (R33).

With `read_committed` nobody can read past the first offset of an open transaction, whoever wrote
it. The broker reports where it holds readers and where the log ends; only the broker's own tools
name the transaction that holds them.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

from ackd.engine.partition.partition import Partition
from ackd.ports import Clock, Consumer, SeesTransactions

SHOWN_MS = 10_000
"""Shorter holds are normal traffic of transactional producers and are not reported."""


@dataclass(slots=True)
class StableOffset:
    """`offset`: the first that can't be read; `waiting`: how many offsets from it on are held;
    `since_ms`: since when.
    """

    offset: int
    waiting: int
    since_ms: int


class StableOffsetLag:
    """Tracks the partitions of one subscription on this sidecar."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._held: WeakKeyDictionary[Partition, StableOffset] = WeakKeyDictionary()

    async def look(self, consumer: Consumer, partition: Partition, end: int) -> None:
        """Ask where the log really ends, unless there is more to read first. Raises BrokerError.

        `end`: the offset at which the broker holds readers.
        """
        if not isinstance(consumer, SeesTransactions):
            return
        if partition.ledger.position < end:
            self._held.pop(partition, None)
            return
        waiting = await consumer.log_end(partition.tp) - end
        known = self._held.get(partition)
        if waiting <= 0:
            self._held.pop(partition, None)
        elif known is not None and known.offset == end:
            known.waiting = waiting
        else:
            self._held[partition] = StableOffset(end, waiting, self._clock.monotonic_ms())

    def held_ms(self, partition: Partition) -> int:
        """How long the broker has held readers at this offset; 0 when it does not."""
        held = self._held.get(partition)
        return 0 if held is None else self._clock.monotonic_ms() - held.since_ms

    def words(self, partition: Partition) -> str:
        """A sentence for people; empty when nothing is held, or not for long."""
        held, ms = self._held.get(partition), self.held_ms(partition)
        if held is None or ms < SHOWN_MS:
            return ""
        return (
            f"held by an open transaction at offset {held.offset} for {ms // 1000} s or longer: "
            f"{held.waiting} offsets can't be read before it ends"
        )
