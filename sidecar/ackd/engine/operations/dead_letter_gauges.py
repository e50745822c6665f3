"""How many dead letters subscriptions have, and how old the oldest is, as metrics.

One sidecar of a subscription looks: that which owns a partition 0.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from ackd.engine.operations.subscription_dead_letters import SubscriptionDeadLetters
from ackd.engine.partition.owned import OwnedPartitions
from ackd.errors import BrokerError, NotSupportedError, StoreError
from ackd.ports import Clock
from ackd.telemetry.metrics import Metrics

LOG = logging.getLogger("ackd.engine")

LOOK_EVERY_MS = 30_000
"""Constant: each look opens a reader at the broker."""


class DeadLetterGauges:
    """Keeps the metrics of all subscriptions of a sidecar. The mappings change with the runtime."""

    def __init__(
        self,
        subscriptions: Mapping[str, SubscriptionDeadLetters],
        partitions: Mapping[str, OwnedPartitions],
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._subscriptions = subscriptions
        self._partitions = partitions
        self._metrics = metrics
        self._clock = clock

    async def run(self) -> None:
        """Look regularly, until cancelled."""
        while True:
            for name in list(self._subscriptions):
                await self._look(name)
            await asyncio.sleep(LOOK_EVERY_MS / 1000)

    async def _look(self, name: str) -> None:
        metrics, letters = self._metrics, self._subscriptions[name]
        if not self._ours(name):
            letters.stop_counting()
            metrics.dead_letter_depth.drop(name)
            metrics.oldest_dead_letter.drop(name)
            return
        try:
            counted = await letters.count()
        except (BrokerError, StoreError, NotSupportedError) as error:
            LOG.debug("%s: dead letters could not be counted: %s", name, error)
            return
        if counted is not None:
            depth, oldest_ms = counted
            age_ms = 0 if oldest_ms is None else max(self._clock.wall_ms() - oldest_ms, 0)
            metrics.dead_letter_depth.at(name).set(depth)
            metrics.oldest_dead_letter.at(name).set(age_ms / 1000)

    def _ours(self, name: str) -> bool:
        """Whether this sidecar looks: it owns a partition 0 of the subscription's topics."""
        owned = self._partitions[name].owned
        return any(tp.partition == 0 and not each.ledger.holds_copies for tp, each in owned.items())
