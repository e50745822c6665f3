"""Reads topics by offset, without being in a group: dead letters, and what tests look at.

It asks the brokers themselves (`remoting_admin`), so it takes no message from anybody, hides
none, and notes nothing for the group.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

from ackd.core.ids import TopicPartition
from ackd.core.sources import number_of
from ackd.errors import BrokerError
from ackd.ports import (
    Committed,
    Condition,
    ConsumerEvent,
    ConsumerSpec,
    DeadOrigin,
    EndReached,
    Fetched,
    OutOfRange,
    Record,
    SourceRegistry,
    TopicInfo,
)
from ackd_adapters.rocketmq import envelope
from ackd_adapters.rocketmq.consumer import topic_id
from ackd_adapters.rocketmq.holds import monotonic_ms
from ackd_adapters.rocketmq.remoting_admin import LogQueue, Pulled, RemotingAdmin
from ackd_adapters.rocketmq.remoting_message import LogMessage
from ackd_adapters.rocketmq.rpc import UNREACHABLE
from ackd_adapters.rocketmq.source import GONE_MS, OwnNumbers

BATCHES_MAX: Final = 2
"""Pulled and not yet taken, of one partition; each has at most 32 messages (I8)."""
POLL_MS: Final = 5_000
AGAIN_S: Final = 0.3
UNKNOWN_PLACE: Final = (1 << 14) - 1
"""Stands for the queue of a message whose place the broker does not tell, if it lies in partition 0
of its dead letters; that of others is as far below. Queues get numbers from 0 on.
"""
ORIGIN: Final = "ackd-rocketmq-origin"
DEAD: Final = "%DLQ%"
RETRY: Final = "%RETRY%"
_RETRY_TOPIC, _GROUP = "RETRY_TOPIC", "ORIGIN_GROUP"
_CONDITION: Final = "rocketmq/read"


class RocketMQReader:
    """Implements `ackd.ports.Consumer` for who does not join. Partitions have the numbers that the
    store gives to the queues of a topic's brokers; some numbers between them are of no queue.
    """

    def __init__(self, admin: RemotingAdmin, spec: ConsumerSpec, namespace: str) -> None:
        self._admin = admin
        self._spec = spec
        self._namespace = namespace
        self._numbers: SourceRegistry = spec.sources or OwnNumbers(monotonic_ms)
        self._queues: dict[TopicPartition, LogQueue] = {}
        self._away: dict[TopicPartition, str] = {}
        self._readings: dict[TopicPartition, _Reading] = {}
        self._reported: deque[ConsumerEvent] = deque()
        self._ready = asyncio.Event()
        self._condition = ""
        self._sessions = 0
        self._closed = False

    async def start(self) -> None:
        """Find the topics; one that does not exist is left out. Raises BrokerError, StoreError."""
        for topic in self._spec.topics:
            by_broker: dict[str, dict[int, LogQueue]] = {}
            for each in await self._admin.queues(topic):
                by_broker.setdefault(each.broker, {})[each.number] = each
            found = [(name, 1 + max(queues)) for name, queues in by_broker.items()]
            for known in await self._numbers(topic_id(self._namespace, topic), found):
                there = by_broker.get(known.broker)
                for number in range(known.queues):
                    tp = TopicPartition(topic, number_of(known.blocks, number))
                    if there is None and known.silent_ms < GONE_MS:
                        self._away[tp] = known.broker
                    elif there is not None and number in there:
                        self._queues[tp] = there[number]

    async def also(self, topic: str) -> None:
        """Raises BrokerError: only a group has a retry topic."""
        raise BrokerError(f"{topic!r} can't be added")

    async def events(self) -> list[ConsumerEvent]:
        while True:
            if self._closed:
                raise BrokerError("the consumer is closed")
            self._ready.clear()
            found = list(self._reported)
            self._reported.clear()
            for reading in self._readings.values():
                found += reading.take()
            if found:
                return found
            await self._ready.wait()

    def fetch_from(self, partition: TopicPartition, offset: int) -> int:
        self.stop_fetch(partition)
        self._sessions += 1
        queue = self._queues.get(partition)
        if queue is not None:
            reading = _Reading(self, partition, self._sessions, queue)
            self._readings[partition] = reading
            reading.start(offset)
        return self._sessions

    def stop_fetch(self, partition: TopicPartition) -> None:
        reading = self._readings.pop(partition, None)
        if reading is not None:
            reading.stop()

    def pause(self, partition: TopicPartition) -> None:
        if partition in self._readings:
            self._readings[partition].paused = True

    def resume(self, partition: TopicPartition) -> None:
        if partition in self._readings:
            self._readings[partition].paused = False
            self._ready.set()

    async def topics(self) -> list[TopicInfo]:
        """As many partitions as the highest number needs."""
        found = []
        for topic in self._spec.topics:
            if known := self._numbers_of(topic):
                identity = topic_id(self._namespace, topic)
                found.append(TopicInfo(topic, identity, 1 + max(known)))
        return found

    def _numbers_of(self, topic: str) -> set[int]:
        """The numbers of its queues, also of those whose broker is away."""
        return {tp.partition for tp in (*self._queues, *self._away) if tp.topic == topic}

    async def committed(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, Committed]:
        """No position: only the store knows it."""
        return {each: Committed(-1, "") for each in partitions}

    async def commit(self, positions: Mapping[TopicPartition, Committed]) -> None:
        """Raises BrokerError: it is no member."""
        raise BrokerError("who only reads can't commit")

    async def log_range(self, partition: TopicPartition) -> tuple[int, int]:
        """Of a `%RETRY%` topic what the group's own consumers have confirmed counts as gone. A
        number of no queue, below that of another one, has nothing. Raises BrokerError.
        """
        known, number = self._numbers_of(partition.topic), partition.partition
        if known and number not in known and number < max(known):
            return 0, 0
        queue = self._queue(partition)
        first, end = await self._admin.range(queue)
        if partition.topic.startswith(RETRY):
            first = min(max(first, await self._admin.consumed(self._spec.group, queue)), end)
        return first, end

    async def offset_at(self, partition: TopicPartition, timestamp_ms: int) -> int:
        return await self._admin.offset_at(self._queue(partition), timestamp_ms)

    def _queue(self, partition: TopicPartition) -> LogQueue:
        if partition in self._away:
            raise BrokerError(
                f"the route of topic {partition.topic} does not name broker "
                f"{self._away[partition]}, which has a part of it: it is away, or was removed",
                code=UNREACHABLE,
            )
        if partition not in self._queues:
            raise BrokerError(f"there is no {partition.topic}/{partition.partition}")
        return self._queues[partition]

    async def close(self) -> None:
        self._closed = True
        self._ready.set()
        readings, self._readings = list(self._readings.values()), {}
        for each in readings:
            each.stop()
        await asyncio.gather(*(each.ended() for each in readings))

    # --- for a reading

    def woken(self) -> None:
        """There is something to take."""
        self._ready.set()

    async def pull(self, queue: LogQueue, offset: int) -> Pulled:
        """Ask until there is an answer."""
        while True:
            try:
                found = await self._admin.pull(self._spec.group, queue, offset, wait_ms=POLL_MS)
            except BrokerError as error:
                if error.detail != self._condition:
                    self._condition = error.detail
                    self._reported.append(Condition(_CONDITION, error.detail, away=True))
                    self._ready.set()
                await asyncio.sleep(AGAIN_S)
                continue
            if self._condition:
                self._reported.append(Condition(_CONDITION, self._condition, cleared=True))
                self._condition = ""
                self._ready.set()
            return found


class _Reading:
    """One session of one partition."""

    def __init__(
        self, of: RocketMQReader, partition: TopicPartition, session: int, queue: LogQueue
    ) -> None:
        self.paused = False
        self._of = of
        self._partition = partition
        self._session = session
        self._queue = queue
        self._events: deque[ConsumerEvent] = deque()
        self._room = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self, offset: int) -> None:
        """Read from there on."""
        self._task = asyncio.get_running_loop().create_task(
            self._run(offset), name="rocketmq.reading"
        )

    def stop(self) -> None:
        """Forget what was read."""
        self._events.clear()
        if self._task is not None:
            self._task.cancel()

    async def ended(self) -> None:
        """Wait until it has ended."""
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    def take(self) -> list[ConsumerEvent]:
        """What has come, unless it is paused."""
        if self.paused:
            return []
        found = list(self._events)
        self._events.clear()
        self._room.set()
        return found

    async def _run(self, offset: int) -> None:
        reported = -1
        while True:
            while len(self._events) >= BATCHES_MAX:
                self._room.clear()
                await self._room.wait()
            pulled = await self._of.pull(self._queue, offset)
            if not pulled.first <= offset <= pulled.end:
                self._tell(OutOfRange(self._partition, self._session, pulled.first, pulled.end))
                return
            place = self._partition.partition
            found = [each for each in pulled.messages if each.message.offset >= offset]
            records = [_record(each, place) for each in found]
            if records:
                self._tell(Fetched(self._partition, self._session, records))
                offset = records[-1].offset + 1
            else:
                offset = max(offset, min(pulled.next_offset, pulled.end))
            if offset >= pulled.end and reported != offset:
                reported = offset
                self._tell(EndReached(self._partition, self._session, offset))

    def _tell(self, event: ConsumerEvent) -> None:
        self._events.append(event)
        self._of.woken()


def _record(stored: LogMessage, partition: int) -> Record:
    """The message in this partition as the engine's record; one of a topic of the broker's own says
    where it came from.
    """
    made = envelope.record(stored.message)
    headers = tuple(each for each in made.headers if each[0] != ORIGIN)
    origin = origin_topic(stored)
    if origin:
        text = json.dumps({"topic": origin, "attempts": stored.attempts, "partition": partition})
        headers = (*headers, (ORIGIN, text.encode()))
    return Record(made.offset, made.key, made.value, headers, made.timestamp_ms)


def origin_topic(stored: LogMessage) -> str:
    """The topic that the broker took a message of its `%DLQ%` or `%RETRY%` from; empty for any
    other message.
    """
    if not stored.message.topic.startswith((DEAD, RETRY)):
        return ""
    found = stored.system.get(_RETRY_TOPIC, "")
    # What a lost hold has moved once before lies in a topic of the group's, named after the origin.
    before = f"{RETRY}{stored.system.get(_GROUP, '')}"
    for sign in ("+", "_"):
        if found.startswith(before + sign):
            return found.removeprefix(before + sign)
    return found


def dead_origin(record: Record, namespace: str) -> DeadOrigin | None:
    """Where a dead letter of the broker came from; None for any other record. The broker keeps
    the topic, and not the place there.
    """
    text = dict(record.headers).get(ORIGIN)
    if text is None:
        return None
    found = json.loads(text)
    topic = str(found["topic"]).removeprefix(f"{namespace}%" if namespace else "")
    place = UNKNOWN_PLACE - found["partition"]
    return DeadOrigin(topic, topic_id(namespace, topic), place, record.offset, found["attempts"])
