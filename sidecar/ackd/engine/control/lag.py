"""Shows the progress of a subscription's partitions. Changes nothing but the ends of logs."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress

from ackd.api.messages import MessagesServed, PartitionLag
from ackd.core.ids import TopicPartition
from ackd.core.ledger.entry import EntryStatus
from ackd.engine.base.context import Context
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.cluster.membership import Membership
from ackd.engine.partition.owned import OwnedPartitions, Topics
from ackd.engine.partition.partition import Partition
from ackd.engine.retry.own_topic import retry_topic
from ackd.errors import BrokerError
from ackd.telemetry.metrics import FOR_PEERS, OWN, THROUGH_PEERS


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

    @property
    def me(self) -> str:
        """This sidecar's name."""
        return self._context.identity

    def owned(self) -> list[str]:
        """The records owned here, as texts."""
        return self._partitions.keys()

    def served(self) -> MessagesServed:
        """What this sidecar has handed out since it began."""
        of, name = self._context.metrics.served, self._state.name
        ways = (OWN, FOR_PEERS, THROUGH_PEERS)
        return MessagesServed(*(int(of.at(name, way).value) for way in ways))

    async def rows(self) -> list[PartitionLag]:
        """Progress of every partition that this sidecar owns, and the owners of the others."""
        rows = []
        for partition in self._partitions.all():
            with suppress(BrokerError):  # the last known end is better than no answer
                _, end = await self._state.consumer.log_range(partition.tp)
                partition.log_reaches(end)
            rows.append(self._row(partition))
        return sorted(rows + await self._others(), key=lambda row: (row.topic, row.partition))

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
            retry_topic=ledger.holds_copies,
        )

    def _oldest_age_ms(self, partition: Partition) -> int | None:
        """Age of the message at the watermark, by its publish time."""
        entry = partition.ledger.entry(partition.ledger.watermark)
        if entry is None or entry.body is None:
            return None
        return max(self._context.clock.wall_ms() - entry.body.timestamp_ms, 0)

    async def names(self, texts: Sequence[str]) -> list[str]:
        """Name the partitions of these records; those whose topic is gone have no name."""
        places = [text.rsplit(":", 2)[1:] for text in texts]
        names = await self._names({topic_hex for topic_hex, _ in places})
        tps = [TopicPartition(names[each], int(n)) for each, n in places if each in names]
        return [str(tp) for tp in sorted(tps)]

    async def _names(self, topics: AbstractSet[str]) -> dict[str, str]:
        """The names of topics by their identities in hex; of these too, if the broker has them."""
        if topics - self._topics.names().keys():
            # Made after this sidecar began, as a retry topic of which it owns nothing.
            with suppress(BrokerError):
                await self._topics.read()
        return self._topics.names()

    async def _others(self) -> list[PartitionLag]:
        owned = [
            (member.name, *text.rsplit(":", 2)[1:])
            for member in self._membership.alive
            for text in member.owned
        ]
        names = await self._names({topic_hex for _, topic_hex, _ in owned})
        copies = retry_topic(self._state.broker, self._state.name, self._state.settings).name
        found = []
        for name, topic_hex, number in owned:
            topic = names.get(topic_hex, topic_hex)
            row = PartitionLag(topic, int(number), name, -1, -1, -1, 0, 0, 0, 0, None)
            row.retry_topic = topic == copies
            found.append(row)
        return found
