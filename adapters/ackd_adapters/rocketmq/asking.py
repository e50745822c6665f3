"""Which questions for messages are pending: so that ackd knows when all that the broker gave has
come.
"""

from __future__ import annotations

import itertools

from ackd.ports import Drew
from ackd_adapters.rocketmq.holds import monotonic_ms


class PendingQuestions:
    """The questions of one consumer, by topic."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._pending: dict[str, dict[int, int]] = {}
        self._broken: dict[str, int] = {}

    def asks(self, topic: str) -> int:
        """A question is sent now. Returns its number."""
        number = next(self._numbers)
        self._pending.setdefault(topic, {})[number] = monotonic_ms()
        return number

    def failed(self, topic: str, number: int) -> Drew:
        """It got no answer, or not the whole of it."""
        self._broken[topic] = monotonic_ms()
        return self.answered(topic, number)

    def answered(self, topic: str, number: int) -> Drew:
        """The whole answer was passed on. What pending ones got may be on its way."""
        pending = self._pending[topic]
        del pending[number]
        through_ms = min(pending.values(), default=monotonic_ms())
        return Drew(topic, through_ms, self._broken.get(topic, 0))
