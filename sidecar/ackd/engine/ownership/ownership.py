"""Decide which partitions this sidecar may grant from: take them, read their records again, let
them go.

It asks the store (through `Recovery`) for the term that gives the right.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from ackd.core.backoff import Backoff
from ackd.core.ids import LedgerKey, TopicPartition
from ackd.core.ledger.effects import Effect
from ackd.core.record.operations import EndRepair, Gap, Op, Truncate
from ackd.core.record.protocol import OpResult
from ackd.engine.base.context import Context
from ackd.engine.base.copy_signature import CopyKind, Proof
from ackd.engine.base.live import Live
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.base.tasks import Tasks
from ackd.engine.cluster.membership import BACK_MS, Membership
from ackd.engine.ownership.external_reset import ExternalResets
from ackd.engine.ownership.leader_epochs import LeaderEpochs
from ackd.engine.ownership.partition_increase import PartitionIncrease
from ackd.engine.ownership.records import Records
from ackd.engine.ownership.recover import NotYetError, Recovery, Wish
from ackd.engine.ownership.start_positions import StartPositions
from ackd.engine.partition.ordering import position_of
from ackd.engine.partition.owned import OwnedPartitions, Topics
from ackd.engine.partition.partition import (
    EffectHandler,
    Partition,
    Policy,
    ReplyObserver,
    Wiring,
)
from ackd.engine.retry.own_topic import RetryTopic
from ackd.errors import BrokerError, StoreError
from ackd.ports import Record, TopicInfo

LOG = logging.getLogger("ackd.engine")

AGAIN = Backoff.constant(250)
"""A partition stands still meanwhile, so waits do not grow."""
RETAKE_MS = 2_500


Taken = Callable[[Partition, int], None]
"""Gets a partition that is owned from now on, and how many ms the take took."""
Dropped = Callable[[Partition], None]


@dataclass(frozen=True, slots=True)
class PartitionParts:
    """The parts that the partitions of one subscription work with.

    `on_taken` and `on_dropped` are called for every partition that comes and goes, in their order;
    `on_left` only for those whose messages other sidecars continue. `unordered`: messages of the
    subscription's own topics arrive in any order.
    """

    observers: tuple[ReplyObserver, ...]
    effects: Mapping[type[Effect], EffectHandler]
    performed: tuple[Callable[[Partition], None], ...]
    ready: Callable[[Partition], None]
    due: Callable[[int], None]
    blocked: Callable[[Partition, OpResult], None]
    on_taken: tuple[Taken, ...]
    on_left: tuple[Dropped, ...]
    on_dropped: tuple[Dropped, ...]
    unordered: bool


# tidy: long-class lines=395 attributes=17 -- nine collaborators, and what is under way
class Ownership:
    """Takes partitions, reads them again, lets them go. The store's term is the right to grant.

    `commit_first` commits a position before the first grant.
    """

    def __init__(
        self,
        state: SubscriptionState,
        context: Context,
        partitions: OwnedPartitions,
        topics: Topics,
        membership: Membership,
        records: Records,
        retry_topic: RetryTopic,
        commit_first: Callable[[Partition], Awaitable[None]],
        parts: PartitionParts,
    ) -> None:
        self._state = state
        self._context = context
        self._partitions = partitions
        self._topics = topics
        self._membership = membership
        self._retry_topic = retry_topic
        self._commit_first = commit_first
        self._parts = parts
        self._tasks = Tasks(f"ownership.{state.name}", context.vitals)
        # 0 until the group assigns what is being taken, then one more with each assignment.
        self._opening: dict[TopicPartition, int] = {}
        self._retake: dict[TopicPartition, int] = {}
        self._held = False
        # Whether the group had assigned it to this sidecar when, or since, it was put by.
        self._put_by: dict[TopicPartition, bool] = {}
        consumer, own = state.consumer, retry_topic.name
        self._start = StartPositions(
            state.scope, state.configured, consumer, context.store, own=own
        )
        self.leader_epochs = LeaderEpochs(consumer, context.store)
        self._resets = ExternalResets(state, context, records, own)
        self.increase = PartitionIncrease(state, context.store, own)

    # --- taking

    def assign(self, tp: TopicPartition) -> None:
        """The broker's group assigned the partition to this sidecar: take it."""
        self._partitions.assign(tp)
        self._retake.pop(tp, None)
        if tp in self._opening:
            self._opening[tp] += 1
        else:
            self.take(tp)

    def take(self, tp: TopicPartition) -> None:
        """Start taking a partition, unless it is owned or being taken."""
        assigned = tp in self._partitions.assigned
        if tp in self._opening or tp in self._partitions.owned or self._must_not():
            return
        if self._held:
            self._put_by[tp] = assigned or self._put_by.get(tp, False)
            return
        self._opening[tp] = int(assigned)
        self._tasks.start(self._open(tp), f"open.{tp.topic}.{tp.partition}", ends=True)

    def later(self, tp: TopicPartition) -> None:
        """Take a partition after a pause, if it is still assigned to us then."""
        self._retake[tp] = self._context.clock.monotonic_ms() + RETAKE_MS

    def retake(self, partition: Partition) -> None:
        """Let go of a partition and take it again: as a member after a pause, else soon."""
        self.drop(partition)
        if partition.tp in self._partitions.assigned:
            self.later(partition.tp)
        else:
            self._membership.inherit([partition.key.text()])

    def hold(self, *, held: bool) -> None:
        """Let go of everything while an operation works on the records, then take it again.

        Other sidecars see the partitions as owned meanwhile (`set_aside`), so that one of them
        inherits them if this one dies.
        """
        if held and not self._held:
            self._held = True
            for tp in self._partitions.owned:
                self._put_by[tp] = tp in self._partitions.assigned
            self._partitions.set_all_aside()
            self.drop_all()
        elif self._held and not held:
            self._held = False
            self._take_back()

    def _take_back(self) -> None:
        """Take what was put by, unless the group has taken it back meanwhile: it is another's."""
        assigned = self._partitions.assigned
        put_by, self._put_by = self._put_by, {}
        revoked = {tp for tp, was_assigned in put_by.items() if was_assigned and tp not in assigned}
        keys = self._partitions.take_back()
        self._membership.inherit(key for tp, key in keys.items() if tp not in revoked)
        for tp in {**assigned, **put_by}:
            if tp not in revoked:
                self.take(tp)

    def _must_not(self) -> bool:
        """Whether another process has this sidecar's name, or it gives everything away."""
        return self._state.health.superseded or self._membership.note.leaving

    def retry_takes(self) -> None:
        """Take those partitions that `later` postponed and whose time has come."""
        now_ms = self._context.clock.monotonic_ms()
        for tp, at_ms in list(self._retake.items()):
            if at_ms <= now_ms:
                del self._retake[tp]
                if tp in self._partitions.assigned:
                    self.take(tp)

    async def take_orphans(self, orphans: list[str]) -> None:
        """Take records (keys as texts) whose owner is dead. Raises BrokerError."""
        if not self._topics.known:
            await self._topics.read()
        names = self._topics.names()
        for text in orphans:
            _, topic_hex, number = text.rsplit(":", 2)
            topic = names.get(topic_hex)
            if topic is not None:
                self.take(TopicPartition(topic, int(number)))

    async def _open(self, tp: TopicPartition) -> None:
        """Try to take one partition until it is taken or no longer ours to take."""
        try:
            while not self._held:
                try:
                    if await self._must_wait(tp):
                        self.later(tp)
                        return
                    await self._open_once(tp)
                except NotYetError as error:
                    LOG.info("%s: this sidecar can't take the partition yet: %s", tp, error.detail)
                    if tp not in self._partitions.assigned:
                        return  # else the group assigned it meanwhile: try again as its member
                except (StoreError, BrokerError) as error:
                    self._state.health.fails(f"opening {tp}: {error.type}: {error.detail}")
                    if tp not in self._partitions.assigned:
                        return
                    await asyncio.sleep(AGAIN.base_ms / 1000)
                else:
                    self._state.health.works()
                    return
            self._put_by[tp] = bool(self._opening[tp])
        finally:
            self._opening.pop(tp, None)

    def _key(self, tp: TopicPartition, info: TopicInfo) -> LedgerKey:
        return LedgerKey(self._state.cluster, self._state.name, info.topic_id, tp.partition)

    async def _must_wait(self, tp: TopicPartition) -> bool:
        info = await self._topics.of(tp.topic)
        return await self.increase.holds(tp, info, self._key(tp, info))

    async def _open_once(self, tp: TopicPartition) -> None:
        began_ms = self._context.clock.monotonic_ms()
        info = await self._topics.of(tp.topic)
        key = self._key(tp, info)
        partition = Partition(
            tp, key, self._context, self._state.consumer, self._wiring(), self._policy(tp)
        )
        partition.copies.find_topics(self._topics.id_of)
        partition.copies.verify_with(self._state.copy_keys)
        self._partitions.opens(partition)
        taken = False
        try:
            taken = await self._take_term(partition, info)
            if taken:
                self._taken(partition, began_ms)
        finally:
            self._partitions.opens_no_more(partition)
            if partition.handle.term and not (taken or self._held):
                # Its owner before may name it no more, as this one has said that it takes it.
                back_ms = BACK_MS if self._revoked(tp) else None
                self._nobodys(partition, back_ms)

    async def _take_term(self, partition: Partition, info: TopicInfo) -> bool:
        """Take the term of a partition and read its record; False if it is not ours to grant."""
        tp = partition.tp
        wish, assigned = self._wish(tp, await self._start.of(tp, info)), self._opening[tp]
        if self._revoked(tp):
            return False
        must_commit = await self._recovery(partition).take(wish, tp)
        if self._opening[tp] != assigned:
            raise NotYetError("the group assigned it meanwhile")
        await self.leader_epochs.opened(partition)
        if tp in self._partitions.assigned and must_commit:
            # Who need not commit may be sooner.
            self._partitions.opens_no_more(partition)
            await self._commit_first(partition)
        if self._revoked(tp) or self._must_not():
            return False
        if self._held:
            self._put_by[tp] = bool(self._opening[tp])
            return False
        if self._topics.id_of(tp.topic) != info.topic_id:
            raise BrokerError(f"topic {tp.topic!r} was created again meanwhile")
        return True

    def _taken(self, partition: Partition, began_ms: int) -> None:
        """Grant from it and fetch it from now on."""
        tp = partition.tp
        # Settings, retry topic, key and grace may have changed since this take began.
        partition.go_by(self._policy(tp))
        partition.sign()
        partition.ledger.deadlines.keep_until(self._membership.grace_until_ms)
        self._partitions.add(partition)
        took_ms = self._context.clock.monotonic_ms() - began_ms
        for notify in self._parts.on_taken:
            notify(partition, took_ms)
        self._context.metrics.takeovers.at(self._state.name).inc()
        partition.start_fetching()
        self._state.signals.room()  # fetching may have to pause for lack of room
        self.settle_repairs()
        self._state.signals.beat()
        self._state.signals.timers()
        self._state.signals.deliver()

    def _revoked(self, tp: TopicPartition) -> bool:
        """Whether the group has taken a partition back that is being taken: it is another's."""
        return bool(self._opening[tp]) and tp not in self._partitions.assigned

    def live_changed(self, _before: Live, live: Live) -> None:
        """Apply what operators have changed; let go of everything while an operation works here."""
        self.policies_changed()
        self.hold(held=live.halt is not None)

    def policies_changed(self) -> None:
        """Give every owned partition the current policy."""
        for tp, partition in self._partitions.owned.items():
            partition.go_by(self._policy(tp))

    def _policy(self, tp: TopicPartition) -> Policy:
        retry, settings = self._retry_topic, self._state.settings
        retry_copies = tp.topic == retry.name
        most, message_ttl_ms = settings.attempts_max, settings.message_ttl_ms
        position = position_of(
            settings.ordering,
            self._state.name,
            retry_copies=retry_copies,
            signed=lambda body: self._signed(tp, body),
        )
        unordered = self._parts.unordered and not retry_copies
        return Policy(
            retry.rules(tp.topic), most, retry_copies, message_ttl_ms, position, unordered
        )

    def _signed(self, tp: TopicPartition, body: Record) -> bool:
        topic_id = self._topics.id_of(tp.topic) or b""
        proof = self._state.copy_keys.proof(body, CopyKind.RETRY, tp, topic_id)
        return proof is Proof.SIGNED

    def _wiring(self) -> Wiring:
        parts = self._parts
        return Wiring(
            observers=parts.observers,
            effects=parts.effects,
            performed=parts.performed,
            ready=parts.ready,
            reload=self._reload,
            lost=self._fenced,
            due=parts.due,
            blocked=parts.blocked,
            confirmed=self._membership.confirmed,
        )

    def _wish(self, tp: TopicPartition, start: int) -> Wish:
        return Wish(
            owner=self._partitions.me,
            start=start,
            assigned=tp in self._partitions.assigned,
            accept_external=self._state.settings.external_commit == "accept",
        )

    def _recovery(self, partition: Partition) -> Recovery:
        jump_ms = self._membership.jump_ms
        return Recovery(self._context, self._state.consumer, partition, jump_ms, self._resets)

    # --- letting go

    def drop(self, partition: Partition, *, over: bool = False) -> None:
        """Stop granting and fetching; the record stays as it is for the next owner.

        The replay log keeps what is known to be finished for a while, unless it is `over`: then it
        means nothing any more. What the record may lack is replayed at once.
        """
        if not (partition.closed or over):
            for notify in self._parts.on_left:
                notify(partition)
            replay_log, finished = self._context.replay_log, partition.ledger.finished
            left = partition.ledger.send_back.left_open()
            replay_log.released(partition.handle, partition.epoch, finished, left)
            if partition.needs_reread:
                again = replay_log.replay_released(self._state.name)
                self._tasks.start(again, f"replay.{partition.tp.topic}", ends=True)
        partition.close()
        for notify in self._parts.on_dropped:
            notify(partition)
        if self._partitions.remove(partition):
            self._state.consumer.stop_fetch(partition.tp)

    def drop_all(self) -> None:
        for partition in self._partitions.all():
            self.drop(partition)

    def replaced(self, topic: str, topic_id: bytes | None) -> None:
        """A topic was deleted and (if `topic_id`) made again: its partitions are others (R1)."""
        self._topics.forget(topic)
        for tp, partition in list(self._partitions.owned.items()):
            if tp.topic == topic and partition.key.topic_id != topic_id:
                self.drop(partition, over=True)
                self.take(tp)
            elif tp.topic == topic:
                partition.start_fetching()  # its sessions have ended with the old topic's

    async def truncated(self, partition: Partition, cut: int) -> None:
        """The log lost its messages from offset `cut` on (unclean election): what the record knows
        of these offsets is about other messages than those that have them now (R1).

        Raises StoreError, BrokerError.
        """
        await self._topics.read()
        info = self._topics.known.get(partition.tp.topic)
        if info is None or info.topic_id != partition.key.topic_id:
            self.replaced(partition.tp.topic, info.topic_id if info else None)
            return
        ledger = partition.ledger
        start = min(ledger.watermark, cut)
        kept = [(a, min(b, cut)) for a, b in ledger.finished.ranges(start) if a < cut]
        ops: list[Op] = [Truncate(cut, start), *(Gap(a, b) for a, b in kept)]
        LOG.error(
            "%s: the log was truncated at offset %d: the broker lost what came after",
            partition.tp,
            cut,
        )
        await self._context.flusher.submit(partition.handle, ops)
        self.drop(partition, over=True)
        self.take(partition.tp)

    def _fenced(self, partition: Partition) -> None:
        LOG.info("another sidecar owns %s now: this one stops granting its messages", partition.tp)
        self.drop(partition)
        self._nobodys(partition, None)  # the other one may die before it says that it has it
        if partition.tp in self._partitions.assigned:
            self.later(partition.tp)

    def _nobodys(self, partition: Partition, back_ms: int | None) -> None:
        """Name a partition in the note until somebody says that he owns it (R5)."""
        if self._topics.id_of(partition.tp.topic) == partition.key.topic_id:
            self._membership.handed_over([partition.key.text()], back_ms=back_ms)

    # --- reading again

    def _reload(self, partition: Partition) -> None:
        self._tasks.start(self._reread(partition), f"reread.{partition.tp.topic}", ends=True)

    async def _reread(self, partition: Partition) -> None:
        recovery = self._recovery(partition)
        while not partition.closed:
            try:
                await recovery.reread(self._wish(partition.tp, 0))
            except NotYetError:
                self._fenced(partition)
            except (StoreError, BrokerError) as error:
                self._state.health.fails(f"{partition.tp}: {error.type}: {error.detail}")
                partition.ledger.must_reread()
                await asyncio.sleep(AGAIN.base_ms / 1000)
            else:
                partition.perform()
                self._state.signals.timers()
                self.settle_repairs()
                self._state.signals.deliver()
                return

    def settle_repairs(self) -> None:
        """Resume granting once every living sidecar has replayed, or the wait for it is over
        (R10).
        """
        now_ms = self._context.clock.monotonic_ms()
        all_in = self._membership.all_replayed()
        for partition in self._partitions.owned.values():
            if partition.repairing and not partition.needs_reread:
                if all_in:
                    partition.tell(EndRepair())
                if all_in or now_ms >= partition.repair_until_ms:
                    partition.repaired()
                    self._parts.ready(partition)

    async def stop(self) -> None:
        """Cancel the takes and reads that are under way."""
        await self._tasks.stop()
