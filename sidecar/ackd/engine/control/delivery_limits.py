"""Shows what limits deliveries of a subscription now."""

from __future__ import annotations

from ackd.engine.base.context import Context
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.control.control import Control
from ackd.engine.delivery.dispatcher import Dispatcher
from ackd.engine.ownership.partition_increase import PartitionIncrease
from ackd.engine.partition.owned import OwnedPartitions


class DeliveryLimits:
    """Asks everybody who may hold deliveries back."""

    def __init__(
        self,
        state: SubscriptionState,
        context: Context,
        partitions: OwnedPartitions,
        control: Control,
        increase: PartitionIncrease,
        dispatcher: Dispatcher,
    ) -> None:
        self._state = state
        self._context = context
        self._partitions = partitions
        self._control = control
        self._increase = increase
        self._dispatcher = dispatcher

    def words(self) -> list[str]:
        """One sentence for each; empty when nothing limits them."""
        state = self._state
        health, limits = state.health, []
        if health.superseded:
            limits.append("another process runs under this sidecar's name")
        if not health.store_ok:
            limits.append(f"store away: {health.detail}")
        limits += [f"{t.code}: {t.detail}" for t in state.conditions.values()]
        for pause in self._control.pauses():
            until = f"until {pause.until_ms} (Unix ms)" if pause.until_ms else "until resumed"
            limits.append(f"paused ({pause.scope}) {until}: {pause.reason or 'no reason given'}")
        if growing := self._increase.words(list(self._partitions.assigned)):
            limits.append(growing)
        word = self._dispatcher.limit()
        if word is not None:
            limits.append(word)
        return limits + self._context.lease_events.reasons(state.name)
