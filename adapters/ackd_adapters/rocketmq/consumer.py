"""One subscription on RocketMQ: it receives messages from all queues that a topic has on a broker
at once, and from several brokers side by side.

A partition is a queue of the topic on one of its brokers. The broker stores its retry of a message
in another topic; the message id says which message it is. Only when the store no longer knows that
id, the retry gets an offset of its own, in a partition that stands for such retries.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Final

from ackd.core.ids import TOPIC_ID_BYTES, TopicPartition
from ackd.core.log_generations import GENERATION
from ackd.core.sources import block_of
from ackd.errors import BrokerError, StoreError
from ackd.ports import (
    Arrival,
    Arrived,
    Assigned,
    AssignedPlace,
    Committed,
    Condition,
    ConsumerEvent,
    ConsumerSpec,
    Source,
    SourceRegistry,
    TopicInfo,
)
from ackd_adapters.rocketmq import envelope
from ackd_adapters.rocketmq.asking import PendingQuestions
from ackd_adapters.rocketmq.client import GroupClient, code_of, expression
from ackd_adapters.rocketmq.config import RocketMQOptions
from ackd_adapters.rocketmq.holds import Holds, monotonic_ms
from ackd_adapters.rocketmq.making import make_group
from ackd_adapters.rocketmq.message import Taken
from ackd_adapters.rocketmq.positions import QueueName, RocketMQPositions
from ackd_adapters.rocketmq.protocol.definition_pb2 import MessageQueue, MessageType
from ackd_adapters.rocketmq.remoting_admin import RemotingAdmin
from ackd_adapters.rocketmq.rpc import BATCH_MAX, Rpc
from ackd_adapters.rocketmq.session import Session, consumer_settings
from ackd_adapters.rocketmq.source import DrawnSource, OwnNumbers

LOG = logging.getLogger("ackd.rocketmq")

DRAWS: Final = 4
"""Pending receives for a topic on a broker; each returns at most 32 messages. An ordered topic
needs one.
"""
ROUTE_S: Final = 5.0
"""A broker or a queue that was added is drawn from after this."""
PAUSE_S: Final = 0.2
READY_S: Final = 10.0
FLUSH_S: Final = 1.0
LATE_MS: Final = 1_000
"""A poll that finds nothing is answered so long after its time at the latest."""
RETRIES_LEAST: Final = 100
"""A group whose retryMaxTimes is below may lose messages to the broker's `%DLQ%` by mere crashes.

With ackd a retry is no new delivery of the broker; only a hold that was lost is one."""
_NO_GROUP: Final = "group not found"


# tidy: long-class lines=375 attributes=19 -- implements a port of 17 methods
class RocketMQConsumer:
    """Implements `ackd.ports.Consumer` and `ackd.ports.BrokerSideAcks`: the broker keeps individual
    acks.
    """

    def __init__(
        self, options: RocketMQOptions, spec: ConsumerSpec, rpc: Rpc, admin: RemotingAdmin
    ) -> None:
        self._admin = admin
        self._options = options
        self._spec = spec
        self._rpc = rpc
        self._client = GroupClient(rpc, options, spec.group)
        self._holds = Holds(self._client, options.invisible_duration_ms)
        self._session: Session | None = None
        self._numbers: SourceRegistry = spec.sources or OwnNumbers(monotonic_ms)
        self._sources: dict[tuple[str, str], DrawnSource] = {}
        self._by_block: dict[tuple[str, int], DrawnSource] = {}
        self._kinds: dict[str, list[set[MessageType]]] = {}
        # `Holds.room` bounds it by the number of held messages.
        self._events: asyncio.Queue[ConsumerEvent] = asyncio.Queue()
        self._sessions = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._filter = expression(spec.filter)
        self._closed = False
        self._asking = PendingQuestions()
        self.broker_positions = RocketMQPositions(
            admin, spec.group, self._queue_of, self._queues, spec.filter
        )

    # --- life

    async def start(self) -> None:
        """Find the topics, tell the broker our settings, begin to receive. Raises BrokerError,
        StoreError.
        """
        if self._session is not None:
            return
        await self._rpc.start()
        for topic in self._spec.topics:
            await self._look(topic)
        advice = await make_group(self._admin, self._spec.group, orderly=self._spec.ordered)
        filters = dict.fromkeys(self._spec.topics, self._filter)
        settings = consumer_settings(self._client.group, filters, self._options.poll_ms)
        session = Session(self._rpc, settings, self._client.group)
        session.start(self._ended)
        try:
            await session.ready(READY_S)
            self._check_order(session)
        except BrokerError as error:
            await session.close()
            if advice and _NO_GROUP in error.detail:
                raise BrokerError(f"{error.detail}: {advice}", code=code_of(error)) from None
            raise
        self._session = session
        self._check_group(session)
        self._start_tasks([self._holds.run(), self._follow()])
        for source in self._sources.values():
            self._begin(source)

    def _check_group(self, session: Session) -> None:
        """Report settings of the broker's group that would lose or repeat messages."""
        most = session.attempts_max
        if 0 < most <= RETRIES_LEAST:
            detail = (
                f"the broker gives a message of group {self._spec.group!r} up after {most} times, "
                "and counts each time that a hold ended, in a crash too, whatever attempts_max "
                f"says: set the group's retryMaxTimes to {RETRIES_LEAST} or more"
            )
            self._events.put_nowait(Condition("rocketmq/retry-max-times", detail, warning=True))

    def _check_order(self, session: Session) -> None:
        """Only the broker can keep the order. Raises BrokerError when it does not."""
        if not self._spec.ordered:
            return
        if not session.orderly:
            raise BrokerError(
                f"group {self._spec.group!r} is not orderly, so messages come in any order: make "
                "it so (updateSubGroup -o true), or leave `ordering` out",
                code="GROUP_NOT_ORDERLY",
            )
        for topic, kinds in self._kinds.items():
            if any(each != {MessageType.FIFO} for each in kinds):
                raise BrokerError(
                    f"topic {topic!r} is no FIFO topic, so its messages have no order",
                    code="TOPIC_NOT_FIFO",
                )

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A task that ends by itself is a bug: the consumer has to be made again."""
        if not (task.cancelled() or self._closed):
            error = task.exception()
            LOG.error(
                "a task of the consumer ended on a bug, please report it",
                exc_info=error,
            )
            self._events.put_nowait(Condition("rocketmq/crash", repr(error), fatal=True))

    # --- brokers of a topic

    async def _look(self, topic: str) -> None:
        """Read a topic's route; draw from brokers and queues that are new, and from none that it
        does not name. Raises BrokerError, StoreError.
        """
        queues = await self._client.route(topic)
        if not queues:
            raise BrokerError(f"there is no topic {topic!r}", code="TOPIC_NOT_FOUND")
        self._kinds[topic] = [set(each.accept_message_types) for each in queues]
        by_broker: dict[str, list[MessageQueue]] = {}
        for each in queues:
            by_broker.setdefault(each.broker.name, []).append(each)
        await self._number(
            topic, [(name, 1 + max(q.id for q in found)) for name, found in by_broker.items()]
        )
        for source in self._of(topic):
            there = by_broker.get(source.broker)
            source.queue = None if there is None else there[0]
            source.changed.set()
            self._tell(source.routed())

    async def _number(self, topic: str, found: list[tuple[str, int]]) -> None:
        """Get the numbers of all known brokers, these too. Raises StoreError."""
        for known in await self._numbers(topic_id(self._options.namespace, topic), found):
            source = self._sources.get((topic, known.broker))
            if source is None:
                source = self._sources[topic, known.broker] = DrawnSource(topic, known.broker)
            before = source.queues
            source.numbered(known)
            for block in source.blocks:
                there = self._by_block.setdefault((topic, block), source)
                if there is not source:
                    source.adopt(there)
                    self._by_block[topic, block] = source
            self._assign(source, [source.partition(queue) for queue in range(known.queues)])
            if source.queues > before:
                LOG.info(
                    "topic %s on broker %s: queues 0 to %d are the partitions from %d on",
                    topic,
                    source.broker,
                    source.queues - 1,
                    source.partition(0).partition,
                )
            if not before and self._tasks:
                self._begin(source)

    async def _follow(self) -> None:
        """Look again and again which brokers the topics have."""
        while True:
            await asyncio.sleep(ROUTE_S)
            for topic in self._spec.topics:
                try:
                    await self._look(topic)
                except (BrokerError, StoreError) as error:
                    LOG.debug("the route of topic %s can't be read: %s", topic, error.detail)

    def _of(self, topic: str) -> list[DrawnSource]:
        return [source for (name, _), source in self._sources.items() if name == topic]

    def _at(self, tp: TopicPartition) -> DrawnSource:
        """The source of a partition. The engine may take one over from a dead sidecar before this
        one has heard of its broker.
        """
        block = block_of(tp.partition, GENERATION)
        found = self._by_block.get((tp.topic, block))
        if found is None:
            found = self._by_block[tp.topic, block] = DrawnSource(tp.topic, "")
            found.blocks = (block,)
        return found

    def _assign(self, source: DrawnSource, partitions: Sequence[TopicPartition]) -> None:
        if found := source.assign(partitions):
            self._events.put_nowait(Assigned(found))

    async def close(self) -> None:
        """Wait for the polls, and give back what is held: others get it soon."""
        self._closed = True
        self._events.put_nowait(Condition("rocketmq/closed", ""))  # Wakes whoever waits for events.
        if self._tasks:
            await self._asking.ended((self._options.poll_ms + LATE_MS) / 1000)
            self._holds.return_all()
            await self._holds.flush(FLUSH_S)
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()
        await self._rpc.close()

    # --- drawing

    def _begin(self, source: DrawnSource) -> None:
        draws = 1 if self._spec.ordered else DRAWS
        self._start_tasks(self._draw(source) for _ in range(draws))

    def _start_tasks(self, work: Iterable[Coroutine[None, None, None]]) -> None:
        loop = asyncio.get_running_loop()
        for each in work:
            task = loop.create_task(each, name="rocketmq.consumer")
            task.add_done_callback(self._ended)
            self._tasks.append(task)

    async def _draw(self, source: DrawnSource) -> None:
        # After a lost answer the same id returns the same messages of an orderly group.
        attempt = ""
        while True:
            await source.drawable()
            queue = source.queue
            if self._closed:
                return
            if queue is None:
                continue
            asked_ms = monotonic_ms()
            attempt = attempt or uuid.uuid4().hex
            question = self._asking.asks(source.topic)
            try:
                found = await self._client.receive(
                    queue,
                    most=BATCH_MAX,
                    hold_ms=self._options.invisible_duration_ms,
                    poll_ms=self._options.poll_ms,
                    expression=self._filter,
                    attempt_id=attempt,
                )
            except BrokerError as error:
                await self._events.put(self._asking.failed(source.topic, question))
                self._tell(source.failed(code_of(error), error.detail))
                await asyncio.sleep(PAUSE_S)
                continue
            attempt = ""
            self._tell(source.works())
            if found:
                self._holds.taken(
                    found, max(asked_ms, monotonic_ms() - self._options.invisible_duration_ms // 6)
                )
                await self._hand_over(source, found)
            await self._events.put(self._asking.answered(source.topic, question))
            await self._holds.room(source.broker)

    async def _hand_over(self, source: DrawnSource, found: list[Taken]) -> None:
        arrivals = []
        for each in found:
            drawn = await self._source_of(source, each)
            place = drawn.place(each)
            if each.copied:
                self._assign(drawn, [TopicPartition(drawn.topic, place.partition)])
            stored_ms = each.stored_ms if each.offset >= 0 else 0
            made = Arrival(each.message_id.encode(), place, envelope.record(each), stored_ms)
            arrivals.append(made)
        await self._events.put(Arrived(source.topic, arrivals))

    async def _source_of(self, asked: DrawnSource, taken: Taken) -> DrawnSource:
        """The source that a message came from. The proxy asks another broker than was wished when
        it does not know that one.
        """
        topic, broker = asked.topic, taken.broker or asked.broker
        while True:
            source = self._sources.get((topic, broker))
            if source is not None and source.knows(taken.queue):
                return source
            try:
                await self._number(topic, [(broker, taken.queue + 1)])
            except StoreError as error:
                LOG.debug("a queue of topic %s gets no number yet: %s", topic, error.detail)
                await asyncio.sleep(PAUSE_S)

    def _tell(self, conditions: Sequence[Condition]) -> None:
        for each in conditions:
            self._events.put_nowait(each)

    async def events(self) -> list[ConsumerEvent]:
        if self._closed:
            raise BrokerError("the consumer is closed")
        found = [await self._events.get()]
        if self._closed:
            raise BrokerError("the consumer is closed")
        while not self._events.empty():
            found.append(self._events.get_nowait())
        return found

    async def also(self, topic: str) -> None:
        """No further topics: nothing moves to a retry topic here."""
        raise BrokerError(f"{topic!r} can't be added")

    def fetch_from(self, partition: TopicPartition, offset: int) -> int:
        """RocketMQ can't read from an offset; from now on the partition's messages may be
        received.
        """
        self._sessions += 1
        self._at(partition).fetch(partition, self._sessions)
        return self._sessions

    def stop_fetch(self, partition: TopicPartition) -> None:
        if self._at(partition).stop(partition):
            self._holds.release(partition)

    def pause(self, partition: TopicPartition) -> None:
        """Pause all that is drawn with it: the protocol knows no pause of a partition."""
        self._at(partition).pause(partition)

    def resume(self, partition: TopicPartition) -> None:
        self._at(partition).resume(partition)

    # --- positions: see `RocketMQPositions`

    def _queue_of(self, partition: TopicPartition) -> QueueName:
        drawn = self._at(partition)
        return QueueName(drawn.broker, drawn.queue_of(partition))

    def _queues(self, topic: str) -> list[TopicPartition]:
        sources = [each for each in self._of(topic) if not each.gone]
        return [each.partition(queue) for each in sources for queue in range(each.queues)]

    async def topics(self) -> list[TopicInfo]:
        """RocketMQ gives a topic no identity but its name."""
        return [
            TopicInfo(
                topic,
                topic_id(self._options.namespace, topic),
                sum(each.queues for each in self._of(topic)),
            )
            for topic in self._kinds
        ]

    async def committed(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, Committed]:
        """No position: only the store knows it."""
        return {each: Committed(-1, "") for each in partitions}

    async def commit(self, positions: Mapping[TopicPartition, Committed]) -> None:
        """Does nothing: the broker has an ack for each message instead."""

    async def log_range(self, partition: TopicPartition) -> tuple[int, int]:
        """Unknown; the broker decides what the group gets."""
        return 0, 0

    async def offset_at(self, partition: TopicPartition, timestamp_ms: int) -> int:
        return await self.broker_positions.offset_at(partition, timestamp_ms)

    # --- broker-side acks

    @property
    def hold_ms(self) -> int:
        return self._options.invisible_duration_ms

    def placed(self, topic: str, message: bytes, place: AssignedPlace) -> None:
        self._holds.placed(topic, message.decode(), place)

    def unwanted(self, topic: str, message: bytes) -> None:
        self._holds.unwanted(topic, message.decode())

    def finished(self, partition: TopicPartition, offsets: Sequence[int]) -> None:
        self._holds.finished(partition, offsets)

    def kept(self, topic: str) -> list[tuple[bytes, AssignedPlace]]:
        return self._holds.kept(topic)

    def source(self, partition: TopicPartition) -> Source:
        drawn = self._at(partition)
        return Source(drawn.topic, drawn.broker, drawn.queue_of(partition), drawn.gone)


def topic_id(namespace: str, topic: str) -> bytes:
    """An identity made of the name. That the topic was deleted and made again is told by the store
    times of its messages (`ackd.core.log_generations`).
    """
    return blake2b(f"{namespace}%{topic}".encode(), digest_size=TOPIC_ID_BYTES).digest()
