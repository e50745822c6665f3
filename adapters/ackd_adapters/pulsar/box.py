"""From the reading threads to the loop: one ordered stream with a bound, one wake-up per batch."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass

from ackd.ports import ConsumerEvent, Fetched


@dataclass(slots=True)
class Load:
    """How many records wait, and their bytes."""

    records: int = 0
    size_bytes: int = 0


class Box:
    """Reader threads write, the loop empties it. Each reader may exceed the bounds by one batch."""

    def __init__(self, loop: asyncio.AbstractEventLoop, records_max: int, bytes_max: int) -> None:
        self._loop = loop
        self._records_max = records_max
        self._bytes_max = bytes_max
        self._room = threading.Condition()
        self._events: list[ConsumerEvent] = []
        self._load = Load()
        self._woken = False
        self._waiter: asyncio.Future[None] | None = None
        self._nudged = False
        self.closed = False

    def put(self, event: ConsumerEvent, size_bytes: int = 0) -> None:
        """Put events in, from any thread."""
        with self._room:
            if self.closed:
                return
            self._events.append(event)
            if isinstance(event, Fetched):
                self._load.records += len(event.records)
                self._load.size_bytes += size_bytes
            wake, self._woken = not self._woken, True
        if wake:
            call_loop(self._loop, self._wake)

    def wait_for_room(self, seconds: float) -> bool:
        """Wait until something fits, in a reader's thread; False: not yet, or closed."""
        with self._room:
            return self._room.wait_for(self._fits, seconds) and not self.closed

    def take(self) -> list[ConsumerEvent]:
        """Everything that waits, on the loop."""
        with self._room:
            events, self._events = self._events, []
            self._load = Load()
            self._woken = False
            self._room.notify_all()
        return events

    def nudge(self) -> None:
        """End a `wait`: the engine may get an event that was kept back. On the loop."""
        self._nudged = True
        self._wake()

    async def wait(self) -> bool:
        """Wait until something is there, or a nudge. False when the box is closed instead."""
        while not self.closed:
            if self._events or self._nudged:
                self._nudged = False
                return True
            if self._waiter is None or self._waiter.done():
                self._waiter = self._loop.create_future()
            # Shielded: a cancelled caller must not cancel another caller's wait.
            await asyncio.shield(self._waiter)
        return False

    def close(self) -> None:
        """Accept and return nothing any more; wake the waiters. On the loop."""
        with self._room:
            self.closed = True
            self._events = []
            self._room.notify_all()
        self._wake()

    def _fits(self) -> bool:
        return self.closed or (
            self._load.records < self._records_max and self._load.size_bytes < self._bytes_max
        )

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def call_loop(loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
    """`call_soon_threadsafe` that does nothing when the loop is gone (the process is ending)."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(call)
