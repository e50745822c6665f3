"""Receives that wait for messages, in the order of their arrival."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from ackd.api.messages import Delivery, ReceiveRequest
from ackd.engine.delivery.relay import Relay

WAITERS_MAX = 10_000
ENDED_MIN = 64
"""With fewer waiters that have ended, the queue is not looked through."""


# tidy: long-class attributes=15 -- the state of one call, here and elsewhere
class Waiter:
    """One receive call.

    `grants`: requests for leases that are under way. The call is not answered before the store has
    answered them, not even when its wait is over (`end_s`, on the event loop's clock). `asked`,
    `asked_bytes`: number and size of the messages that leases were asked for. `asked_s`: when, on
    the loop's clock. `elsewhere`: the number of its request at another sidecar, 0 = none.
    `relay`: it is such a request itself, from another sidecar; where its answer goes. `brought`:
    its messages came from another sidecar.
    """

    __slots__ = (
        "asked",
        "asked_bytes",
        "asked_s",
        "brought",
        "deliveries",
        "elsewhere",
        "end_s",
        "future",
        "gone",
        "grants",
        "noted",
        "relay",
        "request",
        "start_s",
        "timer",
    )

    def __init__(
        self,
        request: ReceiveRequest,
        future: asyncio.Future[list[Delivery]],
        start_s: float,
        relay: Relay | None = None,
    ) -> None:
        self.request = request
        self.start_s = start_s
        self.end_s = start_s + request.wait_ms / 1000
        self.future = future
        self.deliveries: list[Delivery] = []
        self.grants = 0
        self.asked = 0
        self.asked_s = 0.0
        self.elsewhere = 0
        self.relay = relay
        self.asked_bytes = 0
        self.gone = False
        self.brought = False
        self.noted = False
        """A record of its messages has progress notes."""
        self.timer: asyncio.TimerHandle | None = None

    @property
    def relayed(self) -> bool:
        """Whether an application beside another sidecar gets the answer."""
        return self.relay is not None

    @property
    def waits(self) -> bool:
        """Whether the caller is still there and has no answer."""
        return not self.gone and not self.future.done()

    def size(self) -> int:
        """Return the bytes of its messages; they are summed again only if some were not granted."""
        if len(self.deliveries) == self.asked:
            return self.asked_bytes
        return sum(delivery.record.size() for delivery in self.deliveries)

    def has_time(self, over: Callable[[Waiter], None]) -> bool:
        """Whether it has waiting time left; if so, make sure that a timer calls `over` at its
        end.
        """
        if self.timer is None:
            loop = asyncio.get_running_loop()
            left_s = self.end_s - loop.time()
            if left_s <= 0:
                return False
            self.timer = loop.call_later(left_s, over, self)
        return True

    def timed_out(self) -> None:
        """Note that the wait is over: only grants that are under way may still come."""
        self.timer, self.end_s = None, 0

    def leave(self) -> None:
        """The caller has gone, or another call has taken its place."""
        self.gone = True
        if self.timer is not None:
            self.timer.cancel()

    def asked_at(self, number: int) -> None:
        """Note the number of this receive's request at another sidecar; 0: it waits at none."""
        self.elsewhere = number

    def ask(self, count: int, size: int) -> None:
        """A request for the leases of `count` messages of `size` bytes is under way."""
        if not self.grants:
            self.asked_s = asyncio.get_running_loop().time()
        self.grants += 1
        self.asked += count
        self.asked_bytes += size
        if self.relay is not None:
            self.relay.ask(size)

    def asked_for(self) -> None:
        """A request that was under way has been answered."""
        self.grants -= 1

    def add(self, deliveries: list[Delivery], *, noted: bool = False) -> None:
        """It gets these messages; `noted`: of a record with progress notes."""
        self.deliveries += deliveries
        self.noted |= noted

    def hold_back(self, first: int) -> list[Delivery]:
        """Take its messages from this index on away again, until they are checked."""
        held = self.deliveries[first:]
        del self.deliveries[first:]
        self.grants += 1
        return held

    def bring(self, deliveries: list[Delivery]) -> None:
        """Take the messages that another sidecar granted to this receive."""
        self.deliveries, self.brought = deliveries, True
        self.asked = len(deliveries)
        self.asked_bytes = sum(each.record.size() for each in deliveries)

    def answer(self) -> None:
        """Answer with the messages there are; does nothing when the caller has gone."""
        if self.timer is not None:
            self.timer.cancel()
        if not self.future.done():
            self.future.set_result(self.deliveries)

    def fail(self, error: Exception) -> None:
        if self.timer is not None:
            self.timer.cancel()
        if not self.future.done():
            self.future.set_exception(error)
            self.future.exception()  # retrieve it: the caller may have left


class WaiterQueue:
    """The waiters of one subscription, in the order of their arrival; those from other sidecars
    stand aside while their link has no room (I8).
    """

    def __init__(self) -> None:
        self._line: deque[Waiter] = deque()
        self._aside: dict[object, deque[Waiter]] = {}
        self._ended = 0

    def __len__(self) -> int:
        return len(self._line)

    def waiting(self) -> int:
        """Count the callers that wait now; some that have gone are still queued."""
        return sum(waiter.waits for waiter in self.all())

    @property
    def full(self) -> bool:
        """Whether the bound on waiting calls is reached (I8)."""
        return len(self._line) >= WAITERS_MAX

    def join(self, waiter: Waiter) -> None:
        self._line.append(waiter)

    def end(self, waiter: Waiter) -> None:
        """Answer a waiter out of turn, as its wait is over."""
        waiter.answer()
        self.ended()

    def ended(self) -> None:
        """The caller of some waiter has gone or has its answer, out of turn.

        Such waiters would stay behind one that waits for long. They are dropped before they are
        half of the queue.
        """
        self._ended += 1
        aside = sum(len(each) for each in self._aside.values())
        if self._ended * 2 > max(len(self._line) + aside, ENDED_MIN):
            self._line = deque(waiter for waiter in self._line if waiter.waits)
            for link, waiters in list(self._aside.items()):
                self._aside[link] = left = deque(waiter for waiter in waiters if waiter.waits)
                if not left:
                    del self._aside[link]
            self._ended = 0

    def return_first(self, waiter: Waiter) -> None:
        """Put a waiter back at the front, because its grants gave nothing."""
        if waiter.relay is not None:
            waiter.relay.refused()
        self._line.appendleft(waiter)

    def first(self) -> Waiter | None:
        """Return the next waiter to serve; drop those whose callers have gone."""
        while self._line:
            waiter = self._line[0]
            if waiter.waits and (waiter.relay is None or waiter.relay.left() > 0):
                return waiter
            self._line.popleft()
            if waiter.waits and waiter.relay is not None:
                self._put_aside(waiter, waiter.relay)
        return None

    def _put_aside(self, waiter: Waiter, relay: Relay) -> None:
        self._aside.setdefault(relay.link, deque()).append(waiter)

    def forget(self, link: object) -> None:
        """The link has closed, so nobody is answered there any more."""
        self._aside.pop(link, None)

    def has_room(self, link: object) -> bool:
        """Let those come back, first, whose link has room again; whether there are any."""
        aside = self._aside.pop(link, None)
        if aside is None:
            return False
        self._line.extendleft(reversed(aside))
        return True

    def drop(self, waiter: Waiter) -> None:
        """Remove a waiter that was served elsewhere, if it is still queued."""
        with suppress(ValueError):
            self._line.remove(waiter)

    def first_relayed(self) -> Waiter | None:
        """Return the next waiter of another sidecar."""
        for each in self._line:
            if each.relay is not None and each.waits and each.relay.left() > 0:
                return each
        return None

    def first_here(self) -> Waiter | None:
        """Return the next waiter of the application here."""
        return next((each for each in self._line if not each.relayed and each.waits), None)

    def served(self, waiter: Waiter) -> None:
        if self._line[0] is waiter:
            self._line.popleft()
        else:
            self._line.remove(waiter)

    def answer_impatient(self, now_s: float) -> None:
        """Answer those whose time is up and who wait for no grant and no other sidecar (`now_s`:
        the loop's time).
        """
        for waiter in self.all():
            if waiter.end_s <= now_s and not waiter.grants and not waiter.elsewhere:
                waiter.answer()

    def all(self) -> list[Waiter]:
        """Return those that wait, and some that have gone."""
        return [*self._line, *(each for aside in self._aside.values() for each in aside)]

    def end_all(self) -> None:
        """Answer every waiter with what it has, for example when the sidecar drains."""
        for waiter in self.all():
            if not waiter.grants:
                waiter.answer()
        self._line.clear()
        self._aside.clear()
