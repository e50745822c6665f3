"""Builds, starts and stops the parts of one subscription on this sidecar.

Only this file knows all parts. Each gets what it needs as arguments; calls to higher layers go
through the signals of `SubscriptionState`, which are connected here.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from msgspec.structs import replace

from ackd.config.subscription import SubscriptionSettings
from ackd.core.ids import LedgerKey
from ackd.engine.base.context import Context
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.base.tasks import endless
from ackd.engine.cluster.heartbeat import Heartbeat
from ackd.engine.cluster.members import MemberNote
from ackd.engine.cluster.membership import Membership
from ackd.engine.control.cancel import Cancels
from ackd.engine.control.control import Control
from ackd.engine.control.delivery_limits import DeliveryLimits
from ackd.engine.control.group_views import GroupViews
from ackd.engine.control.inspect import Inspector
from ackd.engine.control.lag import Lag
from ackd.engine.control.message_lookup import MessageLookup
from ackd.engine.control.partition_gauges import PartitionGauges
from ackd.engine.control.readiness import SubscriptionReadiness
from ackd.engine.control.stable_offset_lag import StableOffsetLag
from ackd.engine.control.subscription_gauges import SubscriptionGauges
from ackd.engine.delivery.circuit_breaker import CircuitBreaker
from ackd.engine.delivery.deadline_timers import DeadlineTimers
from ackd.engine.delivery.dedup import Dedup
from ackd.engine.delivery.dispatcher import Dispatcher
from ackd.engine.delivery.fetch_ahead import FetchAhead
from ackd.engine.delivery.fetch_throttle import FetchThrottle
from ackd.engine.delivery.handed_leases import HandedLeases
from ackd.engine.delivery.receive_attempts import ReceiveAttempts
from ackd.engine.delivery.window_pressure import WindowPressure
from ackd.engine.departure import Departure, LastReport
from ackd.engine.operations.archive import AnyDocument, KeepRight, OperationJob
from ackd.engine.operations.dead_letter_records import DeadLetterRecords
from ackd.engine.operations.operation_runner import Operations
from ackd.engine.operations.redrive_job import RedriveJob
from ackd.engine.operations.seek_document import SeekDocument
from ackd.engine.operations.seek_job import SeekJob
from ackd.engine.operations.subscription_dead_letters import SubscriptionDeadLetters
from ackd.engine.operations.subscription_seeks import SubscriptionSeeks
from ackd.engine.ownership.broadcast import is_broadcast, open_consumer, scope
from ackd.engine.ownership.broker_acks import BrokerAckFlow
from ackd.engine.ownership.broker_events import BrokerEvents
from ackd.engine.ownership.commit import Committer
from ackd.engine.ownership.hand_over import HANDOVER_MS
from ackd.engine.ownership.ownership import AGAIN, Ownership, PartitionParts
from ackd.engine.ownership.records import Records
from ackd.engine.partition.owned import OwnedPartitions, Topics
from ackd.engine.partition.partition import Partition
from ackd.engine.parts_by_name import PartsByName
from ackd.engine.peers.links import PeerLinks
from ackd.engine.peers.sharing import PeerSharing
from ackd.engine.retry.body_spill import BodySpill
from ackd.engine.retry.claims import CopyClaims
from ackd.engine.retry.copier import DEAD, RETRY, Copier
from ackd.engine.retry.copy_filter import OwnCopyFilter
from ackd.engine.retry.effect_handlers import effect_handlers
from ackd.engine.retry.key_queues import KeyQueues
from ackd.engine.retry.moved_bodies import MovedBodies
from ackd.engine.retry.own_topic import RetryTopic, dead_letter_topic
from ackd.engine.retry.signed_logs import SignedLogs
from ackd.engine.settlement.notes import ProgressNotes
from ackd.engine.settlement.settle import LeaseLook
from ackd.engine.settlement.subscription_settles import SubscriptionSettles
from ackd.engine.tracing.observer import observer_of
from ackd.errors import AckdError, BrokerError, StoreError
from ackd.ports import Broker, ConsumerSpec, TopicLook
from ackd.retries import repeating
from ackd.telemetry.spans import SpanEvent

LOG = logging.getLogger("ackd.engine")


class PeerParts(NamedTuple):
    """What a subscription needs to share messages with other sidecars. `release` gives leases on
    their partitions back.
    """

    links: PeerLinks
    release: Callable[[Sequence[str]], None]


RETRY_TOPIC_MS = 200
"""How long joining the group waits for the retry topic, which may also come later."""


# tidy: long-class lines=400 attributes=35 -- the composition root: an attribute for each part
class Subscription:
    """The parts of one subscription. `handed`: leases of partitions that others own by now;
    `by_name`: the tables through which others find its parts; `look`: looks a lease up.
    """

    def __init__(
        self,
        name: str,
        settings: SubscriptionSettings,
        broker: Broker,
        context: Context,
        *,
        note: MemberNote | None = None,
        handed: HandedLeases | None = None,
        by_name: PartsByName,
        look: LeaseLook,
        peers: PeerParts | None = None,
    ) -> None:
        self.name = name
        self.context = context
        self.state = _state(name, settings, broker, context)
        self.partitions = OwnedPartitions(context.identity)
        self.topics = Topics(self.state)
        self.membership = Membership(self.state, context, _note(note or MemberNote(), peers))
        self.control = Control(self.state, context)
        self.retry_topic = RetryTopic(self.state, context)
        own = self.retry_topic.topic.name
        self.tracing = observer_of(self.state, context, self.partitions, self.topics, own)
        self._build_retry()
        self._build_delivery()
        handed = handed or HandedLeases()
        self._build_ownership(handed)
        self._build_operations()
        self.sharing = None if peers is None else self._share(peers, handed)
        self._reading: list[asyncio.Task[None]] = []
        self._connect()
        _offer(self, by_name, look)

    # --- putting together, lower parts first

    def _build_retry(self) -> None:
        state, context, partitions = self.state, self.context, self.partitions
        spill = context.spill(self.name, state.configured.spill_bytes_max)
        self.bodies = BodySpill(state, context, partitions, spill)
        retry, dead = (
            self.retry_topic.topic,
            dead_letter_topic(state.broker, self.name, state.configured),
        )
        copied = self.tracing.copied
        sent_back = partial(copied, SpanEvent.SEND_BACK, retry.name)
        dead_lettered = partial(copied, SpanEvent.DEAD_LETTER, dead.name)
        self.send_back = Copier(state, context, RETRY, retry, self.bodies, sent_back)
        self.dead_letters = Copier(state, context, DEAD, dead, self.bodies, dead_lettered)
        topics, others = (retry.name, dead.name), self.membership
        self.signed_logs = SignedLogs(state, context, topics, others.winner, others.all_sign)
        self.dead_letter_records = DeadLetterRecords(context)
        self.copy_filter = OwnCopyFilter(
            self.name, state.configured.topics, topics, context.metrics
        )
        self.key_queues = KeyQueues(
            state, context, partitions, self.topics, retry.name, self._claim
        )
        self.claims = CopyClaims(
            state,
            context,
            partitions,
            self.topics,
            self.bodies,
            self.key_queues,
            self._open_dead,
        )

    def _claim(self, partition: Partition, offset: int) -> None:
        """For parts that are built before `claims` and need it."""
        self.claims.claim(partition, offset)

    async def _open_dead(self, key: LedgerKey) -> None:
        await self.dead_letter_records.take(key, None)

    def _build_delivery(self) -> None:
        state, context, partitions = self.state, self.context, self.partitions
        self.notes = ProgressNotes(state, context, partitions)
        self.breaker = CircuitBreaker(state, context)
        self.dedup = Dedup(state, context) if state.configured.dedup.key else None
        ahead = None if state.broker_side_acks is None else FetchAhead(context.clock)
        self.fetch_throttle = FetchThrottle(state, partitions, ahead)
        self.dispatcher = Dispatcher(
            state,
            context,
            partitions,
            self.membership,
            self.membership.share,
            self.notes,
            self.breaker,
            self.dedup,
            self.control.pauses,
            self.fetch_throttle,
        )
        self.window_pressure = WindowPressure(
            state,
            context,
            partitions,
            lambda: self.fetch_throttle.paused,
            lambda: bool(self.send_back),
        )
        self.timers = DeadlineTimers(
            state,
            context,
            partitions,
            self.membership,
            self.dispatcher,
            self.window_pressure,
            self._expired,
            self.bodies,
            self.claims,
            lambda: self.send_back.on_their_way() + self.claims.first_waiting(),
        )
        self.stable_offset_lag = StableOffsetLag(context.clock)

    def _build_ownership(self, handed: HandedLeases) -> None:
        state, context, partitions = self.state, self.context, self.partitions
        self.records = Records(context, partitions, self.membership)
        self.committer = Committer(state, context, partitions, self.tracing.committed)
        self.report = LastReport(self.timers, self.committer, traced=self.tracing.on)
        self.ownership = Ownership(
            state,
            context,
            partitions,
            self.topics,
            self.membership,
            self.records,
            self.retry_topic,
            self.committer.commit_first,
            self._partition_parts(handed),
        )
        self.heartbeat = Heartbeat(
            state,
            context,
            self.membership,
            partitions,
            self.ownership,
            self.control,
            self.dispatcher.ready,
        )
        self.events = BrokerEvents(
            state,
            context,
            partitions,
            self.membership,
            self.ownership,
            self.ownership.leader_epochs,
            self.copy_filter,
            self.report.write,
            self.timers.wake_if_idle,
        )
        acks = state.broker_side_acks
        if acks is not None:
            flow = BrokerAckFlow(
                state,
                acks,
                context,
                partitions,
                self.topics,
                self.membership,
                self.records,
                self.ownership.assign,
                self.events.revoked,
            )
            self.events.connect(flow)

    def _partition_parts(self, handed: HandedLeases) -> PartitionParts:
        """The parts that a partition calls. The order of the observers counts: spans and dedup read
        the ledger as it was before a reply, claims read it as the reply left it.
        """
        tracing, dedup = self.tracing, self.dedup
        return PartitionParts(
            observers=(
                tracing.on_reply,
                *(() if dedup is None else (dedup.on_reply,)),
                Partition.apply,
                self.claims.on_reply,
            ),
            effects=effect_handlers(
                self.send_back, self.dead_letters, self.claims, self.key_queues, self.bodies
            ),
            performed=() if self.state.broker_side_acks is None else (self._finished_at_broker,),
            ready=self.dispatcher.ready,
            due=self.timers.due,
            blocked=self.key_queues.on_blocked,
            on_taken=(tracing.taken,),
            on_left=(handed.note,),
            on_dropped=(self.claims.forget,),
            unordered=self.state.broker_side_acks is not None,
        )

    def _finished_at_broker(self, partition: Partition) -> None:
        if self.events.broker_side_acks is not None:
            self.events.broker_side_acks.over(partition)

    def _build_operations(self) -> None:
        state, context = self.state, self.context
        self.cancels = Cancels(
            state, context, self.control, self.partitions, self.bodies, self.claims, self.topics
        )
        self.operations = Operations(
            state, context, self.control.end_halt, self.dead_letter_records, self._job
        )

    def _job(self, document: AnyDocument, keep_right: KeepRight) -> OperationJob:
        """The job for one attempt at an operation."""
        topic, tracing = self.retry_topic.topic, self.tracing
        if isinstance(document, SeekDocument):
            return SeekJob(
                self.state,
                self.context,
                self.membership,
                self.control,
                self.records,
                topic.name,
                tracing.sought,
                keep_right,
                document,
            )
        marks = self.dead_letter_records
        redriven = tracing.redriven
        return RedriveJob(self.state, self.context, marks, topic, redriven, keep_right, document)

    def _share(self, peers: PeerParts, handed: HandedLeases) -> PeerSharing:
        sharing = PeerSharing(
            self.state,
            self.context,
            self.membership,
            self.dispatcher,
            self.dispatcher.elsewhere,
            self.notes,
            peers.links,
            peers.release,
            handed.add,
            self.breaker.expired,
        )
        self.dispatcher.elsewhere.connect(sharing)
        self.state.signals.members.connect(sharing.others_seen)
        self.state.signals.deliver.connect(sharing.look_again)
        return sharing

    def _expired(
        self, partition: Partition, found: Iterable[Sequence[int]], counts: Counter[str]
    ) -> None:
        """Leases have expired, of applications beside these sidecars."""
        self.tracing.expired(partition, found)
        if here := counts.pop("", 0):
            self.breaker.expired(here)
        if counts and self.sharing is not None:
            self.sharing.expired(counts)

    def _connect(self) -> None:
        """Connect the signals of lower parts to their handlers."""
        signals = self.state.signals
        signals.deliver.connect(self.dispatcher.serve)
        if self.events.broker_side_acks is not None:
            signals.room.connect(self.events.broker_side_acks.taken)
        signals.room.connect(self.fetch_throttle.adjust, self.committer.look)
        signals.timers.connect(self.timers.wake)
        signals.beat.connect(self.heartbeat.beat_soon)
        signals.policies.connect(self.ownership.policies_changed)
        self.control.connect(
            self.ownership.live_changed,
            self.cancels.changed,
            self.breaker.changed,
        )
        self.control.connect_writer(self.tracing.changed)

    def phase(self) -> str:
        """What it does now, in a word."""
        if not self.state.health.joined:
            return "starting"
        if self.state.paused:
            return "paused"
        return "running" if self.partitions.owned else "idle"

    def cluster_scope(self, cluster: str) -> str:
        """What stands for the cluster in the keys of this subscription's records."""
        return scope(self.state.configured, cluster, self.context.identity)

    def inherit(self, before: Subscription) -> None:
        """Take over what this process remembers of the subscription's previous run."""
        self.control.inherit(before.control)
        # What it served is still to be replayed if the store has failed over since (R10).
        self.membership.replayed(before.membership.replayed_run)
        if self.sharing is not None and before.sharing is not None:
            self.sharing.inherit(before.sharing)

    # --- life

    async def run(self) -> None:
        """Work until cancelled. Store and broker may come and go meanwhile."""
        try:
            await self._until_done(self.heartbeat.register)
            async with asyncio.TaskGroup() as group:
                making = group.create_task(self.retry_topic.run())  # quick, it saves a rebalance
                if self.state.broker_side_acks is not None:
                    group.create_task(self.dead_letters.prepare())
                await asyncio.wait({making}, timeout=RETRY_TOPIC_MS / 1000)
                await self._until_done(self.state.consumer.start)
                self.state.health.group_joined()
                for run in self._loops():
                    group.create_task(endless(run))
                self._reading = [group.create_task(endless(run)) for run in self._reads()]
        finally:
            await self._stop()

    def _loops(self) -> Sequence[Callable[[], Coroutine[Any, Any, None]]]:
        """Tasks that run for as long as the subscription does."""
        loops = [
            self.heartbeat.run,
            self.timers.run,
            self.claims.run,
            self.key_queues.run,
            self.send_back.run,
            self.dead_letters.run,
            self.signed_logs.run,
            self.operations.run,
            self.bodies.run,
        ]
        if self.dedup is not None:
            loops.append(self.dedup.run)
        return loops

    def _reads(self) -> Sequence[Callable[[], Coroutine[Any, Any, None]]]:
        """Tasks of a member of the group: they end when this sidecar leaves it."""
        loops = [self.events.run, self.committer.run]
        if isinstance(self.state.broker, TopicLook):
            loops.append(self.retry_topic.watch)
        if self.events.broker_side_acks is not None:
            loops.append(self.events.broker_side_acks.run)
        return loops

    async def leave_group(self) -> None:
        """Be a member of the broker's group no more; settles and heartbeats go on."""
        for task in self._reading:
            task.cancel()
        await self.state.consumer.close()

    async def _stop(self) -> None:
        self.dispatcher.stop()
        if self.sharing is not None:
            await self.sharing.stop()
        self.breaker.stop()
        await self.heartbeat.stop()
        await self.ownership.stop()
        await self.dispatcher.rate.stop()
        await self.state.consumer.close()
        await self.bodies.close()
        await self.cancels.stop()

    async def _until_done(self, step: Callable[[], Awaitable[None]]) -> None:
        """Repeat a step of the start until it succeeds; readiness tells meanwhile why it fails."""

        def failed(error: AckdError) -> None:
            self.state.health.fails(f"{error.type}: {error.detail}")

        await repeating((StoreError, BrokerError), AGAIN, failed=failed)(step)
        self.state.health.works()

    async def leave(self) -> None:
        """A clean stop: report progress to store and broker, then tell the other sidecars."""
        self.dispatcher.stop()
        try:
            async with asyncio.timeout(HANDOVER_MS / 1000):
                try:
                    await self.report.write(self.partitions.all())
                    if self.dedup is not None:
                        await self.dedup.leave()
                finally:
                    try:
                        await self.heartbeat.leave()
                    finally:
                        self.ownership.drop_all()
                        self.tracing.close()
        except (AckdError, TimeoutError) as error:
            LOG.info(
                "%s: ackd left the group without a last commit (%s); the store has the progress",
                self.name,
                error,
            )


def _state(
    name: str, settings: SubscriptionSettings, broker: Broker, context: Context
) -> SubscriptionState:
    spec = ConsumerSpec(
        group=settings.group or name,
        topics=settings.topics,
        client_id=context.identity,
        static_id=settings.static_id,
        ordered=settings.ordering != "none",
        filter=settings.filter,
        sources=partial(context.store.places.sources, name),
    )
    consumer = open_consumer(broker, spec, context.clock, broadcast=is_broadcast(settings))
    where = scope(settings, name, context.identity)
    return SubscriptionState(name, settings, broker, consumer, where)


def _note(note: MemberNote, peers: PeerParts | None) -> MemberNote:
    """What this sidecar writes about itself, with the address where others reach it."""
    note = replace(note, signs=True, counts=True)
    return note if peers is None else replace(note, peer=peers.links.address)


def _offer(of: Subscription, by_name: PartsByName, look: LeaseLook) -> None:
    """Put the parts that others work with of a subscription into their tables."""
    name, state, context, partitions = of.name, of.state, of.context, of.partitions
    increase, drift = of.ownership.increase, of.membership.drift
    limits = DeliveryLimits(state, context, partitions, of.control, increase, of.dispatcher)
    by_name.partitions[name] = partitions
    by_name.dispatchers[name] = of.dispatcher
    sharing = of.sharing
    by_name.departures[name] = Departure(
        state,
        partitions,
        of.dispatcher.elsewhere,
        of.ownership,
        of.membership,
        sharing,
        of.report,
        of.leave_group,
    )
    elsewhere = None if sharing is None else sharing.leased_elsewhere
    moved = MovedBodies(of.claims, of.bodies)
    attempts = ReceiveAttempts(
        state, context, partitions, of.dispatcher, of.notes, look, moved, elsewhere
    )
    by_name.attempts[name] = attempts
    if sharing is not None:
        sharing.answer_leased(attempts.leased)
    retry = of.retry_topic.topic.name
    settled = of.tracing.settled
    by_name.settles[name] = SubscriptionSettles(
        state, context, partitions, of.topics, of.breaker, of.cancels, of.claims, settled, retry
    )
    by_name.dead_letters[name] = SubscriptionDeadLetters(
        state, context, of.dead_letter_records, of.operations
    )
    by_name.seeks[name] = SubscriptionSeeks(
        state, context, of.control, of.records, retry, of.operations
    )
    by_name.controls[name] = of.control
    by_name.cancels[name] = of.cancels
    _offer_views(of, by_name, limits)
    by_name.readiness[name] = SubscriptionReadiness(
        state, context.clock, partitions, of.membership, drift, of.control, increase, of.retry_topic
    )
    by_name.gauges[name] = SubscriptionGauges(
        state,
        context,
        partitions,
        drift,
        of.dispatcher,
        of.breaker,
        of.window_pressure,
        of.bodies,
        (of.send_back, of.dead_letters),
    )
    by_name.partition_gauges[name] = PartitionGauges(
        state, context, partitions, of.stable_offset_lag
    )


def _offer_views(of: Subscription, by_name: PartsByName, limits: DeliveryLimits) -> None:
    """The same of the parts that show what there is."""
    name, state, context, partitions = of.name, of.state, of.context, of.partitions
    inspector = by_name.inspectors[name] = Inspector(
        state,
        context,
        partitions,
        of.send_back,
        of.dead_letters,
        of.stable_offset_lag,
        of.dedup,
        limits,
        of.retry_topic,
    )
    lag = by_name.lags[name] = Lag(state, context, partitions, of.topics, of.membership)
    lookup = MessageLookup(
        state,
        context,
        of.topics,
        partitions,
        of.membership,
        inspector,
        of.retry_topic.topic.name,
        by_name.dead_letters[name].find,
    )
    questions = None if of.sharing is None else of.sharing.questions
    by_name.groups[name] = GroupViews(lag, inspector, of.membership, questions, lookup)
