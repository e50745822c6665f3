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
        partition.leader_epoch, partition.read_to = -1, 0
        if known is not None and known.record == _record(partition):
            partition.leader_epoch = known.epoch
            partition.read_to = partition.ledger.intake.known_end()
        self._consumer.expect(partition.tp, partition.read_to, partition.leader_epoch)

    async def fetched(self, partition: Partition, event: Fetched) -> bool:
        """Before the ledger has the records. False: the log was truncated since it was looked at.
        Raises StoreError.
        """
        epoch = event.leader_epoch
        if epoch <= partition.leader_epoch or event.session != partition.ledger.intake.session:
            return True
        if event.records[0].offset < partition.read_to and partition.leader_epoch >= 0:
            return False
        known = msgspec.json.encode(_Known(_record(partition), epoch))
        await self._store.put(_name(partition), known)
        partition.leader_epoch = epoch
        return True


def _record(partition: Partition) -> tuple[int, int]:
    return partition.handle.incarnation, partition.epoch


def _name(partition: Partition) -> str:
    return f"leader-epoch:{partition.key.text()}"
