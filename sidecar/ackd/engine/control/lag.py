"""Shows the progress of a subscription's partitions. Changes nothing but the ends of logs."""

from __future__ import annotations

from contextlib import suppress

from ackd.api.messages import PartitionLag
from ackd.core.ledger.entry import EntryStatus
from ackd.engine.base.context import Context
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.cluster.membership import Membership
from ackd.engine.partition.owned import OwnedPartitions, Topics
from ackd.engine.partition.partition import Partition
from ackd.errors import BrokerError


class Lag:
    """Knows the progress of the partitions here; of those of other sidecars it only names the
    owner.
    """

    def __init__(
        self,
        state: SubscriptionState,
        context: Context,
        partitions: OwnedPartitions,
        topics: Topics,
        membership: Membership,
    ) -> None:
        self._state = state
        self._context = context
        self._partitions = partitions
        self._topics = topics
        self._membership = membership

    async def rows(self) -> list[PartitionLag]:
        """Progress of every partition that this sidecar owns, and the owners of the others."""
        rows = []
        for partition in self._partitions.all():
            with suppress(BrokerError):  # the last known end is better than no answer
                _, end = await self._state.consumer.log_range(partition.tp)
                partition.log_reaches(end)
            rows.append(self._row(partition))
        return sorted(rows + self._others(), key=lambda row: (row.topic, row.partition))

    def _row(self, partition: Partition) -> PartitionLag:
        ledger = partition.ledger
        statuses = [entry.status for entry in ledger.entries.values()]
        return PartitionLag(
            topic=partition.tp.topic,
            partition=partition.tp.partition,
            owner=self._context.identity,
            end=partition.end,
            committed=partition.committed,
            watermark=ledger.watermark,
            done_above=sum(end - start for start, end in ledger.finished.ranges(ledger.watermark)),
            ready=sum(status in (EntryStatus.READY, EntryStatus.GRANTING) for status in statuses),
            leased=ledger.leased,
            retrying=sum(status is EntryStatus.WAITING for status in statuses),
            oldest_age_ms=self._oldest_age_ms(partition),
        )

    def _oldest_age_ms(self, partition: Partition) -> int | None:
        """Age of the message at the watermark, by its publish time."""
        entry = partition.ledger.entry(partition.ledger.watermark)
        if entry is None or entry.body is None:
            return None
        return max(self._context.clock.wall_ms() - entry.body.timestamp_ms, 0)

    def _others(self) -> list[PartitionLag]:
        names = {i.topic_id.hex(): i.topic for i in self._topics.known.values()}
        rows = []
        for member in self._membership.alive:
            for text in member.owned:
                _, topic_hex, number = text.rsplit(":", 2)
                topic = names.get(topic_hex, topic_hex)
                rows.append(
                    PartitionLag(topic, int(number), member.name, -1, -1, -1, 0, 0, 0, 0, None)
                )
        return rows
