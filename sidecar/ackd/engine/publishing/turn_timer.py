"""Says when the next turn of a loop over an outbox begins."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from ackd.ports import Clock

TURN_MS = 10
"""Least time from one turn to the next: messages that come meanwhile go together."""
IN_A_TURN = 1 << 62
"""Not asleep: the running turn may miss what comes now, so another follows at once."""


class TurnTimer:
    """`begin`, a turn, `sleep`, and so on. Anybody may end the sleep."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wake = asyncio.Event()
        self._began_ms = 0
        self._sleeps_until_ms = IN_A_TURN

    def wake(self) -> None:
        """End the sleep, or let none follow the turn that runs."""
        self._wake.set()

    def due_in(self, delay_ms: int) -> None:
        """End the sleep if it would last longer than `delay_ms` from now."""
        if self._clock.monotonic_ms() + delay_ms < self._sleeps_until_ms:
            self._wake.set()

    def begin(self) -> None:
        """Begin a turn: wakes from now on count for the sleep after it."""
        self._wake.clear()
        self._began_ms = self._clock.monotonic_ms()

    async def sleep(self, pause_ms: int) -> None:
        """The turn is over: wait until the next one should begin."""
        self._sleeps_until_ms = self._clock.monotonic_ms() + pause_ms
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_ms / 1000):
                await self._wake.wait()
        self._sleeps_until_ms = IN_A_TURN
        early_ms = TURN_MS + self._began_ms - self._clock.monotonic_ms()
        if early_ms > 0:
            await asyncio.sleep(early_ms / 1000)
