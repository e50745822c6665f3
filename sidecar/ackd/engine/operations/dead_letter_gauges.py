"""How many dead letters subscriptions have, and how old the oldest is, as metrics.

One sidecar of a subscription looks: that which owns a partition 0. A look that fails by an error
which nobody foresaw shows nothing, so that no old figure stays.
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
LOG_EVERY_MS = 3_600_000
"""Time between two lines about records that are no dead letters, of one subscription at least."""


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
        self._logged: dict[str, tuple[int, int]] = {}

    async def run(self) -> None:
        """Look regularly, until cancelled."""
        try:
            while True:
                for name in list(self._subscriptions):
                    try:
                        await self._look(name)
                    except Exception:
                        LOG.exception("%s: dead letters can't be counted: a bug of ackd's", name)
                        self._drop(name)
                await asyncio.sleep(LOOK_EVERY_MS / 1000)
        finally:
            for name in list(self._subscriptions):
                self._drop(name)

    async def _look(self, name: str) -> None:
        metrics, letters = self._metrics, self._subscriptions[name]
        if not self._ours(name):
            self._drop(name)
            return
        try:
            counted = await letters.count()
        except (BrokerError, StoreError, NotSupportedError) as error:
            LOG.debug("%s: dead letters could not be counted: %s", name, error)
            return
        if counted is not None:
            oldest_ms = counted.oldest_ms
            age_ms = 0 if oldest_ms is None else max(self._clock.wall_ms() - oldest_ms, 0)
            metrics.dead_letter_depth.at(name).set(counted.letters)
            metrics.uncounted_dead_letters.at(name).set(counted.more)
            metrics.oldest_dead_letter.at(name).set(age_ms / 1000)
            metrics.unreadable_dead_letters.at(name).set(counted.unreadable)
            self._log_unreadable(name, counted.unreadable)

    def _drop(self, name: str) -> None:
        """Show nothing of it, and count anew with the next look."""
        self._subscriptions[name].stop_counting()
        self._metrics.dead_letter_depth.drop(name)
        self._metrics.uncounted_dead_letters.drop(name)
        self._metrics.oldest_dead_letter.drop(name)
        self._metrics.unreadable_dead_letters.drop(name)

    def _log_unreadable(self, name: str, count: int) -> None:
        """Say when there are more than there were."""
        now_ms = self._clock.monotonic_ms()
        before, next_ms = self._logged.get(name, (0, now_ms))
        if count > before and now_ms >= next_ms:
            self._logged[name] = count, now_ms + LOG_EVERY_MS
            LOG.warning(
                "%s: %d records in the dead-letter topic are no dead letters that ackd can read; "
                "they are neither listed nor redriven",
                name,
                count,
            )

    def _ours(self, name: str) -> bool:
        """Whether this sidecar looks: it owns a partition 0 of the subscription's topics."""
        owned = self._partitions[name].owned
        return any(tp.partition == 0 and not each.ledger.holds_copies for tp, each in owned.items())
