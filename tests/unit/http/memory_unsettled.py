"""Test support: counting the leases of one consumer of the engine in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from ackd.api.messages import Delivery


class MemoryUnsettled:
    """`ackd.api.messages.Unsettled`; `live` says whether a lease is."""

    def __init__(self, changed: asyncio.Condition, live: Callable[[str], bool]) -> None:
        self._changed = changed
        self._live = live
        self._leases: list[str] = []

    def add(self, messages: Sequence[Delivery]) -> None:
        """Count them."""
        self._leases += [each.lease for each in messages]

    def leases(self) -> list[str]:
        """Those that are live."""
        self._leases = [each for each in self._leases if self._live(each)]
        return list(self._leases)

    def count(self) -> int:
        """How many."""
        return len(self.leases())

    async def wait(self, timeout_s: float) -> None:
        """Until something changes."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait()

    def close(self) -> None:
        """Nothing to do."""
