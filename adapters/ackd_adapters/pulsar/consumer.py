"""One subscription's side of Pulsar: sessions, the group, progress."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Mapping, Sequence
from typing import Final

import pulsar

from ackd.core.ids import TopicPartition, topic_id_of
from ackd.errors import BrokerError
from ackd.ports import (
    Committed,
    ConsumerEvent,
    ConsumerSpec,
    EndReached,
    Fetched,
    OutOfRange,
    TopicInfo,
    TopicReplaced,
)
from ackd_adapters.pulsar.box import Box
from ackd_adapters.pulsar.connection import Connection
from ackd_adapters.pulsar.delays import Delays
from ackd_adapters.pulsar.entries import EntryFollower
from ackd_adapters.pulsar.letters import topics_of
from ackd_adapters.pulsar.logs import Logs
from ackd_adapters.pulsar.member import Member
from ackd_adapters.pulsar.names import SCHEME, is_pattern, whole
from ackd_adapters.pulsar.numbering import Numbering, Position
from ackd_adapters.pulsar.positions import Positions
from ackd_adapters.pulsar.reading import Reading
from ackd_adapters.pulsar.rest import number
from ackd_adapters.pulsar.tables import GroupProperties, Tables

LEAVE_S: Final = 5.0


# tidy: long-class attributes=14 -- implements a port of 13 methods
class PulsarConsumer:
    """A member of a Pulsar subscription: implements `ackd.ports.Consumer`."""

    def __init__(self, connection: Connection, logs: Logs, spec: ConsumerSpec) -> None:
        self._connection = connection
        self._logs = logs
        self._spec = spec
        self._topics = spec.topics
        options = connection.options
        self._box = Box(
            asyncio.get_running_loop(), options.fetch_records_max, options.fetch_bytes_max
        )
        properties = GroupProperties(connection, logs, spec.group)
        self._tables = Tables(connection, logs, properties, joins=spec.joins)
        self._positions = Positions(connection, logs, self._tables, properties)
        self._sessions: dict[TopicPartition, Reading] = {}
        self._paused: set[TopicPartition] = set()
        self._kept: list[ConsumerEvent] = []
        self._found: tuple[str, ...] = ()
        self._numbers = 0
        name = spec.static_id or f"{spec.client_id}-{uuid.uuid4().hex[:8]}"
        self._member = Member(connection, logs, self._positions, self._box, name, self._find)
        self._joined = False

    async def start(self) -> None:
        self._check()
        if self._spec.joins and not self._joined:
            self._joined = True
            self._member.start()

    async def also(self, topic: str) -> None:
        if topic not in self._topics:
            self._topics = (*self._topics, topic)
            self._member.look()

    async def events(self) -> list[ConsumerEvent]:
        while True:
            found = self._fresh(self._kept)
            self._kept = [each for each in self._kept if self._waits(each)]
            if found:
                return found
            if not await self._box.wait():
                raise BrokerError("the consumer is closed")
            self._kept += self._box.take()

    def fetch_from(self, partition: TopicPartition, offset: int) -> int:
        self.stop_fetch(partition)
        self._numbers += 1
        delays = Delays(
            self._connection.options,
            partition.topic,
            lambda: EntryFollower(
                self._connection.access, SCHEME + self._logs.full_name(partition)
            ),
        )
        reading = Reading(
            self._connection,
            self._logs,
            self._tables,
            self._box,
            self._numbers,
            partition,
            offset,
            delays,
        )
        self._sessions[partition] = reading
        reading.start()
        return reading.session

    def stop_fetch(self, partition: TopicPartition) -> None:
        self._paused.discard(partition)
        reading = self._sessions.pop(partition, None)
        if reading is not None:
            reading.stop()

    def pause(self, partition: TopicPartition) -> None:
        """Keeps what was read already until `resume`."""
        if partition in self._sessions:
            self._paused.add(partition)
            self._sessions[partition].hold()

    def resume(self, partition: TopicPartition) -> None:
        self._paused.discard(partition)
        if partition in self._sessions:
            self._sessions[partition].go()
            self._box.nudge()

    async def topics(self) -> list[TopicInfo]:
        self._check()
        return await asyncio.to_thread(self._find)

    def topics_of(self, group: str) -> list[str]:
        """The topics that it found when it looked last, if it is of this group."""
        return list(self._found) if group == self._spec.group else []

    async def committed(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, Committed]:
        self._check()
        return await asyncio.to_thread(
            lambda: {each: self._positions.committed(each) for each in partitions}
        )

    async def commit(self, positions: Mapping[TopicPartition, Committed]) -> None:
        self._check()
        if not self._joined:
            raise BrokerError("no member of the group")
        await asyncio.to_thread(self._commit, dict(positions))

    async def log_range(self, partition: TopicPartition) -> tuple[int, int]:
        self._check()
        return await asyncio.to_thread(self._tables.range, partition)

    async def offset_at(self, partition: TopicPartition, timestamp_ms: int) -> int:
        """Searches by the time that the producer gave the message."""
        self._check()
        return await asyncio.to_thread(self._offset_at, partition, timestamp_ms)

    async def close(self) -> None:
        if self._box.closed:
            return
        for partition in list(self._sessions):
            self.stop_fetch(partition)
        self._box.close()
        self._kept = []
        if self._joined:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LEAVE_S + 1):
                    await asyncio.to_thread(self._member.leave, LEAVE_S)

    def _check(self) -> None:
        if self._box.closed:
            raise BrokerError("the consumer is closed")

    def _waits(self, event: ConsumerEvent) -> bool:
        """Whether an event's session is paused and not over."""
        return (
            isinstance(event, Fetched | EndReached | OutOfRange)
            and self._lives(event)
            and event.partition in self._paused
        )

    def _lives(self, event: Fetched | EndReached | OutOfRange) -> bool:
        reading = self._sessions.get(event.partition)
        return reading is not None and reading.session == event.session

    def _fresh(self, events: list[ConsumerEvent]) -> list[ConsumerEvent]:
        found: list[ConsumerEvent] = []
        for event in events:
            if isinstance(event, Fetched | EndReached | OutOfRange) and (
                not self._lives(event) or event.partition in self._paused
            ):
                continue
            if isinstance(event, TopicReplaced):
                self._tables.forget(event.topic)
                for partition in [each for each in self._sessions if each.topic == event.topic]:
                    self.stop_fetch(partition)
            found.append(event)
        return found

    def _find(self) -> list[TopicInfo]:
        names = self._connection.names
        existing: list[str] = []
        if any(is_pattern(each) for each in self._topics):
            listed = self._connection.rest.ask("GET", f"persistent/{names.namespace}")
            if isinstance(listed, list):
                existing = sorted({names.short(whole(str(each))) for each in listed})
        found = []
        wanted = names.matching(self._topics, existing)
        if self._connection.options.read_retry_topic:
            wanted += topics_of(wanted, self._spec.group)
        for topic in wanted:
            count = self._logs.partitions(topic)
            if count is not None:
                found.append(TopicInfo(topic, self._identity(topic), max(count, 1)))
        self._found = tuple(each.topic for each in found)
        return found

    def _identity(self, topic: str) -> bytes:
        """The identity in the first partition's table: it is deleted with the topic."""
        table: Numbering = self._tables.read(TopicPartition(topic, 0))[0]
        return topic_id_of(f"{self._connection.names.path(topic)} {table.anchor}")

    def _commit(self, positions: dict[TopicPartition, Committed]) -> None:
        for partition, position in positions.items():
            self._positions.commit(partition, position)
            consumer = self._member.holding(partition)
            at = self._positions.ackable(partition, position.offset)
            if consumer is None or at is None:
                continue
            with contextlib.suppress(pulsar.PulsarException, RuntimeError):
                consumer.acknowledge_cumulative(pulsar.MessageId(-1, at.ledger, at.entry, -1))

    def _offset_at(self, partition: TopicPartition, timestamp_ms: int) -> int:
        path = self._logs.rest_path(partition)
        found, log = self._tables.read(partition)
        first, end = found.range(log)
        answer = self._connection.rest.table(f"{path}/messageid/{max(timestamp_ms, 0)}")
        ledger, entry = number(answer.get("ledgerId")), number(answer.get("entryId"))
        if ledger < 0 or not found.knows(ledger):
            return first
        place = found.offset(Position(ledger, max(entry, 0), 0))
        return min(max(place, first), end)
