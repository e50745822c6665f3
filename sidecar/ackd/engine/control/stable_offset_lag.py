"""Ends of logs that open transactions hold back (R33).

With `read_committed` nothing behind the first offset of an open transaction can be read, whoever
wrote it. The broker tells where readers are held and where the log ends; who holds it is known to
its own tools only.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

from ackd.engine.partition.partition import Partition
from ackd.ports import Clock, Consumer, SeesTransactions

TOLD_MS = 10_000
"""Shorter ones are the usual traffic of producers with transactions."""


@dataclass(slots=True)
class HeldEnd:
    """`offset`: the first that can't be read; `behind`: so many offsets with it; since when."""

    offset: int
    behind: int
    since_ms: int


class StableOffsetLag:
    """Of one subscription's partitions here."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._held: WeakKeyDictionary[Partition, HeldEnd] = WeakKeyDictionary()

    async def look(self, consumer: Consumer, partition: Partition, end: int) -> None:
        """Ask where the log really ends, unless there is more to be read. Raises BrokerError.

        `end`: where readers are held.
        """
        if not isinstance(consumer, SeesTransactions):
            return
        if partition.ledger.position < end:
            self._held.pop(partition, None)
            return
        behind = await consumer.log_end(partition.tp) - end
        known = self._held.get(partition)
        if behind <= 0:
            self._held.pop(partition, None)
        elif known is not None and known.offset == end:
            known.behind = behind
        else:
            self._held[partition] = HeldEnd(end, behind, self._clock.monotonic_ms())

    def held_ms(self, partition: Partition) -> int:
        """For how long the end has stood there; 0 when it is free."""
        held = self._held.get(partition)
        return 0 if held is None else self._clock.monotonic_ms() - held.since_ms

    def words(self, partition: Partition) -> str:
        """For people; empty when nothing is held, or not for long."""
        held, ms = self._held.get(partition), self.held_ms(partition)
        if held is None or ms < TOLD_MS:
            return ""
        return (
            f"held by an open transaction at offset {held.offset} for {ms // 1000} s or longer: "
            f"{held.behind} offsets can't be read before it ends"
        )
