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
    """Writes the progress of partitions, within a time bound, and lets them go. Without the last
    writes it is safe too, because the store has the progress.
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
        *,
        back_ms: int | None = None,
    ) -> None:
        """Let `owned` go, and what of `assigned` is assigned after `write` has ended. `back_ms`:
        this sidecar takes them again after so long, by a new term and without committing, until
        another one has them.
        """
        try:
            async with asyncio.timeout(HANDOVER_MS / 1000):
                await write(owned)
        except (AckdError, TimeoutError) as error:
            LOG.info(
                "%s: ackd gave partitions up without a last commit; the store has the progress: %s",
                self._state.name,
                error,
            )
        finally:
            for tp in list(assigned):
                self._partitions.unassign(tp)
            for partition in owned:
                self._ownership.drop(partition)
            self._membership.handed_over([each.key.text() for each in owned], back_ms=back_ms)
