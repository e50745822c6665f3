"""Commit progress to the broker: watermarks that the store confirmed, with the finished ranges
above them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from weakref import WeakKeyDictionary

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
EARLY = 250
"""So many messages that finished since the last commit of a partition are committed early, after a
`TICKS`th of the interval: they are what comes again if the store loses its data with the owner.
"""
TICKS = 10


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
        # Of each partition's last commit: the ranges in it, and how many messages were finished.
        self._ranges: WeakKeyDictionary[Partition, str] = WeakKeyDictionary()
        self._finished: WeakKeyDictionary[Partition, int] = WeakKeyDictionary()
        # The version of each partition after the last interval, and whether all sleep.
        self._looked: WeakKeyDictionary[Partition, int] = WeakKeyDictionary()
        self._kick = asyncio.Event()
        self._idle = False

    def look(self) -> None:
        """End a long idle sleep if there are messages again: many of them may finish soon."""
        if self._idle and not self._nothing_open():
            self._kick.set()

    async def run(self) -> None:
        """Commit what moved, until cancelled. A failed commit is tried again at the next
        interval.
        """
        tick_s = self._state.settings.commit_interval_ms / TICKS / 1000
        ticks = 0
        while True:
            ticks += await self._sleep(tick_s)
            owned = list(self._partitions.owned.values())
            try:
                if ticks < TICKS:
                    await self.commit(list(filter(self._many, owned)))
                else:
                    ticks = 0
                    versions = [each.version for each in owned]
                    await self.commit(owned)
                    self._looked.update(zip(owned, versions, strict=True))
            except BrokerError as error:
                LOG.info(
                    "%s: the broker did not take a commit, ackd tries again: %s",
                    self._state.name,
                    error.detail,
                )

    def _nothing_open(self) -> bool:
        """Whether nothing can finish now, and everything that has finished is committed."""
        owned = self._partitions.owned.values()
        return not any(p.ledger.entries or p.version != self._looked.get(p) for p in owned)

    async def _sleep(self, tick_s: float) -> int:
        """Sleep for one tick, or for all if nothing is open meanwhile. Returns how many it were."""
        self._kick.clear()
        self._idle = self._nothing_open()
        if self._idle:
            try:
                async with asyncio.timeout(TICKS * tick_s):
                    await self._kick.wait()
            except TimeoutError:
                return TICKS
            finally:
                self._idle = False
        await asyncio.sleep(tick_s)
        return 1

    async def commit_first(self, partition: Partition) -> None:
        """Commit a position before the first grant of a partition. Raises BrokerError."""
        await self.commit([partition], always=True)

    async def commit(
        self, partitions: Sequence[Partition], *, always: bool = False, last: bool = False
    ) -> None:
        """Commit partitions that moved (or all), then free the chunks below. Raises BrokerError.

        One moved if its watermark did, or what is finished above it (I2). Only a member to which
        the group assigned a partition may commit it; of other partitions the store alone has the
        progress, which is enough. `last`: they are about to be given away, so commit also those of
        which only the version changed.
        """
        todo = {}
        for each in partitions:
            changed = each.version != each.committed_version
            moved = each.ledger.confirmed > each.committed
            if each.tp in self._partitions.assigned and (always or moved or changed):
                position = self._position(each)
                if always or moved or last or _ranges(position) != self._ranges.get(each, ""):
                    todo[each.tp] = position
        if not todo:
            return
        metrics, name = self._context.metrics, self._state.name
        before = {
            each.tp: (each.version, _finished(each)) for each in partitions if each.tp in todo
        }
        try:
            await self._state.consumer.commit(todo)
        except BrokerError:
            metrics.commits.at(name, "failed").inc()
            raise
        metrics.commits.at(name, "done").inc()
        for partition in partitions:
            done = todo.get(partition.tp)
            if done is not None:
                version, self._finished[partition] = before[partition.tp]
                self._ranges[partition] = _ranges(done)
                self._committed(partition, done.offset, version)

    def _many(self, partition: Partition) -> bool:
        """Whether many messages of a partition have finished since its last commit."""
        if partition.version == partition.committed_version:
            return False
        return _finished(partition) >= self._finished.get(partition, 0) + EARLY

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

    def _committed(self, partition: Partition, offset: int, version: int) -> None:
        """The broker has the position: drop the chunks below it, here and in the store (R16)."""
        self._on_committed(partition, offset)
        moved = offset > partition.committed
        partition.committed_at(offset, version)
        partition.ledger.dropped(offset)
        if moved and not partition.closed and not partition.ledger.dirty:
            partition.tell(Drop(offset))


def _ranges(position: Committed) -> str:
    return position.metadata.partition("|")[2]


def _finished(partition: Partition) -> int:
    """A number that grows by one with each message that finishes."""
    ledger = partition.ledger
    above = ledger.finished.count_between(ledger.confirmed, ledger.position)
    return ledger.confirmed + above
