"""When a message is dead-lettered: after too many deliveries, or too long after the first one."""

from __future__ import annotations

from typing import Generic

from ackd.core.ledger.entry import B, Entry
from ackd.core.ledger.timers import TwoClocks


class LedgerLimits(Generic[B]):
    """`deliveries_max`: the deliveries after which a message is dead-lettered. `message_ttl_ms`:
    the ms since its first delivery after which it is, as soon as nobody works on it. 0 = never.
    """

    __slots__ = ("_clock", "deliveries_max", "message_ttl_ms")

    def __init__(self, clock: TwoClocks, deliveries_max: int, message_ttl_ms: int) -> None:
        self.deliveries_max = deliveries_max
        self.message_ttl_ms = message_ttl_ms
        self._clock = clock

    def used_up(self, entry: Entry[B]) -> bool:
        """Whether the message may not be delivered again."""
        return 0 < self.deliveries_max <= entry.attempt or self.out_of_time(entry)

    def out_of_time(self, entry: Entry[B]) -> bool:
        """Whether its first delivery was more than `message_ttl_ms` ago."""
        return (
            self.message_ttl_ms > 0
            and entry.first_s > 0
            and self.end_ms(entry) <= self._clock.seen_ms
        )

    def end_ms(self, entry: Entry[B]) -> int:
        """When its time is up (store's clock)."""
        return ttl_end_ms(entry.first_s, self.message_ttl_ms)


def ttl_end_ms(first_s: int, message_ttl_ms: int) -> int:
    """When a message's time is up. `first_s` is rounded down, so this adds 999 ms: never too
    early.
    """
    return first_s * 1000 + 999 + message_ttl_ms
