"""Brokers that keep an ack for each message: what they hand over, and what they are told.

The store decides as for a log. What comes again although it is finished is settled silently; what
comes again under a live lease is kept and not granted; the attempts are the record's (R31, R32).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from ackd.core.ids import TopicPartition
from ackd.core.ledger.unordered import UnorderedLedger
from ackd.engine.base.context import Context
from ackd.engine.base.state import SubscriptionState
from ackd.engine.cluster.membership import Membership
from ackd.engine.partition.owned import OwnedPartitions, Topics
from ackd.engine.partition.partition import Partition
from ackd.errors import StoreError
from ackd.ports import Arrived, AssignedPlace, Nominated, OwnAcks, Record, Revoked

LOG = logging.getLogger("ackd.engine")

KEEP_MS: Final = 600_000
"""A message is known by its place for at least so long after it came, or was last held here."""
LAPSE_MS: Final = 3_600_000
"""A gap counts as finished when so much time has passed since messages beyond it came, during which
the broker was not away. What was lost on its way to us comes as a copy far sooner.
"""
REMIND_BATCH: Final = 1_000
LOOK_MS: Final = 5_000
SHARE_MS: Final = 500


class BrokerAckFlow:
    """Between one subscription's partitions and such a broker."""

    def __init__(
        self,
        state: SubscriptionState,
        consumer: OwnAcks,
        context: Context,
        partitions: OwnedPartitions,
        topics: Topics,
        membership: Membership,
        nominate: Callable[[TopicPartition], None],
        revoked: Callable[[Revoked], Awaitable[None]],
    ) -> None:
        self._state = state
        self._consumer = consumer
        self._partitions = partitions
        self._topics = topics
        self._membership = membership
        self._nominate = nominate
        self._revoked = revoked
        self._context = context
        self._offered: dict[TopicPartition, None] = {}

    async def on(self, event: Arrived | Nominated) -> None:
        """Messages, or what may be drawn by whoever likes to."""
        if isinstance(event, Nominated):
            self._offered.update(dict.fromkeys(event.partitions))
            self._state.health.nominated_once = True
            await self._share()
        else:
            await self._arrived(event)

    async def _share(self) -> None:
        """The broker gives to whoever asks, of all partitions of a topic at once. So of the
        sidecars that live one draws a topic, and all of them find out which (R5).
        """
        if not self._membership.confirmed():
            return  # who else there is will be known after a heartbeat
        me, gone = self._context.identity, []
        for tp in self._offered:
            mine, nominated = (
                self._membership.view.winner(tp.topic) == me,
                tp in self._partitions.nominated,
            )
            if mine and not nominated:
                self._nominate(tp)
            elif nominated and not mine:
                gone.append(tp)
        if gone:
            LOG.info("%s: others draw %d partitions from now on", self._state.name, len(gone))
            done = asyncio.Event()
            await self._revoked(Revoked(tuple(gone), done))

    async def _arrived(self, event: Arrived) -> None:
        """Messages were handed over. Without the store nobody can tell what they are, so they wait
        for it, and the broker goes on holding them: it counts those that are given back.
        """
        known = self._topics.known.get(event.topic)
        places = [] if known is None else await self._intern(event, known.topic_id)
        if not places:
            for arrival in event.arrivals:
                self._consumer.unwanted(event.topic, arrival.id)
            return
        self._context.metrics.fetched.at(self._state.name).inc(len(places))
        groups: dict[int, list[Record]] = {}
        for arrival, place in zip(event.arrivals, places, strict=True):
            partition = self._partitions.owned.get(TopicPartition(event.topic, place.partition))
            if partition is None:
                self._consumer.unwanted(event.topic, arrival.id)
                continue
            self._consumer.placed(event.topic, arrival.id, place)
            arrival.record.offset = place.offset
            groups.setdefault(place.partition, []).append(arrival.record)
        for number, records in groups.items():
            partition = self._partitions.owned.get(TopicPartition(event.topic, number))
            if partition is not None:
                self._take(partition, records)
        self._state.signals.room()

    async def _intern(self, event: Arrived, topic_id: bytes) -> list[AssignedPlace]:
        asked = [(each.id, each.place) for each in event.arrivals]
        name, places = self._state.name, self._context.store.places
        while True:
            try:
                return await places.intern(name, topic_id, KEEP_MS, asked)
            except StoreError as error:
                self._state.health.detail = f"{event.topic}: {error.detail}"
            await asyncio.sleep(SHARE_MS / 1000)

    def _take(self, partition: Partition, records: list[Record]) -> None:
        ledger = partition.ledger
        if not isinstance(ledger, UnorderedLedger):
            return
        again = ledger.arrived(records)
        if again:
            self._context.metrics.acked_again.at(self._state.name).inc(len(again))
            self._consumer.finished(partition.tp, again)
        partition.end = max(partition.end, ledger.position)
        partition.perform()

    def over(self, partition: Partition) -> None:
        """Tell the broker what was finished meanwhile, by whomever."""
        ledger = partition.ledger
        if isinstance(ledger, UnorderedLedger) and (ended := ledger.take_ended()):
            self._consumer.finished(partition.tp, ended)

    async def run(self) -> None:
        """Keep the places of what is held for longer, and look whether a finish was missed while a
        record was read again; until cancelled.
        """
        looked_ms = reminded_ms = self._context.clock.monotonic_ms()
        while True:
            await asyncio.sleep(SHARE_MS / 1000)
            await self._share()
            now_ms = self._context.clock.monotonic_ms()
            if now_ms - looked_ms < LOOK_MS:
                continue
            looked_ms = now_ms
            self._lapse(now_ms)
            remind = now_ms - reminded_ms >= KEEP_MS // 2
            if remind:
                reminded_ms = now_ms
            for topic, info in list(self._topics.known.items()):
                held = self._consumer.kept(topic)
                self._finish_missed(topic, held)
                await self._remind(topic, info.topic_id, held if remind else [])

    def _lapse(self, now_ms: int) -> None:
        troubles = self._state.troubles.values()
        steady = not any(each.away for each in troubles)
        for partition in list(self._partitions.owned.values()):
            ledger = partition.ledger
            if isinstance(ledger, UnorderedLedger) and ledger.lapse(
                now_ms, LAPSE_MS, steady=steady
            ):
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
                await self._context.store.places.intern(
                    self._state.name, topic_id, KEEP_MS, held[start : start + REMIND_BATCH]
                )
            except StoreError as error:
                LOG.info("message ids of %s: %s", topic, error.detail)
