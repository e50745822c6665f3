"""Offsets that a broker with individual acks passes over, as a filter leaves their messages out:
when they count as finished (I5), so that no message is ever lost by it (I1).

A broker gives the messages of a queue in the order of their offsets. So what is missing below a
message that came is left out, or was lost on its way here. Lost ones come again: as copies, which
have places of their own unless the store knows their ids, or at their old offsets when the broker
goes back in a crash, by what it gave in its last seconds. Neither can happen to a gap once

- all that the broker gave before a later message came has come (`Drew`),
- no question for messages failed in the minute and the hold before that, nor since,
- what came since the last failure reaches beyond it, as a broker that went back gives all again in
  order, however long it waits for room here, and
- no other sidecar can have had a message there: it lies between messages that came here, above all
  that the record knew when this sidecar took it, and above what came while the owner of before may
  not have noticed that yet.

Those gaps are passed over after seconds, where there is a filter: else somebody has moved the group
ahead at the broker, and may move it back. Others wait until the store has forgotten all ids of
before (`broker_acks.LAPSE_MS`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
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

UNNOTICED_MS: Final = 10_000
"""Until then an owner of before has noticed that it is none, by its heartbeats, and gives no places
(`BrokerAckFlow`): a multiple of `UNCONFIRMED_MS`.
"""


@dataclass(slots=True)
class _Drawn:
    """What came of a partition since this sidecar owns it, and was no copy.

    `known`: where what others may have had ends, `first`: no other sidecar has had a message from
    here on; None: not known before `sure_ms`. `next`: behind the highest one since a question
    failed last. `marks`: how far it had come when; `end`: passed over up to here.
    """

    known: int
    sure_ms: int
    first: int | None
    next: int = 0
    end: int = 0
    marks: deque[tuple[int, int]] = field(default_factory=deque)


class Gaps:
    """Passes over gaps of one subscription's partitions. `hold_ms`: after that, what was lost on
    its way comes as a copy.
    """

    def __init__(self, context: Context, partitions: OwnedPartitions, hold_ms: int) -> None:
        self._clock = context.clock
        self._partitions = partitions
        self._hold_ms = hold_ms
        self._drawn: WeakKeyDictionary[Partition, _Drawn] = WeakKeyDictionary()
        self._drew: dict[str, Drew] = {}

    def drew(self, event: Drew) -> None:
        """All that was given until then has come."""
        before = self._drew.get(event.topic)
        self._drew[event.topic] = event
        if event.broken_ms == (0 if before is None else before.broken_ms):
            return
        for partition, drawn in self._drawn.items():
            if partition.tp.topic == event.topic:
                drawn.next = 0
                drawn.marks.clear()

    def came(self, partition: Partition, offsets: Iterable[int]) -> None:
        """The broker gave these messages at their own offsets. Called before the ledger gets
        them.
        """
        found = sorted(offsets)
        if not found:
            return
        drawn, now_ms = self._drawn.get(partition), self._clock.monotonic_ms()
        if drawn is None:
            # Of a new record no other sidecar has ever had a message.
            new = partition.created and not partition.data_lost
            known, sure_ms = _known_to(partition), now_ms + UNNOTICED_MS
            drawn = self._drawn[partition] = _Drawn(known, sure_ms, 0 if new else None)
        if drawn.first is None and now_ms < drawn.sure_ms:
            drawn.known = max(drawn.known, found[-1] + 1)
        elif drawn.first is None:
            # Never lower than that later: a broker that goes back brings again what others had.
            drawn.first = next((each for each in found if each >= drawn.known), None)
        drawn.next = max(drawn.next, found[-1] + 1)

    def broken_ms(self, topic: str) -> int:
        """When a question failed last; 0: none did."""
        drew = self._drew.get(topic)
        return 0 if drew is None else drew.broken_ms

    def look(self, waits: Callable[[Partition], bool]) -> None:
        """Pass over what is due. Called about every half second. `waits`: whether a seek may bring
        messages of this partition.
        """
        now_ms = self._clock.monotonic_ms()
        for partition in list(self._partitions.owned.values()):
            drawn, drew = self._drawn.get(partition), self._drew.get(partition.tp.topic)
            ledger = partition.ledger
            if drawn is None or drew is None or not isinstance(ledger, UnorderedLedger):
                continue
            marks, first = drawn.marks, drawn.first
            until_ms = drew.broken_ms + BROKEN_MS + self._hold_ms if drew.broken_ms else 0
            if first is None or now_ms < until_ms or waits(partition):
                marks.clear()
                continue
            if drawn.next > (marks[-1][1] if marks else drawn.end):
                marks.append((now_ms, drawn.next))
            before, due_ms = drawn.end, min(now_ms - PASSED_MS, drew.through_ms)
            while marks and marks[0][0] <= due_ms:
                drawn.end = marks.popleft()[1]
            if drawn.end > before and ledger.pass_over(first, drawn.end):
                partition.perform()


def _known_to(partition: Partition) -> int:
    """The offset behind all that the ledger knows."""
    ledger = partition.ledger
    highest = ledger.finished.highest()
    ends = [ledger.watermark, *(each + 1 for each in ledger.entries)]
    return max(ends if highest is None else [*ends, highest + 1])
