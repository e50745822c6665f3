"""Circuit breaker of one subscription on this sidecar: it counts which messages the application
settles and which fail.

Each sidecar has its own, because an application that fails here may work well beside another one.
"""

from __future__ import annotations

import asyncio
import logging

from ackd.api.messages import SettleVerb, Status
from ackd.core.circuit_breaker import BreakerRules, BreakerState
from ackd.core.record.settles import SETTLES
from ackd.engine.base.context import Context
from ackd.engine.base.live import Live
from ackd.engine.base.subscription_state import SubscriptionState

LOG = logging.getLogger("ackd.engine")

SOURCE = "circuit-breaker"
_FAILED = frozenset((rule.do, rule.status) for rule in SETTLES.values() if rule.failure)


class CircuitBreaker:
    """Holds deliveries while it is open (`on`), and lets single messages through as trials."""

    def __init__(self, state: SubscriptionState, context: Context) -> None:
        self._state = state
        self._context = context
        self._breaker = BreakerState()
        self.on = False
        self._timer: asyncio.TimerHandle | None = None

    def _rules(self) -> BreakerRules:
        settings = self._state.settings
        return BreakerRules(
            settings.circuit_breaker_failures,
            settings.circuit_breaker_share,
            settings.circuit_breaker_window_ms,
            settings.circuit_breaker_trial_ms,
        )

    # --- what the application does

    def settled(self, verb: SettleVerb, status: Status, count: int) -> None:
        """Count `count` settles with this verb and status as successes or failures."""
        if status is Status.ACKED:
            self._saw(count, 0)
        elif (verb, status) in _FAILED:
            self._saw(0, count)

    def expired(self, count: int) -> None:
        """Count `count` expired leases as failures."""
        self._saw(0, count)

    def _saw(self, worked: int, failed: int) -> None:
        settings = self._state.settings
        if not (settings.circuit_breaker_failures or settings.circuit_breaker_share):
            return
        rules = self._rules()
        if self._breaker.saw(worked, failed, rules, self._now_ms()):
            self._changed()

    def changed(self, _before: Live, _live: Live) -> None:
        """Close the breaker if an operator has switched it off."""
        if self.on and not self._rules().used:
            self._breaker.release()
            self._changed()

    def _changed(self) -> None:
        name, breaker = self._state.name, self._breaker
        self.on = breaker.on
        if breaker.on:
            LOG.warning(
                "%s: the circuit breaker opened: %s; ackd tries single messages until one succeeds",
                name,
                breaker.why,
            )
            self._context.metrics.circuit_breaker_trips.at(name).inc()
            self._wake_at(breaker.next_ms)
        else:
            LOG.info("%s: the circuit breaker closed: ackd delivers as usual", name)
            self.stop()
            self._state.signals.deliver()
        self._context.lease_events.hold_back(name, SOURCE, breaker.why or None)

    # --- trials

    def room(self, most: int) -> int:
        """Return how many of `most` messages may be delivered now."""
        return min(most, self._breaker.room(self._now_ms())) if self.on else most

    def tried(self) -> None:
        """Note that a trial is being delivered, and plan the next one."""
        self._breaker.tried(self._rules(), self._now_ms())
        self._wake_at(self._breaker.next_ms)

    def not_tried(self) -> None:
        """Note that the last trial was a repeat: it asked nothing of the application."""
        self._breaker.not_tried(self._now_ms())

    def _wake_at(self, at_ms: int) -> None:
        self.stop()
        seconds = max(at_ms - self._now_ms(), 1) / 1000
        self._timer = asyncio.get_running_loop().call_later(seconds, self._wake)

    def _wake(self) -> None:
        self._timer = None
        if self.on:
            self._state.signals.deliver()

    def _now_ms(self) -> int:
        return self._context.clock.monotonic_ms()

    def stop(self) -> None:
        """Cancel the timer of the next trial."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
