"""From the polling threads to the loop: one ordered, bounded stream, one wake-up per batch."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass

from ackd.ports import ConsumerEvent


@dataclass(slots=True)
class MailboxItem:
    """An event on its way. `attempt`: the fetch attempt that it belongs to, None = none."""

    event: ConsumerEvent
    attempt: int | None = None
    records: int = 0
    size_bytes: int = 0


class Mailbox:
    """Threads write, the loop reads. When it is full, the fetching thread stops consuming.

    Bounds: `records_max` and `bytes_max`, exceeded by at most one batch that the client had fetched
    already. Events without records are few (rebalances, ends, conditions) and always fit.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, records_max: int, bytes_max: int) -> None:
        self._loop = loop
        self._records_max = records_max
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._items: list[MailboxItem] = []
        self._records = 0
        self._bytes = 0
        self._woken = False
        self._waiter: asyncio.Future[None] | None = None
        self._closed = False
        # The loop calls this when room is made after the box was full.
        self.on_room: Callable[[], None] = lambda: None

    def put(self, items: list[MailboxItem]) -> None:
        """Put events in, from any thread. Wakes the loop unless a wake-up is pending."""
        with self._lock:
            if self._closed:
                return
            self._items += items
            for item in items:
                self._records += item.records
                self._bytes += item.size_bytes
            wake = not self._woken
            self._woken = True
        if wake:
            call_loop(self._loop, self._wake)

    def room(self) -> tuple[int, int]:
        """Records and bytes that still fit; 0 or less when full."""
        with self._lock:
            return self._records_max - self._records, self._bytes_max - self._bytes

    def take(self) -> list[MailboxItem]:
        """Take everything that waits, on the loop."""
        with self._lock:
            items, self._items = self._items, []
            full = self._records >= self._records_max or self._bytes >= self._bytes_max
            self._records = self._bytes = 0
            self._woken = False
        if full:
            self.on_room()
        return items

    async def wait(self) -> bool:
        """Wait until something is there. False when the box is closed instead."""
        while not self._closed:
            with self._lock:
                if self._items:
                    return True
            if self._waiter is None or self._waiter.done():
                self._waiter = self._loop.create_future()
            # Shielded: a cancelled caller must not cancel another caller's wait.
            await asyncio.shield(self._waiter)
        return False

    def close(self) -> None:
        """Accept and return nothing any more; wake the waiters. On the loop."""
        with self._lock:
            self._closed = True
            self._items = []
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def call_loop(loop: asyncio.AbstractEventLoop, call: Callable[..., object], *args: object) -> None:
    """`call_soon_threadsafe` that does nothing when the loop is gone (the process is ending)."""
    try:
        loop.call_soon_threadsafe(call, *args)
    except RuntimeError:
        if not loop.is_closed():
            raise
