"""Which partitions this sidecar may grant from: taking them, reading them again, letting them
go.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from ackd.core.ids import LedgerKey, SidecarId, TopicPartition
from ackd.core.ledger.effects import (
    Claim,
    CloseHome,
    Effect,
    PutOff,
    Restore,
    SendBack,
    SendDead,
    Unpark,
)
from ackd.core.record.operations import EndRepair, Gap, Op, Truncate
from ackd.engine.base.context import Context
from ackd.engine.base.tasks import Tasks
from ackd.engine.ownership.foreign_reset import ForeignResets
from ackd.engine.ownership.leader_epochs import LeaderEpochs
from ackd.engine.ownership.partition_increase import Growth
from ackd.engine.ownership.recover import NotYetError, Recovery, Wish
from ackd.engine.ownership.start_positions import StartPositions
from ackd.engine.partition import foreign_delays
from ackd.engine.partition.hooks import Hooks, Policy
from ackd.engine.partition.ordering import HomeRef, place_of
from ackd.engine.partition.partition import Partition
from ackd.errors import BrokerError, StoreError
from ackd.ports import TopicInfo

if TYPE_CHECKING:
    from ackd.engine.subscription import Subscription

LOG = logging.getLogger("ackd.engine")

RETRY_MS = 250
RETAKE_MS = 2_500


class Ownership:
    """The owned partitions of one subscription. The store's term is the right, this is its
    cache.
    """

    def __init__(self, subscription: Subscription, context: Context) -> None:
        self._subscription = subscription
        self._consumer = subscription.consumer
        self._context = context
        self.me = SidecarId(context.identity, 0)
        self.owned: dict[TopicPartition, Partition] = {}
        self.by_ledger: dict[tuple[bytes, int], Partition] = {}
        self.topics: dict[str, TopicInfo] = {}
        self.nominated: dict[TopicPartition, None] = {}
        self._tasks = Tasks(f"ownership.{subscription.name}", context.vitals)
        self._opening: dict[TopicPartition, None] = {}
        self._retake: dict[TopicPartition, int] = {}
        self._held = False
        self._put_by: dict[TopicPartition, None] = {}
        self.set_aside: tuple[str, ...] = ()
        self._start = StartPositions(
            subscription.scope,
            subscription.settings,
            self._consumer,
            context.store,
            own=subscription.retry_topic.topic.name,
        )
        self.leader_epochs = LeaderEpochs(self._consumer, context.store)
        self.growth = Growth(
            subscription.scope,
            subscription.settings,
            self._consumer,
            context.store,
            subscription.retry_topic.topic.name,
        )
        self._resets = ForeignResets(subscription, context)
        self._hooks = Hooks(
            ready=subscription.hand_out.ready,
            reload=self._reload,
            lost=self._fenced,
            effect=self._effect,
            behind=subscription.lines.behind,
            journal=subscription.claims.heard,
            due=subscription.sweeper.due,
            confirmed=subscription.presence.confirmed,
            landed=None if subscription.dedup is None else subscription.dedup.landed,
            over=None if subscription.own_acks is None else subscription.own_acks.over,
        )

    # --- taking

    def nominate(self, tp: TopicPartition) -> None:
        """The group assigned it to this sidecar."""
        self.nominated[tp] = None
        self._retake.pop(tp, None)
        self.take(tp)

    def take(self, tp: TopicPartition) -> None:
        """Start taking a partition, unless that is so or under way."""
        if tp in self.owned or tp in self._opening or self._subscription.health.superseded:
            return
        if self._held:
            self._put_by[tp] = None
            return
        self._opening[tp] = None
        self._tasks.start(self._open(tp), f"open.{tp.topic}.{tp.partition}")

    def later(self, tp: TopicPartition) -> None:
        """Try to take a partition (again) after a pause, if it is still ours to take."""
        self._retake[tp] = self._context.clock.monotonic_ms() + RETAKE_MS

    def hold(self, *, held: bool) -> None:
        """Let go of everything while an operation works on the records, then take it again.

        To the others it is owned meanwhile (`set_aside`), so that it has a heir if this one dies.
        """
        if held and not self._held:
            self._held = True
            self._put_by.update(dict.fromkeys(self.owned))
            self.set_aside = tuple(each.key.text() for each in self.owned.values())
            self.drop_all()
        elif self._held and not held:
            self._held = False
            again, self._put_by = {**self.nominated, **self._put_by}, {}
            self._subscription.presence.inherit(self.set_aside)
            self.set_aside = ()
            for tp in again:
                self.take(tp)

    def retry_takes(self) -> None:
        """Take what `later` has put off, now that its time has come."""
        now_ms = self._context.clock.monotonic_ms()
        for tp, at_ms in list(self._retake.items()):
            if at_ms <= now_ms:
                del self._retake[tp]
                if tp in self.nominated:
                    self.take(tp)

    async def take_orphans(self, orphans: list[str]) -> None:
        """Take ledgers (as texts) whose owner is dead. Raises BrokerError."""
        if not self.topics:
            await self._read_topics()
        by_id = {info.topic_id.hex(): info.topic for info in self.topics.values()}
        for text in orphans:
            _, topic_hex, number = text.rsplit(":", 2)
            topic = by_id.get(topic_hex)
            if topic is not None:
                self.take(TopicPartition(topic, int(number)))

    async def _open(self, tp: TopicPartition) -> None:
        """Take one partition, as often as it needs, unless the wish is over."""
        try:
            while not self._held:
                try:
                    if await self._must_wait(tp):
                        self.later(tp)
                        return
                    await self._open_once(tp)
                except NotYetError as error:
                    LOG.info("%s: %s", tp, error.detail)
                    if tp not in self.nominated:
                        return  # else it was nominated meanwhile: try again as that
                except (StoreError, BrokerError) as error:
                    self._subscription.health.detail = f"opening {tp}: {error.detail}"
                    if tp not in self.nominated:
                        return
                    await asyncio.sleep(RETRY_MS / 1000)
                else:
                    self._subscription.health.detail = ""
                    return
            self._put_by[tp] = None
        finally:
            self._opening.pop(tp, None)

    def _key(self, tp: TopicPartition, info: TopicInfo) -> LedgerKey:
        name, cluster = self._subscription.name, self._subscription.cluster
        return LedgerKey(cluster, name, info.topic_id, tp.partition)

    async def _must_wait(self, tp: TopicPartition) -> bool:
        info = await self._topic(tp.topic)
        return await self.growth.holds(tp, info, self._key(tp, info))

    async def _open_once(self, tp: TopicPartition) -> None:
        began_ms = self._context.clock.monotonic_ms()
        info = await self._topic(tp.topic)
        key = self._key(tp, info)
        partition = Partition(tp, key, self._context, self._consumer, self._hooks, self._policy(tp))
        partition.copies.topic_ids = self._topic_id
        wish = self._wish(tp, await self._start.of(tp, info))
        must_commit = await self._recovery(partition).take(wish, tp)
        await self.leader_epochs.opened(partition)
        if tp in self.nominated and must_commit:
            await self._subscription.committer.commit([partition], always=True)
        if (wish.nominated and tp not in self.nominated) or self._subscription.health.superseded:
            return
        if self._held:
            self._put_by[tp] = None
            return
        current = self.topics.get(tp.topic)
        if current is None or current.topic_id != info.topic_id:
            raise BrokerError(f"topic {tp.topic!r} was made again meanwhile")
        # Settings, the retry topic, the key and the grace may be others than when this began.
        partition.go_by(self._policy(tp))
        partition.sign()
        partition.ledger.deadlines.keep_until(self._subscription.presence.grace_until_ms)
        self.owned[tp] = partition
        self.by_ledger[key.topic_id, key.partition] = partition
        if self._subscription.tracing is not None:
            partition.tracing = self._subscription.tracing.of(partition)
            now_ms = self._context.clock.monotonic_ms()
            self._subscription.tracing.taken(partition, now_ms - began_ms)
        self._context.metrics.takeovers.at(self._subscription.name).inc()
        partition.start_fetching()
        self._subscription.hand_out.throttle()  # there may be no room for more
        self._subscription.lengthening.opened(partition)
        self.settle_repairs()
        self._subscription.presence.beat_soon()
        self._subscription.sweeper.wake()
        self._subscription.hand_out.serve()

    def policies_changed(self) -> None:
        """Have what is owned go by the policy of now."""
        for tp, partition in self.owned.items():
            partition.go_by(self._policy(tp))

    def _policy(self, tp: TopicPartition) -> Policy:
        retry = self._subscription.retry_topic
        settings, carriers = self._subscription.settings, tp.topic == retry.topic.name
        most, give_up_ms = settings.attempts_max + 1, settings.give_up_after_ms
        placed = place_of(settings.ordering, self._subscription.name, carriers=carriers)
        scattered = self._subscription.own_acks is not None and not carriers
        return Policy(retry.rules(tp.topic), most, carriers, give_up_ms, placed, scattered)

    def _wish(self, tp: TopicPartition, start: int) -> Wish:
        return Wish(
            owner=self.me,
            start=start,
            nominated=tp in self.nominated,
            accept_foreign=self._subscription.settings.foreign_commit == "accept",
        )

    def _recovery(self, partition: Partition) -> Recovery:
        jump_ms = self._subscription.presence.jump_ms
        return Recovery(self._context, self._consumer, partition, jump_ms, self._resets)

    async def _topic(self, topic: str) -> TopicInfo:
        if topic not in self.topics:
            await self._read_topics()
        info = self.topics.get(topic)
        if info is None:
            raise BrokerError(f"the broker does not tell about topic {topic!r}")
        return info

    async def topic_is_gone(self, topic_id: bytes) -> bool:
        """The broker has no topic of this identity any more: nobody will open its ledgers again."""
        try:
            await self._read_topics()
        except BrokerError:
            return False
        return bool(self.topics) and all(i.topic_id != topic_id for i in self.topics.values())

    def _topic_id(self, topic: str) -> bytes | None:
        info = self.topics.get(topic)
        return None if info is None else info.topic_id

    async def _read_topics(self) -> None:
        self.topics = {each.topic: each for each in await self._consumer.topics()}

    # --- letting go

    def drop(self, partition: Partition, *, over: bool = False) -> None:
        """Stop granting and fetching; the record stays as it is for whoever comes next.

        What is known to be finished is remembered for a while, unless that is `over`: it means
        nothing any more. What the record may lack is repeated at once.
        """
        if not (partition.closed or over):
            self._context.behind.note(partition)
            memory, finished = self._context.memory, partition.ledger.finished
            left = partition.ledger.send_back.left_open()
            memory.let_go(partition.handle, partition.epoch, finished, left)
            if partition.behind:
                again = memory.replay_let_go(self._subscription.name)
                self._tasks.start(again, f"replay.{partition.tp.topic}")
        partition.closed = True
        if partition.ledger.holds_copies:
            self._subscription.claims.forget(partition)
        if self.owned.get(partition.tp) is partition:
            del self.owned[partition.tp]
            self.by_ledger.pop((partition.key.topic_id, partition.key.partition), None)
            self._consumer.stop_fetch(partition.tp)

    def drop_all(self) -> None:
        """Let go of everything."""
        for partition in list(self.owned.values()):
            self.drop(partition)

    def replaced(self, topic: str, topic_id: bytes | None) -> None:
        """A topic was deleted and (if `topic_id`) made again: others (R1)."""
        self.topics.pop(topic, None)
        for tp, partition in list(self.owned.items()):
            if tp.topic == topic and partition.key.topic_id != topic_id:
                self.drop(partition, over=True)
                self.take(tp)
            elif tp.topic == topic:
                partition.start_fetching()  # its sessions have ended with the old topic's

    async def truncated(self, partition: Partition, cut: int) -> None:
        """The log lost its messages from an offset on (unclean election): what is known of these
        offsets is about other messages than those that have them now (R1).

        Raises StoreError, BrokerError.
        """
        await self._read_topics()
        info = self.topics.get(partition.tp.topic)
        if info is None or info.topic_id != partition.key.topic_id:
            self.replaced(partition.tp.topic, info.topic_id if info else None)
            return
        ledger = partition.ledger
        start = min(ledger.watermark, cut)
        kept = [(a, min(b, cut)) for a, b in ledger.finished.ranges(start) if a < cut]
        ops: list[Op] = [Truncate(cut, start), *(Gap(a, b) for a, b in kept)]
        LOG.error("%s: the log was truncated at %d", partition.tp, cut)
        await self._context.flusher.submit(partition.handle, ops)
        self.drop(partition, over=True)
        self.take(partition.tp)

    def _fenced(self, partition: Partition) -> None:
        LOG.info("another sidecar owns %s now", partition.tp)
        self.drop(partition)
        if partition.tp in self.nominated:
            self.later(partition.tp)

    # --- reading again

    def _reload(self, partition: Partition) -> None:
        self._tasks.start(self._reread(partition), f"reread.{partition.tp.topic}")

    async def _reread(self, partition: Partition) -> None:
        recovery = self._recovery(partition)
        while not partition.closed:
            try:
                await recovery.reread(self._wish(partition.tp, 0))
            except NotYetError:
                self._fenced(partition)
            except StoreError as error:
                self._subscription.health.detail = f"{partition.tp}: {error.detail}"
                partition.ledger.must_reread()
                await asyncio.sleep(RETRY_MS / 1000)
            else:
                partition.perform()
                self._subscription.sweeper.stir()
                self.settle_repairs()
                self._subscription.hand_out.serve()
                return

    def settle_repairs(self) -> None:
        """Granting goes on once every living sidecar has replayed, or the wait for it is over
        (R10).
        """
        now_ms = self._context.clock.monotonic_ms()
        all_in = self._subscription.presence.all_replayed()
        for partition in self.owned.values():
            if partition.repairing and not partition.behind:
                if all_in:
                    partition.tell(EndRepair())
                if all_in or now_ms >= partition.repair_until_ms:
                    partition.repairing = False
                    self._subscription.hand_out.ready(partition)

    def _effect(self, partition: Partition, effect: Effect) -> None:
        """What others do for a partition."""
        subscription = self._subscription
        match effect:
            case SendBack():
                subscription.send_back.send(partition, effect)
            case SendDead():
                subscription.dead_letters.send(partition, effect)
            case Claim(offset):
                subscription.claims.claim(partition, offset)
            case CloseHome(offset):
                subscription.claims.close(partition, offset)
            case Unpark(offset, home):
                if isinstance(home, HomeRef):
                    subscription.lines.over(partition, offset, home)
            case PutOff():
                foreign_delays.write(partition, effect)
            case Restore(offset):
                subscription.parking.restore(partition, offset)
            case _:
                pass  # the partition has done it

    async def stop(self) -> None:
        """End what is under way."""
        await self._tasks.stop()
