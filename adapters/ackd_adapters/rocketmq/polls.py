"""Polls for messages that are under way, so that a consumer closes after them.

What a cancelled poll draws the proxy gives back by itself, and the broker loses some of it: in the
same millisecond its new checkpoint has the name of the one that it replaces.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Polls:
    """Those of one consumer."""

    def __init__(self) -> None:
        self._open = 0
        self._none = asyncio.Event()
        self._none.set()

    @contextmanager
    def one(self) -> Iterator[None]:
        """One is under way in here."""
        self._open += 1
        self._none.clear()
        try:
            yield
        finally:
            self._open -= 1
            if not self._open:
                self._none.set()

    async def ended(self, within_s: float) -> None:
        """Wait until none is under way, for a bounded time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._none.wait()
