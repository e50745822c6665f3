"""The brake of one subscription on this sidecar: it watches what the application makes of messages.

It belongs to this sidecar alone: an application that fails here may be well beside another one.
"""

from __future__ import annotations

import asyncio
import logging

from ackd.api.messages import SettleVerb, Status
from ackd.core.circuit_breaker import BreakerRules, BreakerState
from ackd.engine.base.context import Context
from ackd.engine.base.live import Live
from ackd.engine.base.state import SubscriptionState

LOG = logging.getLogger("ackd.engine")

SOURCE = "circuit-breaker"
_FAILED = frozenset({(SettleVerb.RETRY, Status.RETRYING), (SettleVerb.DEAD, Status.DEAD)})


class CircuitBreaker:
    """Holds the hand-out, and lets one message through from time to time."""

    def __init__(self, state: SubscriptionState, context: Context) -> None:
        self._state = state
        self._context = context
        self._brake = BreakerState()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def on(self) -> bool:
        """Only trials are handed out."""
        return self._brake.on

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
        """What so many settles came to."""
        if status is Status.ACKED:
            self._saw(count, 0)
        elif (verb, status) in _FAILED:
            self._saw(0, count)

    def expired(self, count: int) -> None:
        """So many leases ran out."""
        self._saw(0, count)

    def _saw(self, worked: int, failed: int) -> None:
        settings = self._state.settings
        if not (settings.circuit_breaker_failures or settings.circuit_breaker_share):
            return
        rules = self._rules()
        if self._brake.saw(worked, failed, rules, self._now_ms()):
            self._changed()

    def changed(self, _before: Live, _live: Live) -> None:
        """It may have been switched off."""
        if self.on and not self._rules().used:
            self._brake.release()
            self._changed()

    def _changed(self) -> None:
        name, brake = self._state.name, self._brake
        if brake.on:
            LOG.warning(
                "%s: the circuit breaker opened: %s; single messages are tried", name, brake.why
            )
            self._context.metrics.circuit_breaker_trips.at(name).inc()
            self._wake_at(brake.next_ms)
        else:
            LOG.info("%s: the circuit breaker closed", name)
            self.stop()
            self._state.signals.deliver()
        self._context.moves.hold_back(name, SOURCE, brake.why or None)

    # --- trials

    def room(self, most: int) -> int:
        """How many of `most` messages may be handed out now."""
        return min(most, self._brake.room(self._now_ms())) if self.on else most

    def tried(self) -> None:
        """A message is handed out while the brake is on."""
        self._brake.tried(self._rules(), self._now_ms())
        self._wake_at(self._brake.next_ms)

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
        """Wake nobody."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
