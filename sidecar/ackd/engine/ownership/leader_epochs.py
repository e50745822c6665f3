"""Up to which leader epoch each partition was read: so that a log that was truncated, while this
sidecar ran or nobody did, is noticed by whoever reads on (rule R1).

An epoch is in the store before a message of it is in the window: so what the record says to be
finished is never of a later epoch than the store knows. It changes only when the leader does.
"""

from __future__ import annotations

import logging

import msgspec

from ackd.engine.partition.partition import Partition
from ackd.ports import Consumer, Fetched, SeesTruncation, Store

LOG = logging.getLogger("ackd.engine")


class _Known(msgspec.Struct):
    """`record`: incarnation and reset epoch. What lies below the position of a record that was made
    anew, or was reset, nobody may have read.
    """

    record: tuple[int, int]
    epoch: int


class LeaderEpochs:
    """Of the partitions of one subscription."""

    def __init__(self, consumer: Consumer, store: Store) -> None:
        self._consumer = consumer
        self._store = store

    async def opened(self, partition: Partition) -> None:
        """Before the first fetch: have the log looked at. Raises StoreError."""
        if not isinstance(self._consumer, SeesTruncation):
            return
        text = await self._store.get(_name(partition))
        known = None if text is None else msgspec.json.decode(text, type=_Known)
        partition.leader_epoch = partition.checked_epoch = -1
        if known is not None and known.record == _record(partition):
            partition.leader_epoch = partition.checked_epoch = known.epoch
            end = partition.ledger.intake.known_end()
            self._consumer.expect(partition.tp, end, known.epoch)
        else:
            self._consumer.expect(partition.tp, 0, -1)

    async def fetched(self, partition: Partition, event: Fetched) -> bool:
        """Before the ledger has the records of a new epoch. False: the log has to be looked at
        first, and they are fetched again after that. Raises StoreError.
        """
        epoch, intake = event.leader_epoch, partition.ledger.intake
        if event.session != intake.session or not isinstance(self._consumer, SeesTruncation):
            return True
        if partition.leader_epoch >= 0 and partition.checked_epoch < epoch:
            partition.checked_epoch = epoch
            position = partition.ledger.position
            end = max(intake.known_end(), position)
            self._consumer.expect(partition.tp, end, partition.leader_epoch)
            intake.fetching(self._consumer.fetch_from(partition.tp, position), position)
            return False
        known = msgspec.json.encode(_Known(_record(partition), epoch))
        await self._store.put(_name(partition), known)
        partition.leader_epoch = epoch
        return True


def _record(partition: Partition) -> tuple[int, int]:
    return partition.handle.incarnation, partition.epoch


def _name(partition: Partition) -> str:
    return f"leader-epoch:{partition.key.text()}"
