"""The loop over one subscription's broker events: it feeds ledgers, and follows the group's
assignment.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from ackd.core.ids import TopicPartition
from ackd.engine.base.context import Context
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.cluster.membership import BACK_MS, Membership
from ackd.engine.ownership.broker_acks import BrokerAckFlow
from ackd.engine.ownership.hand_over import PartitionHandOver
from ackd.engine.ownership.leader_epochs import LeaderEpochs
from ackd.engine.ownership.ownership import AGAIN, Ownership
from ackd.engine.ownership.recover import judge
from ackd.engine.partition import foreign_delays
from ackd.engine.partition.owned import OwnedPartitions
from ackd.engine.partition.partition import Partition
from ackd.engine.retry.copy_filter import OwnCopyFilter
from ackd.errors import BrokerError, BrokerFatalError, StoreError
from ackd.ports import (
    Arrived,
    Assigned,
    Condition,
    Drew,
    EndReached,
    Fetched,
    LogEvent,
    Lost,
    OutOfRange,
    Revoked,
    TopicReplaced,
)

LOG = logging.getLogger("ackd.engine")

CONDITION = "consumer"
JUDGE_MS = 1_000


class BrokerEvents:
    """Passes fetched messages to ledgers, and partitions that the group assigns or revokes to
    `Ownership`.

    `hand_over` writes the progress of partitions to store and broker before they are let go.
    `fetched` is called when messages came. `copy_filter`: the own-copy filter.
    """

    def __init__(
        self,
        state: SubscriptionState,
        context: Context,
        partitions: OwnedPartitions,
        membership: Membership,
        ownership: Ownership,
        leader_epochs: LeaderEpochs,
        copy_filter: OwnCopyFilter,
        hand_over: Callable[[Sequence[Partition]], Awaitable[None]],
        fetched: Callable[[], None],
    ) -> None:
        self._state = state
        self._context = context
        self._partitions = partitions
        self._handing = PartitionHandOver(state, partitions, membership, ownership)
        self._ownership = ownership
        self._leader_epochs = leader_epochs
        self._copy_filter = copy_filter
        self._hand_over = hand_over
        self._fetched_some = fetched
        self.broker_side_acks: BrokerAckFlow | None = None

    def connect(self, broker_side_acks: BrokerAckFlow) -> None:
        """Give it what brokers with individual acks bring."""
        self.broker_side_acks = broker_side_acks

    async def run(self) -> None:
        """Take events until cancelled. Raises BrokerFatalError."""
        consumer = self._state.consumer
        while True:
            try:
                events = await consumer.events()
            except BrokerError as error:
                self._state.report(Condition(CONDITION, error.detail))
                await asyncio.sleep(AGAIN.base_ms / 1000)
                continue
            self._state.clear(CONDITION)
            for event in events:
                flow = self.broker_side_acks
                if flow is not None and isinstance(event, Arrived | Assigned | Drew):
                    await flow.on(event)
                elif not isinstance(event, Arrived | Drew):
                    await self._on(event)
            self._state.signals.deliver()

    async def _on(self, event: LogEvent) -> None:
        match event:
            case Fetched():
                await self._fetched(event)
            case EndReached(tp, session, offset):
                partition = self._partitions.owned.get(tp)
                if partition is not None:
                    partition.ledger.intake.end_reached(session, offset)
                    partition.log_reaches(offset)
                    partition.perform()
            case OutOfRange():
                await self._out_of_range(event)
            case Assigned(partitions):
                self._state.health.group_assigned()
                await self._judge_again(partitions)
                for tp in partitions:
                    self._ownership.assign(tp)
            case Revoked():
                await self.revoked(event, back=True)
            case Lost(partitions):
                self._forget(partitions)
            case TopicReplaced(topic, topic_id):
                LOG.warning(
                    "topic %s was deleted and created again: ackd goes on with the new one", topic
                )
                self._ownership.replaced(topic, topic_id)
            case Condition():
                self._condition(event)

    async def _fetched(self, event: Fetched) -> None:
        partition = self._partitions.owned.get(event.partition)
        if partition is None:
            return
        if event.leader_epoch >= 0 and not await self._led(partition, event):
            return
        if event.delays:
            foreign_delays.reported(partition, event.session, event.delays)
        partition.ledger.intake.fetched(event.session, self._copy_filter.sift(event))
        partition.log_reaches(event.records[-1].offset + 1)
        partition.perform()
        self._fetched_some()
        self._context.metrics.fetched.at(self._state.name).inc(len(event.records))
        self._state.signals.room()

    async def _led(self, partition: Partition, event: Fetched) -> bool:
        """Whether records of a leader epoch that is new here may go to the ledger (R1).

        If the store can't record the epoch, the partition is taken again.
        """
        if event.leader_epoch <= self._leader_epochs.of(partition):
            return True
        try:
            sound = await self._leader_epochs.fetched(partition, event)
        except StoreError:
            self._ownership.retake(partition)
            return False
        return sound and not partition.closed

    def _condition(self, event: Condition) -> None:
        if event.cleared:
            self._state.clear(event.code)
            return
        if self._state.report(event):
            LOG.warning(
                "%s: the broker client reports %s: %s", self._state.name, event.code, event.detail
            )
        if event.fatal:
            raise BrokerFatalError(f"{event.code}: {event.detail}")

    def _forget(self, partitions: Sequence[TopicPartition]) -> None:
        for tp in partitions:
            self._partitions.unassign(tp)

    async def _judge_again(self, partitions: Sequence[TopicPartition]) -> None:
        """Let go of what is owned but was not assigned, as after `Lost`, if another client may have
        committed meanwhile: it is taken anew, which accepts or refuses that (R8).
        """
        owned, assigned = self._partitions.owned, self._partitions.assigned
        unjudged = {tp: owned[tp] for tp in partitions if tp in owned and tp not in assigned}
        if not unjudged:
            return
        try:
            async with asyncio.timeout(JUDGE_MS / 1000):
                found = await self._state.consumer.committed(list(unjudged))
        except (BrokerError, TimeoutError):
            found = {}
        for tp, partition in unjudged.items():
            if tp not in found or judge(partition.key, found[tp]).external:
                self._ownership.drop(partition)

    async def revoked(self, event: Revoked, *, back: bool = False) -> None:
        """Write the progress and let go, within a time bound (R34). `back`: the next owner may be
        slow to come, so this sidecar may be the next one, too; at once, if the group assigns
        nothing before all have joined again.
        """
        back_ms = (0 if event.rejoins else BACK_MS) if back else None
        owned = self._partitions.owned
        gone = [owned[tp] for tp in event.partitions if tp in owned]
        try:
            await self._handing.give_up(event.partitions, gone, self._hand_over, back_ms=back_ms)
        finally:
            event.done()

    async def _out_of_range(self, event: OutOfRange) -> None:
        partition = self._partitions.owned.get(event.partition)
        if partition is None or partition.ledger.intake.session != event.session:
            return
        ledger = partition.ledger
        cut = event.cut
        if cut is None and ledger.position >= event.log_start:
            cut = event.log_end
        if cut is not None:
            try:
                await self._ownership.truncated(partition, cut)
            except (StoreError, BrokerError):
                self._ownership.retake(partition)
            return
        lost = ledger.intake.expired(event.log_start)
        if lost:
            LOG.error(
                "%s: the broker's retention deleted %d unfinished messages: they are lost",
                event.partition,
                lost,
            )
            self._context.metrics.expired_by_retention.at(self._state.name).inc(lost)
        start = ledger.finished.first_clear(event.log_start)
        session = self._state.consumer.fetch_from(event.partition, start)
        ledger.intake.fetching(session, start)
        partition.perform()
