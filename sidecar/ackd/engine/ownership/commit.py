"""Commit progress to the broker: watermarks that the store confirmed, with the finished ranges
above them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from ackd.core.commit_metadata import encode
from ackd.core.record.operations import Drop
from ackd.engine.base.context import Context
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.partition.owned import OwnedPartitions
from ackd.engine.partition.partition import Partition
from ackd.errors import BrokerError
from ackd.ports import Committed, Condition

LOG = logging.getLogger("ackd.engine")
CONDITION = "commit"


class Committer:
    """Commits at intervals, and when partitions are handed over. The store never waits for it.

    `on_committed` gets each partition with the offset that the broker has.
    """

    def __init__(
        self,
        state: SubscriptionState,
        context: Context,
        partitions: OwnedPartitions,
        on_committed: Callable[[Partition, int], None],
    ) -> None:
        self._state = state
        self._partitions = partitions
        self._context = context
        self._on_committed = on_committed

    async def run(self) -> None:
        """Commit what moved, until cancelled. A failed commit is tried again at the next
        interval.
        """
        interval_s = self._state.settings.commit_interval_ms / 1000
        while True:
            await asyncio.sleep(interval_s)
            try:
                await self.commit(list(self._partitions.owned.values()))
            except BrokerError as error:
                LOG.info(
                    "%s: the broker did not take a commit, ackd tries again: %s",
                    self._state.name,
                    error.detail,
                )

    async def commit_first(self, partition: Partition) -> None:
        """Commit a position before the first grant of a partition. Raises BrokerError."""
        await self.commit([partition], always=True)

    async def commit(
        self, partitions: Sequence[Partition], *, always: bool = False, last: bool = False
    ) -> None:
        """Commit partitions that moved (or all), then free the chunks below. Raises BrokerError.

        Only a member to which the group assigned a partition may commit it; of other partitions the
        store alone has the progress, which is enough. `last`: they are about to be given away, so
        commit also those of which only the metadata changed.
        """
        todo = {
            each.tp: self._position(each)
            for each in partitions
            if each.tp in self._partitions.assigned
            and (
                always
                or each.ledger.confirmed > each.committed
                or (last and each.version != each.committed_version)
            )
        }
        if not todo:
            return
        metrics, name = self._context.metrics, self._state.name
        try:
            await self._state.consumer.commit(todo)
        except BrokerError:
            metrics.commits.at(name, "failed").inc()
            raise
        metrics.commits.at(name, "done").inc()
        for partition in partitions:
            position = todo.get(partition.tp)
            if position is not None:
                self._committed(partition, position.offset)

    def _position(self, partition: Partition) -> Committed:
        ledger, key = partition.ledger, partition.key
        try:
            metadata = encode(
                key.cluster,
                key.topic_id,
                partition.epoch,
                ledger.confirmed,
                partition.version,
                ledger.finished.ranges(ledger.confirmed),
                self._state.broker.capabilities.commit_metadata_chars,
            )
        except ValueError as error:
            self._state.report(Condition(CONDITION, str(error)))
            raise BrokerError(str(error)) from error
        return Committed(ledger.confirmed, metadata)

    def _committed(self, partition: Partition, offset: int) -> None:
        """The broker has the position: drop the chunks below it, here and in the store (R16)."""
        self._on_committed(partition, offset)
        partition.committed_at(offset)
        partition.ledger.dropped(offset)
        if not partition.closed and not partition.ledger.dirty:
            partition.tell(Drop(offset))
