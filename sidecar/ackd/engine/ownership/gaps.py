"""Offsets that a broker with individual acks passes over, as a filter leaves their messages out:
when they count as finished (I5), so that no message is ever lost by it (I1).

A broker gives the messages of a queue in the order of their offsets. So what is missing below a
message that came is left out, or was lost on its way here. Lost ones come again: as copies, which
have places of their own unless the store knows their ids, or at their old offsets when the broker
goes back in a crash, by what it gave in its last seconds. Neither can happen to a gap once

- all that the broker gave before a later message came has come (`Drew`),
- no question for messages failed in the minute before that, nor since, and
- no other sidecar had drawn beyond it, as it lies between messages that came here.

Those gaps are passed over after seconds. Others wait until the store has forgotten all ids of
before (`broker_acks.LAPSE_MS`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakKeyDictionary

from ackd.core.ledger.unordered import UnorderedLedger
from ackd.engine.base.context import Context
from ackd.engine.partition.owned import OwnedPartitions
from ackd.engine.partition.partition import Partition
from ackd.ports import Drew

PASSED_MS: Final = 10_000
"""A gap waits so long at least, so that a broker that has just died is known to be away."""
BROKEN_MS: Final = 60_000
"""After a crash a broker goes back by less than this: by `flushConsumerOffsetInterval` (5 s)."""


@dataclass(slots=True)
class _Drawn:
    """What came of a partition since this sidecar owns it, and was no copy.

    `first`: no other sidecar has had a message from here on. `lowest` came, and all below `next`,
    or it never will. `marks`: how far it had come when; `end`: passed over up to here. `since`: as
    `next`, since a question failed last.
    """

    first: int
    lowest: int
    next: int = 0
    end: int = 0
    since: int = 0
    marks: deque[tuple[int, int]] = field(default_factory=deque)


class Gaps:
    """Passes over gaps of one subscription's partitions."""

    def __init__(self, context: Context, partitions: OwnedPartitions) -> None:
        self._clock = context.clock
        self._partitions = partitions
        self._drawn: WeakKeyDictionary[Partition, _Drawn] = WeakKeyDictionary()
        self._drew: dict[str, Drew] = {}

    def drew(self, event: Drew) -> None:
        """All that was given until then has come."""
        before = self._drew.get(event.topic)
        self._drew[event.topic] = event
        if before is not None and before.broken_ms != event.broken_ms:
            for partition, drawn in self._drawn.items():
                if partition.tp.topic == event.topic:
                    drawn.since = 0

    def seen(self, topic: str) -> Drew:
        """The last event of this topic."""
        return self._drew.get(topic, Drew(topic, 0, 0))

    def came(self, partition: Partition, offsets: Iterable[int]) -> None:
        """The broker gave these messages at their own offsets."""
        found = sorted(offsets)
        if not found:
            return
        drawn = self._drawn.get(partition)
        if drawn is None:
            # Of a new record no other sidecar has ever had a message.
            new = partition.created and not partition.data_lost
            first = 0 if new else found[0]
            drawn = self._drawn[partition] = _Drawn(first, found[0])
        drawn.first, drawn.next = min(drawn.first, found[0]), max(drawn.next, found[-1] + 1)
        drawn.lowest = min(drawn.lowest, found[0])
        drawn.since = max(drawn.since, found[-1] + 1)

    def next_of(self, partition: Partition) -> int:
        """The offset behind the highest one that came at its own place; 0: none came yet."""
        drawn = self._drawn.get(partition)
        return 0 if drawn is None else drawn.next

    def first_of(self, partition: Partition) -> int | None:
        """The lowest offset that came at its own place since this sidecar owns the partition."""
        drawn = self._drawn.get(partition)
        return None if drawn is None else drawn.lowest

    def since_of(self, partition: Partition) -> int:
        """The same, since a question for messages failed last."""
        drawn = self._drawn.get(partition)
        return 0 if drawn is None else drawn.since

    def look(self) -> None:
        """Pass over what is due. Called about every half second."""
        now_ms = self._clock.monotonic_ms()
        for partition in list(self._partitions.owned.values()):
            drawn, drew = self._drawn.get(partition), self._drew.get(partition.tp.topic)
            ledger = partition.ledger
            if drawn is None or drew is None or not isinstance(ledger, UnorderedLedger):
                continue
            marks = drawn.marks
            if now_ms - drew.broken_ms < BROKEN_MS:
                marks.clear()
                continue
            if drawn.next > (marks[-1][1] if marks else drawn.end):
                marks.append((now_ms, drawn.next))
            before, due_ms = drawn.end, min(now_ms - PASSED_MS, drew.through_ms)
            while marks and marks[0][0] <= due_ms:
                drawn.end = marks.popleft()[1]
            if drawn.end > before and ledger.pass_over(drawn.first, drawn.end):
                partition.perform()
