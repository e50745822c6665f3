"""One subscription on this sidecar: its parts, and the loop over the broker's events."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ackd.config.subscription import SubscriptionSettings
from ackd.core.ids import TopicPartition
from ackd.engine.base.context import Context
from ackd.engine.cluster.heartbeat import Presence
from ackd.engine.cluster.members import Note
from ackd.engine.control.cancel import Cancels
from ackd.engine.control.control import Control
from ackd.engine.control.lease_change import Lengthening
from ackd.engine.control.stable_offset_lag import HeldEnds
from ackd.engine.delivery.circuit_breaker import Braking
from ackd.engine.delivery.dedup import Dedup
from ackd.engine.delivery.dispatcher import HandOut
from ackd.engine.delivery.timers import Sweeper
from ackd.engine.delivery.window_pressure import Filling
from ackd.engine.operations.dead_letter_records import DeadMarks
from ackd.engine.operations.operations import Operations
from ackd.engine.ownership.broadcast import is_broadcast, open_consumer, scope
from ackd.engine.ownership.broker_acks import own_acks
from ackd.engine.ownership.commit import Committer
from ackd.engine.ownership.ownership import RETRY_MS, Ownership
from ackd.engine.partition import foreign_delays
from ackd.engine.partition.partition import Partition
from ackd.engine.retry.body_spill import Parking
from ackd.engine.retry.claims import Claims
from ackd.engine.retry.copier import DEAD, RETRY, Sender
from ackd.engine.retry.copy_filter import Sieve
from ackd.engine.retry.key_queues import Lines
from ackd.engine.retry.own_topic import RetryTopic, dead_letter_topic
from ackd.engine.settlement.notes import Notes
from ackd.errors import AckdError, BrokerError, BrokerFatalError, StoreError
from ackd.ports import (
    Arrived,
    Broker,
    Consumer,
    ConsumerSpec,
    EndReached,
    Fetched,
    LogEvent,
    Lost,
    Nominated,
    OutOfRange,
    Revoked,
    TopicReplaced,
    Trouble,
)

if TYPE_CHECKING:
    from ackd.engine.tracing.subscription_spans import Tracing

LOG = logging.getLogger("ackd.engine")

HANDOVER_MS = 2_000
RETRY_TOPIC_MS = 200
"""How long joining the group waits for the retry topic, which may come later as well."""


@dataclass(slots=True)
class Health:
    """What readiness asks of a subscription. `refusal`: why this sidecar must not serve it."""

    joined: bool = False
    nominated_once: bool = False
    superseded: bool = False
    store_ok: bool = False
    detail: str = ""
    refusal: AckdError | None = None


class Subscription:
    """Owns partitions (`ownership`), feeds their ledgers, hands out through `hand_out`."""

    def __init__(
        self,
        name: str,
        settings: SubscriptionSettings,
        broker: Broker,
        context: Context,
        *,
        cluster: str,
        note: Note | None = None,
    ) -> None:
        self.name = name
        self.settings = settings
        self.broker = broker
        self.cluster = cluster
        self.troubles: dict[str, Trouble] = {}
        self.health = Health()
        self.scope = scope(settings, name, context.identity)
        spec = ConsumerSpec(
            group=settings.group or name,
            topics=settings.topics,
            client_id=context.identity,
            static_id=settings.static_id,
            ordered=settings.ordering != "none",
            filter=settings.filter,
        )
        self.consumer: Consumer = open_consumer(
            broker, spec, context.clock, broadcast=is_broadcast(settings)
        )
        self.context = context
        self.own_acks = own_acks(self, context)
        self.control = Control(self, context)
        self.notes = Notes(self, context)
        self.cancels = Cancels(self, context)
        self.lengthening = Lengthening(self, context)
        self.brake = Braking(self, context)
        self.filling = Filling(self, context)
        self.held_ends = HeldEnds(context.clock)
        self.hand_out = HandOut(self, context)
        self.dedup = Dedup(self, context) if settings.dedup.key else None
        self.parking = Parking(self, context, context.spill(name, settings.spill_bytes_max))
        self.retry_topic = RetryTopic(self, context)
        self.lines = Lines(self, context)
        self.claims = Claims(self, context)
        self.send_back = Sender(self, context, RETRY, self.retry_topic.topic)
        dead = dead_letter_topic(broker, name, settings)
        self.dead_letters = Sender(self, context, DEAD, dead)
        self.dead_marks = DeadMarks(context)
        self.operations = Operations(self, context)
        self.sweeper = Sweeper(self, context)
        self.committer = Committer(self, context)
        self.presence = Presence(self, context, note or Note())
        self.tracing: Tracing | None = None
        if context.traces is not None:
            from ackd.engine.tracing.subscription_spans import Tracing  # noqa: PLC0415  only when traces are on

            self.tracing = Tracing(self, context.traces)
        self.ownership = Ownership(self, context)
        own = (self.retry_topic.topic.name, dead.name)
        self._sieve = Sieve(name, settings.topics, own, context.metrics)

    def cluster_scope(self, cluster: str) -> str:
        """What stands for the cluster in the names of this subscription's records."""
        return scope(self.settings, cluster, self.context.identity)

    @property
    def owned(self) -> dict[TopicPartition, Partition]:
        """The partitions that this sidecar grants from."""
        return self.ownership.owned

    # --- life

    async def run(self) -> None:
        """Work until cancelled. Store and broker may come and go meanwhile."""
        try:
            await self._until_done(self.presence.register)
            await self._until_done(self.presence.admit)
            async with asyncio.TaskGroup() as group:
                # One rebalance fewer if it is quick; but nobody waits for it.
                making = group.create_task(self.retry_topic.run())
                await asyncio.wait({making}, timeout=RETRY_TOPIC_MS / 1000)
                await self._until_done(self.consumer.start)
                self.health.joined = True
                for part in (
                    self._consume,
                    self.presence.run,
                    self.sweeper.run,
                    self.committer.run,
                    self.claims.run,
                    self.lines.run,
                    self.send_back.run,
                    self.dead_letters.run,
                    self.operations.run,
                    self.parking.run,
                    self.retry_topic.watch,
                ):
                    group.create_task(part())
                if self.dedup is not None:
                    group.create_task(self.dedup.run())
                if self.own_acks is not None:
                    group.create_task(self.own_acks.run())
        finally:
            self.hand_out.stop()
            self.brake.stop()
            await self.presence.stop()
            await self.ownership.stop()
            await self.hand_out.rate.stop()
            await self.consumer.close()
            await self.parking.close()
            await self.cancels.stop()
            await self.notes.stop()

    async def _until_done(self, step: Callable[[], Awaitable[None]]) -> None:
        """Try a step of the start until it works; readiness says meanwhile why it does not."""
        while True:
            try:
                await step()
            except (StoreError, BrokerError) as error:
                self.health.detail = f"{error.type}: {error.detail}"
                await asyncio.sleep(RETRY_MS / 1000)
            else:
                self.health.detail = ""
                return

    async def leave(self) -> None:
        """A clean stop: progress told to store and broker, then others are told that we go."""
        self.hand_out.stop()
        try:
            async with asyncio.timeout(HANDOVER_MS / 1000):
                try:
                    await self._hand_over(list(self.owned.values()))
                    if self.dedup is not None:
                        await self.dedup.leave()
                finally:
                    await self.presence.leave()
                    self.ownership.drop_all()
                    if self.tracing is not None:
                        self.tracing.close()
        except (AckdError, TimeoutError) as error:
            LOG.info("%s: left without the last commit (%s); the store knows", self.name, error)

    async def _hand_over(self, partitions: list[Partition]) -> None:
        if self.tracing is not None:
            # What others settled last is told of by the owner, or by nobody.
            await asyncio.gather(*(each.flush() for each in partitions))
        await self.sweeper.flush(partitions)
        await self.committer.commit(partitions, last=True)

    # --- the broker's events

    async def _consume(self) -> None:
        while True:
            try:
                events = await self.consumer.events()
            except BrokerError as error:
                self.troubles["consumer"] = Trouble("consumer", error.detail)
                await asyncio.sleep(RETRY_MS / 1000)
                continue
            for event in events:
                if self.own_acks is not None and isinstance(event, Arrived | Nominated):
                    await self.own_acks.on(event)
                elif not isinstance(event, Arrived):
                    await self._on(event)
            self.hand_out.serve()

    async def _on(self, event: LogEvent) -> None:
        match event:
            case Fetched():
                await self._fetched(event)
            case EndReached(tp, session, offset):
                partition = self.owned.get(tp)
                if partition is not None:
                    partition.ledger.intake.end_reached(session, offset)
                    partition.end = max(partition.end, offset)
                    partition.perform()
            case OutOfRange():
                await self._out_of_range(event)
            case Nominated(partitions):
                self.health.nominated_once = True
                for tp in partitions:
                    self.ownership.nominate(tp)
            case Revoked(partitions):
                await self.revoked(event, partitions)
            case Lost(partitions):
                for tp in partitions:
                    self.ownership.nominated.pop(tp, None)
            case TopicReplaced(topic, topic_id):
                LOG.warning("topic %s was deleted and made again", topic)
                self.ownership.replaced(topic, topic_id)
            case Trouble():
                self._trouble(event)

    async def _fetched(self, event: Fetched) -> None:
        partition = self.owned.get(event.partition)
        if partition is None:
            return
        if event.leader_epoch > partition.leader_epoch and not await self._led(partition, event):
            return
        if event.delays:
            foreign_delays.told(partition, event.session, event.delays)
        partition.ledger.intake.fetched(event.session, self._sieve.sift(event))
        partition.end = max(partition.end, event.records[-1].offset + 1)
        partition.perform()
        self.sweeper.stir()
        self.context.metrics.fetched.at(self.name).inc(len(event.records))
        self.hand_out.throttle()

    async def _led(self, partition: Partition, event: Fetched) -> bool:
        """Records of a leader epoch that is new here: whether they may go to the ledger (R1).

        If the store can't be told of it, the partition is taken again.
        """
        try:
            sound = await self.ownership.leader_epochs.fetched(partition, event)
        except StoreError:
            self.ownership.drop(partition)
            self.ownership.later(event.partition)
            return False
        return sound and not partition.closed

    def _trouble(self, event: Trouble) -> None:
        if event.cleared:
            self.troubles.pop(event.code, None)
            return
        if event.code not in self.troubles:
            LOG.warning("%s: broker trouble %s: %s", self.name, event.code, event.detail)
        self.troubles[event.code] = event
        if event.fatal:
            raise BrokerFatalError(f"{event.code}: {event.detail}")

    async def revoked(self, event: Revoked, partitions: tuple[TopicPartition, ...]) -> None:
        """Hand over in good order, bounded; unflushed is safe too, the store knows (R34)."""
        gone = [self.owned[tp] for tp in partitions if tp in self.owned]
        try:
            async with asyncio.timeout(HANDOVER_MS / 1000):
                await self._hand_over(gone)
        except (AckdError, TimeoutError) as error:
            LOG.info("%s: revoked without a last commit: %s", self.name, error)
        finally:
            for tp in partitions:
                self.ownership.nominated.pop(tp, None)
            for partition in gone:
                self.ownership.drop(partition)
            self.presence.handed_over([partition.key.text() for partition in gone])
            event.done()

    async def _out_of_range(self, event: OutOfRange) -> None:
        partition = self.owned.get(event.partition)
        if partition is None or partition.ledger.intake.session != event.session:
            return
        ledger = partition.ledger
        cut = event.cut
        if cut is None and ledger.position >= event.log_start:
            cut = event.log_end
        if cut is not None:
            try:
                await self.ownership.truncated(partition, cut)
            except (StoreError, BrokerError):
                self.ownership.drop(partition)
                self.ownership.later(event.partition)
            return
        lost = ledger.intake.expired(event.log_start)
        if lost:
            LOG.error("%s: %d unfinished messages deleted by retention", event.partition, lost)
            self.context.metrics.expired_by_retention.at(self.name).inc(lost)
        start = ledger.finished.first_clear(event.log_start)
        ledger.intake.fetching(self.consumer.fetch_from(event.partition, start), start)
        partition.perform()
