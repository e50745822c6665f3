"""Receives that wait at other sidecars beside this one's own messages, and what answers them."""

from __future__ import annotations

from collections.abc import Sequence

from ackd.api.messages import Delivery
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.delivery.circuit_breaker import CircuitBreaker
from ackd.engine.delivery.elsewhere import Elsewhere
from ackd.engine.delivery.rate_limit import RateLimit
from ackd.engine.delivery.waiters import Waiter, WaiterQueue


class WaitsElsewhere:
    """Does nothing until other sidecars are connected.

    A relayed receive came from another sidecar, so it does not go to a third. `only`: nothing is
    granted here any more.
    """

    def __init__(
        self,
        state: SubscriptionState,
        breaker: CircuitBreaker,
        queue: WaiterQueue,
        rate: RateLimit,
    ) -> None:
        self._state = state
        self._breaker = breaker
        self._queue = queue
        self._rate = rate
        self._others: Elsewhere | None = None
        self.connected = self.only = False
        self._stopped = False

    def connect(self, others: Elsewhere) -> None:
        """Let receives wait at other sidecars, too, and theirs here."""
        self._others, self.connected = others, True

    def grant_nothing(self) -> None:
        """Let receives wait at other sidecars only: what this one owns goes to those."""
        self.only = True

    def reached(self) -> bool:
        """Whether there is a link to a sidecar that owns partitions."""
        return self._others is not None and self._others.reached()

    # --- what the dispatcher asks

    def wait(self, waiter: Waiter) -> bool:
        """Let a receive wait at another sidecar, too; whether one has been asked."""
        others = self._others
        return others is not None and not waiter.relayed and others.wait(waiter)

    def leave(self, waiter: Waiter) -> None:
        """End a receive's wait at other sidecars."""
        if self._others is not None and not waiter.relayed:
            self._others.end(waiter)

    def surplus(self) -> None:
        """Messages lie ready here, and no receive waits for them."""
        if self._others is not None:
            self._others.surplus()

    def give_back(self, leases: Sequence[str]) -> None:
        """Release leases on partitions of other sidecars, without counting an attempt (R21)."""
        if self._others is not None:
            self._others.give_back(leases)

    def stop(self) -> None:
        """Let no receive wait at other sidecars any more."""
        self._stopped = True
        for waiter in self._queue.all():
            self.leave(waiter)

    # --- what other sidecars answer

    def most(self, waiter: Waiter) -> int:
        """Return how many messages of other sidecars this receive may get now."""
        if self._stopped or self._state.paused:
            return 0
        return self._breaker.room(waiter.request.max)

    def bring(self, waiter: Waiter, deliveries: list[Delivery]) -> bool:
        """Answer a receive with messages of another sidecar. False: it does not wait any more, or
        gets messages here.
        """
        if not waiter.waits or waiter.grants or waiter.deliveries:
            return False
        if self.most(waiter) < min(len(deliveries), waiter.request.max):
            return False  # paused meanwhile, or there is no trial to be had any more
        if self._breaker.on:
            self._breaker.tried()
        self.leave(waiter)
        waiter.bring(deliveries)
        self._queue.drop(waiter)
        waiter.answer()
        return True

    def nothing(self, waiter: Waiter) -> None:
        """No other sidecar has messages for this receive: answer it if its wait is over."""
        over = waiter.timer is None and not waiter.grants
        if waiter.waits and over and not self._rate.asking:
            self._queue.end(waiter)
