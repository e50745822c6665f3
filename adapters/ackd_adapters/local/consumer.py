"""One subscription's side of the local queue: events in order, fetching, progress."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from ackd.core.ids import TopicPartition
from ackd.errors import BrokerError, BugError
from ackd.ports import (
    Committed,
    ConsumerEvent,
    ConsumerSpec,
    EndReached,
    Fetched,
    TopicInfo,
    TopicReplaced,
)
from ackd_adapters.local import questions
from ackd_adapters.local.config import LocalOptions
from ackd_adapters.local.group import Groups, Member
from ackd_adapters.local.log import Transaction
from ackd_adapters.local.reader import Delivery, Fetch, QueueReader
from ackd_adapters.local.topics import create, log_of, valid_name

LEAVE_S: Final = 2.0
METADATA_CHARS_MAX: Final = 32_768


@dataclass(slots=True)
class Session:
    """A partition that the engine fetches. `next`: where the engine goes on reading.

    `run` changes with every start of reading (a seek, a resume): what an earlier run still has
    pending is dropped when it arrives.
    """

    number: int
    run: int
    next: int
    paused: bool = False


T = TypeVar("T")


class Queue(Protocol):
    """What a consumer asks of the queue's two threads; `LocalBroker` runs them."""

    reader: QueueReader

    @property
    def options(self) -> LocalOptions: ...
    @property
    def groups(self) -> Groups: ...
    def forget(self, consumer: LocalConsumer) -> None: ...
    def call_loop(self, call: Callable[[], None]) -> None: ...
    async def call(self, work: Callable[[Transaction], None]) -> None: ...
    async def ask(self, question: questions.Question[T]) -> T: ...


class LocalConsumer:
    """A member of a group of the local queue: implements `ackd.ports.Consumer`."""

    def __init__(self, broker: Queue, spec: ConsumerSpec) -> None:
        self._broker = broker
        self._spec = spec
        self._loop = asyncio.get_running_loop()
        self._events: deque[ConsumerEvent | Delivery] = deque()
        self._ready = asyncio.Event()
        self._sessions: dict[TopicPartition, Session] = {}
        self._numbers = 0
        self._runs = 0
        self._member = Member(spec.group, spec.topics, spec.static_id, self._from_writer)
        self._member_id = ""
        self._topics = spec.topics
        self._closed = False

    async def start(self) -> None:
        """Join the group, and make the topics that are named in full, where publishing would make
        them too.

        So a subscription is ready, and has a start position, before anything was published to it.
        """
        self._check()
        if not self._spec.joins:
            return
        member = self._member
        options = self._broker.options
        wanted = [each for each in self._spec.topics if options.auto_create and valid_name(each)]

        def join(tx: Transaction) -> None:
            for topic in wanted:
                if tx.topic(topic) is None:
                    tx.cache[topic] = create(tx.db, topic, options.partitions)
            self._broker.groups.join(tx, member)

        await self._broker.call(join)
        self._member_id = self._member_id or member.id

    async def also(self, topic: str) -> None:
        """Read one more topic; a member that has joined reports it with its next transaction."""
        if topic in self._topics:
            return
        member, names = self._member, (*self._topics, topic)

        def add(tx: Transaction) -> None:
            self._broker.groups.read(tx, member, names)

        await self._broker.call(add)
        self._topics = names

    async def events(self) -> list[ConsumerEvent]:
        """The events in their order; records only as many as the buffer holds."""
        found: list[ConsumerEvent] = []
        while not found:
            await self._ready.wait()
            if self._closed:
                raise BrokerError("the consumer is closed")
            size = records = 0
            for event in self._events:
                if isinstance(event, Delivery):
                    size += event.size
                    records += event.records
                    self._pass_on(event, found)
                else:
                    found.append(event)
            self._events.clear()
            self._ready.clear()
            if records:
                self._broker.reader.credit(self, size, records)
        return found

    def fetch_from(self, partition: TopicPartition, offset: int) -> int:
        """Begin a new session; nothing of the previous one comes any more."""
        self._numbers += 1
        self._drop_buffered(partition)
        self._begin(partition, Session(self._numbers, 0, offset))
        return self._numbers

    def stop_fetch(self, partition: TopicPartition) -> None:
        if self._sessions.pop(partition, None) is not None:
            self._broker.reader.stop_fetch(self, partition)
            self._drop_buffered(partition)

    def pause(self, partition: TopicPartition) -> None:
        """Stop reading. Drops what is buffered and reads it again later: the disk is near."""
        session = self._sessions.get(partition)
        if session is None or session.paused:
            return
        session.paused = True
        session.run = 0
        self._broker.reader.stop_fetch(self, partition)
        self._drop_buffered(partition)

    def resume(self, partition: TopicPartition) -> None:
        """Go on where the engine stopped reading."""
        session = self._sessions.get(partition)
        if session is not None and session.paused:
            session.paused = False
            self._begin(partition, session)

    async def topics(self) -> list[TopicInfo]:
        """The topics that exist and match."""
        return await self._broker.ask(questions.Topics(self._topics))

    async def committed(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, Committed]:
        return await self._broker.ask(questions.Positions(self._spec.group, tuple(partitions)))

    async def commit(self, positions: Mapping[TopicPartition, Committed]) -> None:
        """Store positions, as a member of the group."""
        for position in positions.values():
            if len(position.metadata) > METADATA_CHARS_MAX:
                raise BrokerError(f"commit metadata has more than {METADATA_CHARS_MAX} characters")
        member, group, todo = self._member_id, self._spec.group, dict(positions)

        def write(tx: Transaction) -> None:
            here = tx.db.execute("SELECT 1 FROM members WHERE id = ?", (member,)).fetchone()
            if here is None:
                raise BrokerError(f"not a member of the group {group!r} (any more)")
            rows: list[tuple[str, int, int, str]] = []
            for partition, position in todo.items():
                log = log_of(tx.db, *partition)
                if log is None:
                    raise BrokerError(f"there is no partition {partition}")
                rows.append((group, log, position.offset, position.metadata))
            tx.db.executemany("INSERT OR REPLACE INTO positions VALUES(?, ?, ?, ?)", rows)

        await self._broker.call(write)

    async def log_range(self, partition: TopicPartition) -> tuple[int, int]:
        return await self._broker.ask(questions.Range(partition))

    async def offset_at(self, partition: TopicPartition, timestamp_ms: int) -> int:
        """By a binary search in the log."""
        return await self._broker.ask(questions.OffsetAt(partition, timestamp_ms))

    async def close(self) -> None:
        """Leave the group; pending `events` end with BrokerError."""
        if self._closed:
            return
        self._closed = True
        self._ready.set()
        self._events.clear()
        self._sessions.clear()
        self._broker.reader.drop(self)
        member = self._member
        if not self._spec.joins:
            self._broker.forget(self)
            return

        def leave(tx: Transaction) -> None:
            self._broker.groups.leave(tx, member)

        try:
            async with asyncio.timeout(LEAVE_S):
                await self._broker.call(leave)
        except (BrokerError, BugError, TimeoutError):
            # The other processes notice that this member is silent.
            pass
        self._broker.forget(self)

    def deliver(self, batch: list[Delivery]) -> None:
        """Take events from the reader's thread."""
        self._broker.call_loop(lambda: self._take(list(batch)))

    def _from_writer(self, events: list[ConsumerEvent], member_id: str) -> None:
        def take() -> None:
            self._member_id = member_id
            for event in events:
                if isinstance(event, TopicReplaced):
                    self._end_topic(event.topic)
            self._take(events)

        self._broker.call_loop(take)

    def _take(self, events: Sequence[ConsumerEvent | Delivery]) -> None:
        if self._closed:
            return
        for event in events:
            if isinstance(event, Delivery) and not self._is_current(event):
                self._broker.reader.credit(self, event.size, event.records)
            else:
                self._events.append(event)
        if self._events:
            self._ready.set()

    def _pass_on(self, delivery: Delivery, found: list[ConsumerEvent]) -> None:
        """The engine takes the event: from here on `next` is after it."""
        event = delivery.event
        session = self._sessions[event.partition]
        if isinstance(event, Fetched):
            session.next = event.records[-1].offset + 1
        elif isinstance(event, EndReached):
            session.next = event.offset
        else:
            del self._sessions[event.partition]
        found.append(event)

    def _is_current(self, delivery: Delivery) -> bool:
        session = self._sessions.get(delivery.event.partition)
        return session is not None and session.run == delivery.run

    def _begin(self, partition: TopicPartition, session: Session) -> None:
        self._runs += 1
        session.run = self._runs
        self._sessions[partition] = session
        fetch = Fetch(partition, session.number, session.run, session.next)
        self._broker.reader.fetch(self, fetch)

    def _drop_buffered(self, partition: TopicPartition) -> None:
        self._drop(lambda event: event.event.partition == partition)

    def _end_topic(self, topic: str) -> None:
        for partition in [each for each in self._sessions if each.topic == topic]:
            del self._sessions[partition]
            self._broker.reader.stop_fetch(self, partition)
        self._drop(lambda event: event.event.partition.topic == topic)

    def _drop(self, concerns: Callable[[Delivery], bool]) -> None:
        kept: deque[ConsumerEvent | Delivery] = deque()
        for event in self._events:
            if isinstance(event, Delivery) and concerns(event):
                self._broker.reader.credit(self, event.size, event.records)
            else:
                kept.append(event)
        self._events = kept
        if not kept:
            self._ready.clear()

    def _check(self) -> None:
        if self._spec.options:
            names = ", ".join(sorted(self._spec.options))
            raise BrokerError(f"the local queue knows no subscription options, but got: {names}")
        for topic in self._spec.topics:
            if not topic.startswith("^"):
                if not valid_name(topic):
                    raise BrokerError(f"{topic!r} is no name for a topic")
                continue
            try:
                re.compile(topic)
            except re.error as error:
                raise BrokerError(f"{topic!r} is no regular expression: {error}") from error
