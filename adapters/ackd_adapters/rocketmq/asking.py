"""Which questions for messages are pending: so that ackd knows when all that the broker gave has
come, and a consumer closes after them.

What a cancelled one draws the proxy gives back by itself, and the broker loses some of it: in the
same millisecond its new checkpoint has the name of the one that it replaces.
"""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress

from ackd.ports import Drew
from ackd_adapters.rocketmq.holds import monotonic_ms


class PendingQuestions:
    """The questions of one consumer, by topic."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._pending: dict[str, dict[int, int]] = {}
        self._broken: dict[str, int] = {}
        self._none = asyncio.Event()
        self._none.set()

    def asks(self, topic: str) -> int:
        """A question is sent now. Returns its number."""
        self._none.clear()
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
        if not any(self._pending.values()):
            self._none.set()
        through_ms = min(pending.values(), default=monotonic_ms())
        return Drew(topic, through_ms, self._broken.get(topic, 0))

    async def ended(self, within_s: float) -> None:
        """Wait until none is pending, for a bounded time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._none.wait()
