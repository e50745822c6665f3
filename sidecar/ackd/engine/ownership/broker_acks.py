"""Brokers with individual acks (`broker_side_acks`): what they deliver to us, and which acks they
get from us.

The store decides as it does for a log. A finished message that the broker delivers again is acked
silently; one under a live lease is kept and not granted; the record counts the attempts (R31, R32).
A message at an offset that the broker uses again gets a place in another partition, which this
sidecar then adds to those that it draws (R1).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from ackd.core.ids import TopicPartition
from ackd.core.ledger.unordered import UnorderedLedger
from ackd.core.log_generations import partition_of, split
from ackd.core.sources import COPIES
from ackd.engine.base.context import Context
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.cluster.even import even
from ackd.engine.cluster.membership import Membership
from ackd.engine.ownership.awaited_seeks import AwaitedSeeks
from ackd.engine.ownership.broker_resets import BrokerResets
from ackd.engine.ownership.gaps import Gaps
from ackd.engine.ownership.lost_messages import LostMessages
from ackd.engine.ownership.records import Records
from ackd.engine.partition.owned import OwnedPartitions, Topics
from ackd.engine.partition.partition import Partition
from ackd.errors import StoreError
from ackd.ports import (
    Arrival,
    Arrived,
    Assigned,
    AssignedPlace,
    BrokerSideAcks,
    Condition,
    Drew,
    LogCut,
    Placed,
    Record,
    Revoked,
    Source,
    StoredAt,
)

LOG = logging.getLogger("ackd.engine")

KEEP_MS: Final = 180_000
"""For how long the store remembers the place of a broker message id, and two holds more: counted
from its last delivery, or from when this sidecar last held it, while the broker delivers.
"""
REMIND_MS: Final = 60_000
"""Ids of what is held are told again so often, which leaves a hold and two minutes for a copy."""
LAPSE_MS: Final = 3_600_000
"""A gap counts as finished this long after messages beyond it came, if the broker was not away
meanwhile. The broker redelivers a message that was lost on its way to us far sooner, as a copy.
"""
REMIND_BATCH: Final = 1_000
LOOK_MS: Final = 5_000
SHARE_MS: Final = 500
WAIT_MS: Final = 10_000
"""Messages wait this long for a partition that is being taken; then the broker gets them back."""
CUT_SHOWN_MS: Final = 3_600_000
"""Readiness names a log that was cut for this long."""


@dataclass(slots=True)
class _AwaitedPartition:
    """Messages of a partition that this sidecar is about to own, with their ids."""

    until_ms: int
    messages: list[tuple[bytes, Record]] = field(default_factory=list)


# tidy: long-class lines=365 attributes=18 -- eleven collaborators, and what waits
class BrokerAckFlow:
    """Passes messages and acks between one subscription's partitions and such a broker."""

    def __init__(
        self,
        state: SubscriptionState,
        consumer: BrokerSideAcks,
        context: Context,
        partitions: OwnedPartitions,
        topics: Topics,
        membership: Membership,
        records: Records,
        assign: Callable[[TopicPartition], None],
        revoked: Callable[[Revoked], Awaitable[None]],
    ) -> None:
        self._state = state
        self._consumer = consumer
        self._partitions = partitions
        self._topics = topics
        self._membership = membership
        self._records = records
        self._assign = assign
        self._revoked = revoked
        self._context = context
        self._offered: dict[TopicPartition, None] = {}
        self._waiting: dict[TopicPartition, _AwaitedPartition] = {}
        self._cuts: dict[str, int] = {}
        self._shared: tuple[object, dict[str, str]] = (None, {})
        self._gaps = Gaps(context, partitions, consumer.hold_ms)
        self._doubt = False
        self._awaited = AwaitedSeeks(state, context)
        self._resets = BrokerResets(state, context, self._gaps, self._awaited)
        self._lost = LostMessages(
            state,
            context,
            partitions,
            topics,
            self._awaited.waits,
            self._recovered,
            self._clock_of,
            self._keep_ms,
            consumer.hold_ms,
        )

    async def on(self, event: Arrived | Assigned | Drew) -> None:
        """Take messages, or partitions that any sidecar may draw from."""
        match event:
            case Assigned(found):
                self._offered.update(dict.fromkeys(found))
                await self._lost.begins(found)
                self._state.health.group_assigned()
                await self._share()
            case Arrived():
                await self._arrived(event)
            case Drew():
                self._gaps.drew(event)

    async def _share(self) -> None:
        """Choose one living sidecar to draw from each topic on each broker; every sidecar computes
        the same choice (R5).

        The broker delivers to any client that asks, from all partitions that a topic has there.
        """
        if not self._membership.confirmed():
            return  # the next heartbeat tells which sidecars live
        me, gone = self._context.identity, []
        drawers = self._drawers()
        for tp in self._offered:
            mine = drawers[_name(self._consumer.source(tp))] == me
            assigned = tp in self._partitions.assigned
            if mine and not assigned:
                self._assign(tp)
            elif assigned and not mine:
                gone.append(tp)
        if gone:
            LOG.info(
                "%s: other sidecars consume %d partitions from now on",
                self._state.name,
                len(gone),
            )
            done = asyncio.Event()
            await self._revoked(Revoked(tuple(gone), done))

    def _drawers(self) -> dict[str, str]:
        """Who draws each source. Those that are gone are shared apart: they are no work."""
        sources = {self._consumer.source(tp)._replace(queue=0) for tp in self._offered}
        names = self._membership.staying()
        if self._shared[0] != (sources, names):
            shared: dict[str, str] = {}
            for gone in (False, True):
                shared |= even([_name(each) for each in sources if each.gone is gone], names)
            self._shared = (sources, names), shared
        return self._shared[1]

    async def _arrived(self, event: Arrived) -> None:
        """Give messages their offsets and pass them to their ledgers.

        Without the store nobody can tell which messages they are, so they wait for it here while
        the broker keeps holding them: it counts an attempt for each message that is given back.
        """
        known = self._topics.known.get(event.topic)
        if known is None:
            for arrival in event.arrivals:
                self._consumer.unwanted(event.topic, arrival.id)
            return
        event, found = await self._assign_places(self._drawn_here(event), known.topic_id)
        for cut in found.cuts:
            self._tell(event.topic, cut)
        self._context.metrics.fetched.at(self._state.name).inc(len(found.places))
        groups: dict[TopicPartition, list[Arrival]] = {}
        fresh: dict[TopicPartition, list[int]] = {}
        for arrival, place in zip(event.arrivals, found.places, strict=True):
            tp = TopicPartition(event.topic, place.partition)
            if tp not in self._offered:
                await self._add(tp)
            if tp not in self._partitions.owned and tp not in self._waiting:
                self._consumer.unwanted(event.topic, arrival.id)
                continue
            self._consumer.placed(event.topic, arrival.id, place)
            if arrival.place == (split(place.partition)[0], place.offset) and not _copied(arrival):
                fresh.setdefault(tp, []).append(place.offset)
            arrival.record.offset = place.offset
            groups.setdefault(tp, []).append(arrival)
        for tp, arrivals in groups.items():
            partition = self._partitions.owned.get(tp)
            if partition is not None:
                self._take(partition, [each.record for each in arrivals], fresh.get(tp, ()))
            elif tp in self._waiting:
                self._waiting[tp].messages += [(each.id, each.record) for each in arrivals]
            else:  # it went while another one was added
                for each in arrivals:
                    self._consumer.unwanted(tp.topic, each.id)
        self._state.signals.room()

    async def _add(self, tp: TopicPartition) -> None:
        """Draw a partition that the adapter knows nothing of: of a later generation of a log.

        Its messages wait here until this sidecar owns it. Given back, they would come again after a
        while only, and cost an attempt at the broker.
        """
        self._offered[tp] = None
        await self._share()
        if tp in self._partitions.assigned:
            self._waiting[tp] = _AwaitedPartition(self._context.clock.monotonic_ms() + WAIT_MS)

    def taken(self) -> None:
        """A partition may have been taken: pass its messages on. Give those back whose partition
        will not be this sidecar's.
        """
        if not self._waiting:
            return
        now_ms = self._context.clock.monotonic_ms()
        for tp, waiting in list(self._waiting.items()):
            partition = self._partitions.owned.get(tp)
            if partition is not None:
                del self._waiting[tp]
                self._take(partition, [record for _, record in waiting.messages])
            elif now_ms >= waiting.until_ms or tp not in self._partitions.assigned:
                del self._waiting[tp]
                for message, _ in waiting.messages:
                    self._consumer.unwanted(tp.topic, message)

    def _tell(self, topic: str, cut: LogCut) -> None:
        """Say that a log was cut: its owner should know, although no message is lost by it here."""
        tp = TopicPartition(topic, cut.partition)
        source = self._consumer.source(tp)
        detail = (
            f"topic {topic} queue {source.queue} of {source.broker}: the broker uses offsets "
            f"again, at latest from {cut.offset} on: "
            f"it lost what was there, or the topic was made again; messages from "
            f"there on are delivered as new ones, in partition "
            f"{partition_of(cut.partition, cut.generation)}"
        )
        LOG.warning("%s: %s", self._state.name, detail)
        self._context.metrics.log_cuts.at(self._state.name).inc()
        code = f"log-cut/{tp}"
        self._cuts[code] = self._context.clock.monotonic_ms() + CUT_SHOWN_MS
        self._state.report(Condition(code, detail, warning=True))

    @property
    def _keep_ms(self) -> int:
        return KEEP_MS + 2 * self._consumer.hold_ms

    def _end_tells(self, now_ms: int) -> None:
        for code, until_ms in list(self._cuts.items()):
            if now_ms >= until_ms:
                del self._cuts[code]
                self._state.clear(code)

    def _drawn_here(self, event: Arrived) -> Arrived:
        """Give back what came to a question of before this sidecar let go of the queue.

        Behind a filter it gets no place: its successor may pass over that offset (`Gaps`) before
        the message comes there, which then is a copy that nobody knows, with a place of its own
        (I1). Without a filter it has the hour of `LAPSE_MS` to come at its place.
        """
        if not self._state.configured.filter:
            return event
        owned = self._partitions.owned
        any_here = any(tp.topic == event.topic for tp in owned)
        here = {tp for tp in _own_places(event) if tp in owned}
        return self._kept(event, here, copies=any_here)

    def _kept(self, event: Arrived, here: set[TopicPartition], *, copies: bool) -> Arrived:
        """Give back what is not at its own place in one of these, and if not `copies`, all copies.

        A copy that nobody knows may get a place from anyone: nothing is ever passed over there.
        """
        kept = []
        for each in event.arrivals:
            tp = TopicPartition(event.topic, each.place.partition)
            if copies if _copied(each) else tp in here:
                kept.append(each)
            else:
                self._consumer.unwanted(event.topic, each.id)
        return Arrived(event.topic, kept)

    async def _assign_places(self, event: Arrived, topic_id: bytes) -> tuple[Arrived, Placed]:
        """Ask the store for places, once it is sure that no other sidecar draws these by now.
        Returns what is left, too.
        """
        name, places = self._state.name, self._context.store.places
        while True:
            try:
                if self._doubt or not self._membership.confirmed():
                    event = self._kept(event, await self._owned_still(event), copies=True)
                    self._doubt = False
                asked = [StoredAt(each.id, each.place, each.stored_ms) for each in event.arrivals]
                return event, await places.assign(name, topic_id, self._keep_ms, asked)
            except StoreError as error:
                self._doubt = True
                self._state.health.fails(f"{event.topic}: {error.detail}")
            await asyncio.sleep(SHARE_MS / 1000)

    async def _owned_still(self, event: Arrived) -> set[TopicPartition]:
        """The partitions of these messages that are this sidecar's by the record. Raises
        StoreError.
        """
        found = set()
        for tp in _own_places(event):
            partition = self._partitions.owned.get(tp)
            if partition is None:
                continue
            snapshot = await self._records.peek(partition.key)
            if snapshot is not None and snapshot.term == partition.handle.term:
                found.add(tp)
        return found

    def _take(self, partition: Partition, records: list[Record], fresh: Sequence[int] = ()) -> None:
        """`fresh`: offsets of those that are no copies."""
        ledger = partition.ledger
        if not isinstance(ledger, UnorderedLedger):
            return
        self._gaps.came(partition, fresh)
        self._awaited.came(partition, fresh)
        self._lost.came(partition, fresh)
        again, own = ledger.arrived(records), {*fresh}
        if again:
            self._resets.again(partition, [each for each in again if each in own])
            self._context.metrics.acked_again.at(self._state.name).inc(len(again))
            self._consumer.finished(partition.tp, again)
        partition.log_reaches(ledger.position)
        partition.perform()

    def _recovered(self, partition: Partition, records: list[Record]) -> None:
        """The broker lost these, and they were read from its log."""
        self._take(partition, records)
        self._state.signals.room()

    def _clock_of(self, tp: TopicPartition) -> int:
        """The first queue that is drawn with it, as copies come from the first ones."""
        source = self._consumer.source(tp)._replace(queue=0)
        first = (each for each in self._offered if self._consumer.source(each) == source)
        return next(first, tp).partition

    def over(self, partition: Partition) -> None:
        """Ack at the broker what was finished since the last call, whoever finished it."""
        ledger = partition.ledger
        if isinstance(ledger, UnorderedLedger) and (ended := ledger.take_ended()):
            self._consumer.finished(partition.tp, ended)

    async def run(self) -> None:
        """Until cancelled: keep the message-id aliases of messages held for long, and ack messages
        whose finish was missed while a record was re-read.
        """
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch())
            tasks.create_task(self._find_lost())
            await self._upkeep()

    async def _watch(self) -> None:
        """Ask the brokers what has to be asked, which may take long."""
        while True:
            await asyncio.sleep(SHARE_MS / 1000)
            partitions = list(self._partitions.owned.values())
            await self._awaited.look(partitions)
            await self._resets.look(partitions)

    async def _find_lost(self) -> None:
        while True:
            await asyncio.sleep(SHARE_MS / 1000)
            await self._lost.look(list(self._partitions.owned.values()))

    async def _upkeep(self) -> None:
        looked_ms = reminded_ms = self._context.clock.monotonic_ms()
        while True:
            await asyncio.sleep(SHARE_MS / 1000)
            await self._share()
            self.taken()
            if self._state.configured.filter:
                self._gaps.look(self._awaited.waits)
            now_ms = self._context.clock.monotonic_ms()
            if now_ms - looked_ms < LOOK_MS:
                continue
            looked_ms = now_ms
            self._end_tells(now_ms)
            self._lapse(now_ms)
            remind = now_ms - reminded_ms >= REMIND_MS
            if remind:
                reminded_ms = now_ms
            for topic, info in list(self._topics.known.items()):
                held = self._consumer.kept(topic)
                self._finish_missed(topic, held)
                if remind:
                    held = held + self._lost.kept(topic)
                    await self._remind(topic, info.topic_id, held)

    def _waits(self, partition: Partition) -> bool:
        """Whether what is missing may be yet to come."""
        return self._awaited.waits(partition) or self._lost.owes(partition)

    def _lapse(self, now_ms: int) -> None:
        conditions = self._state.conditions.values()
        steady = not any(each.away for each in conditions)
        for partition in list(self._partitions.owned.values()):
            ledger = partition.ledger
            still = steady and not self._waits(partition)
            if isinstance(ledger, UnorderedLedger) and ledger.lapse(now_ms, LAPSE_MS, steady=still):
                partition.perform()

    def _finish_missed(self, topic: str, held: list[tuple[bytes, AssignedPlace]]) -> None:
        for _, (number, offset) in held:
            partition = self._partitions.owned.get(TopicPartition(topic, number))
            if partition is not None and partition.ledger.over(offset):
                self._consumer.finished(partition.tp, (offset,))

    async def _remind(
        self, topic: str, topic_id: bytes, held: list[tuple[bytes, AssignedPlace]]
    ) -> None:
        for start in range(0, len(held), REMIND_BATCH):
            try:
                await self._context.store.places.remember(
                    self._state.name, topic_id, self._keep_ms, held[start : start + REMIND_BATCH]
                )
            except StoreError as error:
                LOG.info(
                    "the store did not remember message ids of topic %s, ackd tries again: %s",
                    topic,
                    error.detail,
                )


def _name(source: Source) -> str:
    return f"{source.topic} {source.broker}"


def _own_places(event: Arrived) -> set[TopicPartition]:
    """The partitions of the messages that are no copies."""
    partitions = {each.place.partition for each in event.arrivals if not _copied(each)}
    return {TopicPartition(event.topic, number) for number in partitions}


def _copied(arrival: Arrival) -> bool:
    """Whether it is the broker's own copy of a message."""
    return arrival.place.partition >= COPIES
