"""Store the leader epoch up to which each partition was read, so that the next reader notices a
truncated log, whether it was truncated while this sidecar ran or while none did (rule R1).

The store has an epoch before a message of it enters the window; so nothing that the record calls
finished is of a later epoch than the store knows. The epoch changes only with the leader.
"""

from __future__ import annotations

import logging
from weakref import WeakKeyDictionary

import msgspec

from ackd.engine.partition.partition import Partition
from ackd.ports import Consumer, Fetched, SeesTruncation, Store

LOG = logging.getLogger("ackd.engine")


class _StoredEpoch(msgspec.Struct):
    """A partition's epoch as stored. `record`: incarnation and reset epoch.

    Another record of the partition, made anew or reset, does not fit: perhaps nobody has read what
    is below its position.
    """

    record: tuple[int, int]
    epoch: int


class LeaderEpochs:
    """Leader epochs of one subscription's partitions."""

    def __init__(self, consumer: Consumer, store: Store) -> None:
        self._consumer = consumer
        self._store = store
        self._known: WeakKeyDictionary[Partition, int] = WeakKeyDictionary()
        self._checked: WeakKeyDictionary[Partition, int] = WeakKeyDictionary()

    def of(self, partition: Partition) -> int:
        """The epoch up to which a partition was read, as the store knows it; -1: none."""
        return self._known.get(partition, -1)

    async def opened(self, partition: Partition) -> None:
        """Before the first fetch: have the adapter check the log. Raises StoreError."""
        if not isinstance(self._consumer, SeesTruncation):
            return
        text = await self._store.get(_name(partition))
        known = None if text is None else msgspec.json.decode(text, type=_StoredEpoch)
        fits = known is not None and known.record == _record(partition)
        epoch = known.epoch if known is not None and fits else -1
        self._known[partition] = self._checked[partition] = epoch
        if fits:
            end = partition.ledger.intake.known_end()
            self._consumer.expect(partition.tp, end, epoch)
        else:
            self._consumer.expect(partition.tp, 0, -1)

    async def fetched(self, partition: Partition, event: Fetched) -> bool:
        """Store a new epoch before the ledger gets its records.

        False: the adapter must check the log first, and fetches the records again after that.
        Raises StoreError.
        """
        epoch, intake = event.leader_epoch, partition.ledger.intake
        if event.session != intake.session or not isinstance(self._consumer, SeesTruncation):
            return True
        before = self.of(partition)
        if before >= 0 and self._checked.get(partition, -1) < epoch:
            self._checked[partition] = epoch
            position = partition.ledger.position
            end = max(intake.known_end(), position)
            self._consumer.expect(partition.tp, end, before)
            intake.fetching(self._consumer.fetch_from(partition.tp, position), position)
            return False
        known = msgspec.json.encode(_StoredEpoch(_record(partition), epoch))
        await self._store.put(_name(partition), known)
        self._known[partition] = epoch
        return True


def _record(partition: Partition) -> tuple[int, int]:
    return partition.handle.incarnation, partition.epoch


def _name(partition: Partition) -> str:
    return f"leader-epoch:{partition.key.text()}"
