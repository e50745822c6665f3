"""Gives partitions up to other sidecars, as the broker's group or an operator wants it (R34)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence

from ackd.core.ids import TopicPartition
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.cluster.membership import Membership
from ackd.engine.ownership.ownership import Ownership
from ackd.engine.partition.owned import OwnedPartitions
from ackd.engine.partition.partition import Partition
from ackd.errors import AckdError

LOG = logging.getLogger("ackd.engine")

HANDOVER_MS = 2_000


class PartitionHandOver:
    """Writes the progress of partitions within a time bound, before they get another owner. Without
    the last writes it is safe too, because the store has the progress.
    """

    def __init__(
        self,
        state: SubscriptionState,
        partitions: OwnedPartitions,
        membership: Membership,
        ownership: Ownership,
    ) -> None:
        self._state = state
        self._partitions = partitions
        self._membership = membership
        self._ownership = ownership

    async def give_up(
        self,
        assigned: Iterable[TopicPartition],
        owned: Sequence[Partition],
        write: Callable[[Sequence[Partition]], Awaitable[None]],
    ) -> None:
        """Let `owned` go, and what of `assigned` is assigned after `write` has ended."""
        try:
            await self._within_bound(owned, write)
        finally:
            self._unassign(assigned)
            left = [each for each in owned if not each.closed]
            for partition in left:
                self._ownership.drop(partition)
            self._membership.handed_over([each.key.text() for each in left])

    async def give_back(
        self,
        assigned: Iterable[TopicPartition],
        owned: Sequence[Partition],
        write: Callable[[Sequence[Partition]], Awaitable[None]],
    ) -> None:
        """The group takes `assigned` away. Those of them that are `owned` are granted here until
        their next owner raises the term: a group may take seconds to tell that one.
        """
        try:
            await self._within_bound(owned, write)
        finally:
            self._unassign(assigned)

    async def _within_bound(
        self,
        owned: Sequence[Partition],
        write: Callable[[Sequence[Partition]], Awaitable[None]],
    ) -> None:
        try:
            async with asyncio.timeout(HANDOVER_MS / 1000):
                await write(owned)
        except (AckdError, TimeoutError) as error:
            LOG.info(
                "%s: ackd gave partitions up without a last commit; the store has the progress: %s",
                self._state.name,
                error,
            )

    def _unassign(self, partitions: Iterable[TopicPartition]) -> None:
        for tp in list(partitions):
            self._partitions.unassign(tp)
