"""Gauges of the partitions that one subscription owns here, and where their logs end."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from ackd.engine.base.context import Context
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.control.stable_offset_lag import StableOffsetLag
from ackd.engine.partition.owned import OwnedPartitions
from ackd.engine.partition.partition import Partition
from ackd.errors import BrokerError

END_MS = 10_000
"""How old the end of a log may be in `ackd_lag_messages`; without a backlog, fetching reports
it.
"""
Series = tuple[str, str, str, str]


class PartitionGauges:
    """Sets the gauges that every owned partition has."""

    def __init__(
        self,
        state: SubscriptionState,
        context: Context,
        partitions: OwnedPartitions,
        stable_offset_lag: StableOffsetLag,
    ) -> None:
        self._state = state
        self._context = context
        self._partitions = partitions
        self._stable_offset_lag = stable_offset_lag
        self._end_asked_ms: WeakKeyDictionary[Partition, int] = WeakKeyDictionary()

    async def ask_ends(self) -> None:
        """Ask the broker where logs end, unless that was asked lately."""
        consumer = self._state.consumer
        for partition in self._partitions.all():
            now_ms = self._context.clock.monotonic_ms()
            if now_ms < self._end_asked_ms.get(partition, -END_MS) + END_MS:
                continue
            self._end_asked_ms[partition] = now_ms
            try:
                _, end = await consumer.log_range(partition.tp)
                await self._stable_offset_lag.look(consumer, partition, end)
            except BrokerError:
                return
            partition.log_reaches(end)

    def fill(self) -> set[Series]:
        """Set every gauge; returns the labels of the series that are there now."""
        return {self._partition(each) for each in self._partitions.owned.values()}

    def _partition(self, partition: Partition) -> Series:
        metrics, ledger = self._context.metrics, partition.ledger
        of_retry_topic = "true" if ledger.holds_copies else "false"
        tp = partition.tp
        series = (self._state.name, tp.topic, str(tp.partition), of_retry_topic)
        metrics.watermark.at(*series).set(ledger.watermark)
        if partition.end >= 0:
            metrics.lag.at(*series).set(max(partition.end - ledger.watermark, 0))
        # 3 ms for 100,000 entries: not worth an order of its own.
        first_s = min((e.first_s for e in ledger.entries.values() if e.first_s), default=0)
        age_s = max(self._context.clock.wall_ms() / 1000 - first_s, 0) if first_s else 0
        metrics.oldest_unfinished.at(*series).set(age_s)
        held_ms = self._stable_offset_lag.held_ms(partition)
        metrics.transaction_held.at(*series).set(held_ms / 1000)
        return series
