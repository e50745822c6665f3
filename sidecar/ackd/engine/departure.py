"""One subscription's way out: its partitions go to the other sidecars at once.

They take them over as soon as they hear of it, so nobody waits for this sidecar. What its own
application holds is settled as before, because any sidecar settles any lease; and its receives wait
at the new owners, over links.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.base.tasks import Tasks
from ackd.engine.cluster.members import read_note
from ackd.engine.cluster.membership import Membership
from ackd.engine.delivery.deadline_timers import DeadlineTimers
from ackd.engine.delivery.waits_elsewhere import WaitsElsewhere
from ackd.engine.ownership.commit import Committer
from ackd.engine.ownership.hand_over import PartitionHandOver
from ackd.engine.ownership.ownership import Ownership
from ackd.engine.partition.owned import OwnedPartitions
from ackd.engine.partition.partition import Partition
from ackd.engine.peers.sharing import PeerSharing


class LastReport:
    """Tells store and broker all that is known of partitions, before they are let go."""

    def __init__(self, timers: DeadlineTimers, committer: Committer, *, traced: bool) -> None:
        self._timers = timers
        self._committer = committer
        self._traced = traced

    async def write(self, partitions: Sequence[Partition]) -> None:
        """Raises StoreError, BrokerError."""
        if self._traced:
            # Only the owner learns what other sidecars settled last, and can report it.
            await asyncio.gather(*(each.flush() for each in partitions))
        await self._timers.flush(partitions)
        await self._committer.commit(partitions, last=True)


class Departure:
    """Gives everything away, once there is somebody who takes it.

    `leave_group` ends the membership in the broker's group, which may take its time.
    """

    def __init__(
        self,
        state: SubscriptionState,
        partitions: OwnedPartitions,
        elsewhere: WaitsElsewhere,
        ownership: Ownership,
        membership: Membership,
        sharing: PeerSharing | None,
        report: LastReport,
        leave_group: Callable[[], Awaitable[None]],
    ) -> None:
        self._state = state
        self._partitions = partitions
        self._elsewhere = elsewhere
        self._handing = PartitionHandOver(state, partitions, membership, ownership)
        self._membership = membership
        self._sharing = sharing
        self._report = report
        self._leave_group = leave_group
        self._lock = asyncio.Lock()
        self._tasks = Tasks(f"departure.{state.name}")
        self._left = asyncio.Event()
        self.gone = False

    @property
    def serves(self) -> bool:
        """Whether receives here may get messages of those that have the partitions now."""
        return self.gone and self._sharing is not None

    async def leave(self) -> None:
        """Give all partitions to the other sidecars, if any. Never raises, bounded."""
        async with self._lock:
            if self.gone or not self._state.health.joined or not self._somebody_stays():
                return
            self.gone = True
            self._elsewhere.grant_nothing()
            self._membership.leave(left=False)
            await self._hand_over(self._partitions.all())
            self._tasks.start(self._leave(), "group", vital=False, ends=True)

    def _somebody_stays(self) -> bool:
        return any(not read_note(each.note).leaving for each in self._membership.alive)

    async def _leave(self) -> None:
        try:
            await self._leave_group()
        finally:
            self._left.set()

    async def _hand_over(self, partitions: Sequence[Partition]) -> None:
        """Let go as after a revocation by the group (R34), when the grants that are under way have
        been answered: the receives that asked for them get them.
        """
        try:
            await self._handing.give_up(self._partitions.assigned, partitions, self._last_write)
        finally:
            if self._sharing is not None:
                self._sharing.decline()

    async def _last_write(self, partitions: Sequence[Partition]) -> None:
        await asyncio.gather(*(each.flush() for each in partitions))
        await self._report.write(partitions)

    async def stop(self) -> None:
        """Wait until the broker's group was left: a consumer takes a bounded time for that."""
        if self.gone:
            await self._left.wait()
