"""Receive calls that wait for messages: first come, first served; each is answered exactly once."""

from __future__ import annotations

import asyncio
from collections import deque

from ackd.api.messages import Delivery, ReceiveRequest

WAITERS_MAX = 10_000


class Waiter:
    """One receive. `grants`: requests for leases that are under way; it is not answered before they
    land, not even when its wait is over (`end_s`, of the event loop's clock). `asked`,
    `asked_bytes`: how many messages, of what size, leases were asked for.
    """

    __slots__ = (
        "asked",
        "asked_bytes",
        "deliveries",
        "end_s",
        "future",
        "gone",
        "grants",
        "request",
        "start_s",
        "timer",
    )

    def __init__(
        self, request: ReceiveRequest, future: asyncio.Future[list[Delivery]], start_s: float
    ) -> None:
        self.request = request
        self.start_s = start_s
        self.end_s = start_s + request.wait_ms / 1000
        self.future = future
        self.deliveries: list[Delivery] = []
        self.grants = 0
        self.asked = 0
        self.asked_bytes = 0
        self.gone = False
        self.timer: asyncio.TimerHandle | None = None

    @property
    def waits(self) -> bool:
        """Somebody is still there, and without an answer."""
        return not self.gone and not self.future.done()

    def size(self) -> int:
        """Bytes of the messages that it got; added up again only if not all were granted."""
        if len(self.deliveries) == self.asked:
            return self.asked_bytes
        return sum(delivery.record.size() for delivery in self.deliveries)

    def answer(self) -> None:
        """Give what there is; nothing happens when the caller has gone."""
        if self.timer is not None:
            self.timer.cancel()
        if not self.future.done():
            self.future.set_result(self.deliveries)

    def fail(self, error: Exception) -> None:
        """Tell the caller that nothing could be decided."""
        if self.timer is not None:
            self.timer.cancel()
        if not self.future.done():
            self.future.set_exception(error)
            self.future.exception()  # seen: whoever waited may have left


class WaiterQueue:
    """The waiters of one subscription, in the order of their arrival."""

    def __init__(self) -> None:
        self._line: deque[Waiter] = deque()

    def __len__(self) -> int:
        return len(self._line)

    def waiting(self) -> int:
        """How many wait now; those who have gone stay in the line until it is their turn."""
        return sum(waiter.waits for waiter in self._line)

    @property
    def full(self) -> bool:
        """Too many already (I8)."""
        return len(self._line) >= WAITERS_MAX

    def join(self, waiter: Waiter) -> None:
        """Go to the end of the line."""
        self._line.append(waiter)

    def return_first(self, waiter: Waiter) -> None:
        """Back to the front: its grants gave nothing."""
        self._line.appendleft(waiter)

    def first(self) -> Waiter | None:
        """Who is served next; those who have gone are forgotten."""
        while self._line:
            waiter = self._line[0]
            if waiter.waits:
                return waiter
            self._line.popleft()
        return None

    def served(self) -> None:
        """The first one has been served."""
        self._line.popleft()

    def answer_impatient(self, now_s: float) -> None:
        """Answer those whose time is up and who wait for no lease (`now_s`: the loop's time)."""
        for waiter in self._line:
            if waiter.end_s <= now_s and not waiter.grants:
                waiter.answer()

    def end_all(self) -> None:
        """Answer everybody with what they have (a drain, say)."""
        for waiter in self._line:
            if not waiter.grants:
                waiter.answer()
        self._line.clear()
