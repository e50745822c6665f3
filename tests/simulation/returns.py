"""I4: what a lease lets go of comes again soon, also if it was made shorter at another sidecar."""

from __future__ import annotations

from typing import Final

from tests.simulation.book import Coordinate, Message, name_of
from tests.simulation.excuses import Excuses
from tests.simulation.plan import Plan
from tests.simulation.world import S

SETTLED_US: Final = 16 * S
"""After the last fault: sessions of the dead end, partitions are taken, pauses are over."""
BACK_US: Final = 6 * S
"""The bound. The promise is 0.1 s; here a copy may ask its origin record again meanwhile."""
HIDING: Final = frozenset(("clock", "flush", "evict", "store_silent", "change", "seek"))
"""Faults after which nobody can tell when a lease ends, or whether it may be handed out."""


class Returns:
    """Looks at leases that have ended by themselves."""

    def __init__(self, seen: Excuses, plan: Plan) -> None:
        self._seen = seen
        kinds = {act.kind for act in plan.acts}
        self._judged = not (plan.rate or plan.in_flight or plan.breaker or kinds & HIDING)
        failovers = sum(act.kind == "store_failover" for act in plan.acts)
        self._settled_us = SETTLED_US + failovers * 3 * S  # so far may each set the clock back
        self._grace_us = plan.grace_ms * 1000

    def late(self, calm_us: int) -> None:
        """Fail for one that has ended long ago and is with nobody."""
        if not self._judged:
            return
        for at, message in self._seen.book.messages.items():
            if at.topic_id in self._seen.book.retired:
                continue  # its topic was deleted, perhaps while it was under lease
            ended_us = self._ended_us(at, message)
            over_us = self._seen.world.now_us - max(ended_us, calm_us + self._settled_us)
            if ended_us and over_us > BACK_US:
                self._seen.world.fail(
                    f"I4: {name_of(at)} is not granted again {over_us // S} s after its lease ended"
                )

    def _ended_us(self, at: Coordinate, message: Message) -> int:
        """When its lease ended; 0: it has not, or nobody has to know."""
        newest, now_us = message.newest, self._seen.world.now_us
        if newest is None or newest.ended or message.done or message.exhausted:
            return 0
        end_us, written_us, by = newest.deadlines[newest.until_ms]
        if self._seen.book.rolled_back(written_us, now_us) is not None:
            # The store forgot that a lease was made shorter, or that another one came after it. No
            # repair makes a lease shorter, so the deadline that somebody once had counts again.
            times = [each.deadlines.values() for each in message.holdings.values()]
            end_us = max(each_us for each in times for each_us, _, _ in each)
        if end_us > now_us or not self._seen.book.repaired_by(by, written_us, now_us):
            return 0
        return end_us + self._grace_us
