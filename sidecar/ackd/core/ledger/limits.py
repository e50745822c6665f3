"""When a message is given up: it was handed out too often, or too long ago."""

from __future__ import annotations

from typing import Generic

from ackd.core.ledger.entry import B, Entry
from ackd.core.ledger.timers import TwoClocks


class LedgerLimits(Generic[B]):
    """`deliveries_max`: a message that was handed out so often is given up. `give_up_ms`: so is one
    that was first handed out so long ago, as soon as nobody works on it. 0 = never.
    """

    __slots__ = ("_clock", "deliveries_max", "give_up_ms")

    def __init__(self, clock: TwoClocks, deliveries_max: int, give_up_ms: int) -> None:
        self.deliveries_max = deliveries_max
        self.give_up_ms = give_up_ms
        self._clock = clock

    def used_up(self, entry: Entry[B]) -> bool:
        """Nobody may have the message any more."""
        return 0 < self.deliveries_max <= entry.attempt or self.out_of_time(entry)

    def out_of_time(self, entry: Entry[B]) -> bool:
        """It was first handed out so long ago that it is given up."""
        return (
            self.give_up_ms > 0 and entry.first_s > 0 and self.end_ms(entry) <= self._clock.seen_ms
        )

    def end_ms(self, entry: Entry[B]) -> int:
        """When it is given up (store's clock). `first_s` is cut to seconds: never too early."""
        return entry.first_s * 1000 + 999 + self.give_up_ms
