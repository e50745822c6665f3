"""Reads a group's dead-letter topic without joining a group, so reading consumes nothing."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

from ackd.api.dead_letters import DeadFilter, DeadLetter, DeadView
from ackd.core.dead_letter_key import dead_key
from ackd.core.ids import LedgerKey, TopicPartition
from ackd.core.origin import Origin
from ackd.engine.base.context import Context
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.partition.copy_headers import RetryCopy, not_by_ackd, own_headers, retry_copy_of
from ackd.engine.partition.histories import read_history
from ackd.engine.retry.external_dead_letters import ExternalDeadLetters
from ackd.engine.retry.own_topic import dead_name
from ackd.errors import BadParameterError, BrokerError
from ackd.ports import (
    Consumer,
    ConsumerSpec,
    DeadLetterOrigins,
    EndReached,
    Fetched,
    OutOfRange,
    Record,
    TopicInfo,
)

READ_S = 10.0
BYTES_MAX = 8 * 1024 * 1024
NEAR = 500
"""To an offset at most this far ahead the reader reads on instead of seeking: a seek costs a round
trip.
"""
DIGITS_MAX = 18


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter of this subscription as read from the topic."""

    partition: int
    record: Record
    retry_copy: RetryCopy

    @property
    def id(self) -> str:
        """`0-17`: its partition and offset in the dead-letter topic."""
        return f"{self.partition}-{self.record.offset}"

    def view(self, state: str) -> DeadView:
        """The values that a listing shows."""
        retry_copy = self.retry_copy
        return DeadView(
            id=self.id,
            message=retry_copy.origin.id,
            state=state,
            attempts=retry_copy.attempt,
            reason=retry_copy.reason,
            first_error=retry_copy.first_error,
            last_error=retry_copy.last_error,
            first_seen_ms=retry_copy.first_ms,
            published_ms=retry_copy.published_ms,
            dead_ms=self.record.timestamp_ms,
            redriven_from=None if retry_copy.redriven is None else retry_copy.redriven.id,
        )

    def whole(self, state: str) -> DeadLetter:
        """The values of the listing, and the content."""
        history = read_history(self.retry_copy.history)
        return DeadLetter(self.view(state), self.record, own_headers(self.record.headers), history)

    def fits(self, wanted: DeadFilter) -> bool:
        """Whether it matches the filter."""
        retry_copy, record = self.retry_copy, self.record
        key = None if wanted.key is None else wanted.key.encode()
        return (
            (wanted.topic is None or wanted.topic == retry_copy.origin.topic)
            and (key is None or key == record.key)
            and (wanted.reason is None or wanted.reason in retry_copy.reason)
            and (wanted.error is None or wanted.error in retry_copy.last_error)
            and (wanted.after_ms is None or wanted.after_ms <= record.timestamp_ms)
            and (wanted.before_ms is None or record.timestamp_ms < wanted.before_ms)
        )


def read_id(text: str) -> tuple[int, int]:
    """(partition, offset) of an id or a cursor. Raises BadParameterError."""
    partition, dash, offset = text.partition("-")
    numbers = (partition, offset)
    if not dash or not all(
        each.isascii() and each.isdigit() and len(each) <= DIGITS_MAX for each in numbers
    ):
        raise BadParameterError(f"{text[:100]!r} is not of the form 0-17")
    return int(partition), int(offset)


class DeadLetterLog:
    """The dead-letter topic, open for reading. `info` None: the topic does not exist yet.
    `unreadable`: offsets of the last read at which there is no dead letter, of no subscription.
    """

    def __init__(
        self, consumer: Consumer, subscription: str, cluster: str, info: TopicInfo | None
    ) -> None:
        self.info = info
        self._consumer = consumer
        self._subscription = subscription
        self._cluster = cluster
        self._buffer: deque[Record] = deque()
        self._at: tuple[int, int] | None = None
        self._session = 0
        self._ended = -1
        self.foreign: ExternalDeadLetters | None = None
        self.unreadable: list[int] = []

    @property
    def partitions(self) -> range:
        return range(0 if self.info is None else self.info.partitions)

    @property
    def topic_id(self) -> bytes:
        """The topic's identity. Raises BrokerError when the topic does not exist."""
        if self.info is None:
            raise BrokerError("there is no dead-letter topic")
        return self.info.topic_id

    def key(self, partition: int) -> LedgerKey:
        """Key of the record that keeps which dead letters of a partition were removed."""
        return dead_key(self._cluster, self._subscription, self.topic_id, partition)

    def origin_record(self, letter: Letter) -> Origin:
        """The coordinate of the dead letter itself, not of its message."""
        topic = "" if self.info is None else self.info.topic
        offset = letter.record.offset
        return Origin(self._cluster, self.topic_id, topic, letter.partition, offset)

    async def range(self, partition: int) -> tuple[int, int]:
        """(first, end) offset. Raises BrokerError."""
        return await self._consumer.log_range(self._tp(partition))

    async def read(
        self, partition: int, offset: int, end: int, most: int
    ) -> tuple[list[Letter], int]:
        """Read letters of this subscription in [`offset`, `end`), from at most `most` records. Also
        returns the first offset that is unread. `end` <= the log's end. Raises BrokerError.
        """
        try:
            async with asyncio.timeout(READ_S):
                records, unread = await self._read(partition, offset, end, most)
        except TimeoutError:
            self._at = None
            raise BrokerError("the dead-letter topic could not be read in time") from None
        retry_copies = [retry_copy_of(record, self._subscription) for record in records]
        if self.foreign is not None:
            retry_copies = await self.foreign.retry_copies(records, retry_copies)
        self.unreadable = [
            record.offset
            for record, retry_copy in zip(records, retry_copies, strict=True)
            if retry_copy is None and not_by_ackd(record)
        ]
        letters = [
            Letter(partition, record, retry_copy)
            for record, retry_copy in zip(records, retry_copies, strict=True)
            if retry_copy is not None
        ]
        return letters, unread

    async def one(self, partition: int, offset: int) -> Letter | None:
        """The letter at an offset; None if there is none. Raises BrokerError."""
        if partition not in self.partitions:
            return None
        first, end = await self.range(partition)
        if not first <= offset < end:
            return None
        letters, _ = await self.read(partition, offset, offset + 1, 1)
        return letters[0] if letters else None

    def _tp(self, partition: int) -> TopicPartition:
        return TopicPartition("" if self.info is None else self.info.topic, partition)

    def _seek(self, partition: int, offset: int) -> None:
        if self._at is not None:
            there, unread = self._at
            if there == partition and 0 <= offset - unread <= NEAR:
                return
            if there != partition:
                self._consumer.stop_fetch(self._tp(there))
        self._buffer.clear()
        self._ended = -1
        self._session = self._consumer.fetch_from(self._tp(partition), offset)

    async def _read(
        self, partition: int, offset: int, end: int, most: int
    ) -> tuple[list[Record], int]:
        self._seek(partition, offset)
        self._at = None  # unknown until this read succeeds
        found: list[Record] = []
        size = 0
        while offset < end and len(found) < most and size < BYTES_MAX:
            if self._buffer:
                record = self._buffer[0]
                if record.offset >= end:
                    offset = end
                    break
                self._buffer.popleft()
                if record.offset >= offset:
                    found.append(record)
                    size += record.size()
                    offset = record.offset + 1
            elif self._ended >= end:
                offset = end
            else:
                offset = max(offset, await self._more())
        self._at = (partition, offset)
        return found, offset

    async def _more(self) -> int:
        """Wait for events; returns an offset below which no more records will come."""
        floor = 0
        for event in await self._consumer.events():
            match event:
                case Fetched(tp, session, records) if session == self._session:
                    self._buffer.extend(records)
                case EndReached(tp, session, offset) if session == self._session:
                    self._ended = offset
                case OutOfRange(tp, session, log_start) if session == self._session:
                    # Retention deleted the records before they were read.
                    floor = log_start
                    self._session = self._consumer.fetch_from(tp, log_start)
        return floor


@asynccontextmanager
async def open_dead_log(state: SubscriptionState, context: Context) -> AsyncIterator[DeadLetterLog]:
    """Open the dead-letter topic of a subscription's group. Raises BrokerError, StoreError."""
    topic = dead_name(state.broker, state.name, state.settings)
    async with open_log(state, context, topic, "dead") as log:
        if state.settings.dead_letter_topic and isinstance(state.broker, DeadLetterOrigins):
            log.foreign = ExternalDeadLetters(state.broker, state.cluster, state.name)
        yield log


@asynccontextmanager
async def open_log(
    state: SubscriptionState, context: Context, topic: str, what: str
) -> AsyncIterator[DeadLetterLog]:
    """Open one of ackd's own topics: dead letters, or retry copies, which have the same form.
    `what` becomes part of the client's name. Raises BrokerError, StoreError.
    """
    if not state.cluster:
        raise BrokerError("the broker is not connected yet")
    client_id = f"{context.identity}-{what}"
    group = state.settings.group or state.name
    numbers = partial(context.store.places.sources, state.name)
    consumer = state.broker.consumer(
        ConsumerSpec(group, (topic,), client_id=client_id, joins=False, sources=numbers)
    )
    try:
        await consumer.start()
        found = await consumer.topics()
        info = found[0] if found else None
        yield DeadLetterLog(consumer, state.name, state.cluster, info)
    finally:
        await consumer.close()
