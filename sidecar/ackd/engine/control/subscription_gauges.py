"""Gauges of one subscription on this sidecar."""

from __future__ import annotations

from collections.abc import Sequence, Sized

from ackd.engine.base.context import Context
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.cluster.settings_drift import SettingsDrift
from ackd.engine.delivery.circuit_breaker import CircuitBreaker
from ackd.engine.delivery.dispatcher import Dispatcher
from ackd.engine.delivery.window_pressure import WindowPressure
from ackd.engine.partition.owned import OwnedPartitions
from ackd.engine.retry.body_spill import BodySpill


class SubscriptionGauges:
    """Sets the gauges that every subscription has. `copying`: messages whose copies are on their
    way, one container for each topic of copies.
    """

    def __init__(
        self,
        state: SubscriptionState,
        context: Context,
        partitions: OwnedPartitions,
        drift: SettingsDrift,
        dispatcher: Dispatcher,
        breaker: CircuitBreaker,
        window_pressure: WindowPressure,
        bodies: BodySpill,
        copying: Sequence[Sized],
    ) -> None:
        self._state = state
        self._context = context
        self._partitions = partitions
        self._drift = drift
        self._dispatcher = dispatcher
        self._breaker = breaker
        self._window_pressure = window_pressure
        self._bodies = bodies
        self._copying = copying

    def fill(self) -> None:
        metrics, name, owned = self._context.metrics, self._state.name, self._partitions.owned
        ready, size = self._partitions.held()
        metrics.ready.at(name).set(ready)
        metrics.paused.at(name).set(self._state.paused)
        metrics.circuit_breaker_open.at(name).set(self._breaker.on)
        metrics.window_bytes.at(name).set(size)
        metrics.window_used_ratio.at(name).set(self._window_pressure.share())
        metrics.waiting.at(name).set(self._partitions.waiting())
        metrics.in_flight.at(name).set(self._partitions.leased())
        metrics.waiters.at(name).set(self._dispatcher.waiters())
        metrics.copies_in_progress.at(name).set(sum(map(len, self._copying)))
        metrics.retry_topic_messages.at(name).set(
            sum(len(p.ledger.entries) for p in owned.values() if p.ledger.holds_copies)
        )
        metrics.spilled_bytes.at(name).set(self._bodies.taken)
        metrics.partitions_owned.at(name).set(len(owned))
        metrics.settings_differ.at(name).set(len(self._drift.others))
