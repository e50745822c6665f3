"""One subscription on RocketMQ: messages are drawn from all queues of a topic at once.

A partition is a queue of the topic. A copy that the broker has made for a retry lies in a topic of
its own; its message id says which message it is. Only when nobody knows that any more it has a
place of its own, in a partition that stands for the copies.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Final

from ackd.core.ids import TOPIC_ID_BYTES, TopicPartition
from ackd.errors import BrokerError
from ackd.ports import (
    Arrival,
    Arrived,
    AssignedPlace,
    Committed,
    Condition,
    ConsumerEvent,
    ConsumerSpec,
    Nominated,
    TopicInfo,
)
from ackd_adapters.rocketmq import envelope
from ackd_adapters.rocketmq.client import Client, code_of, expression
from ackd_adapters.rocketmq.config import RocketMQOptions
from ackd_adapters.rocketmq.holds import Holds, monotonic_ms
from ackd_adapters.rocketmq.message import Taken
from ackd_adapters.rocketmq.protocol.definition_pb2 import MessageQueue, MessageType
from ackd_adapters.rocketmq.rpc import BATCH_MAX, Rpc
from ackd_adapters.rocketmq.session import Session, consumer_settings

LOG = logging.getLogger("ackd.rocketmq")

COPIES: Final = 1 << 14
"""Partitions from here on are for copies whose message is not known any more."""
DRAWS: Final = 4
"""Questions at a time for a topic; each is answered with 32 messages at most. Order wants one."""
PAUSE_S: Final = 0.2
READY_S: Final = 10.0
FLUSH_S: Final = 1.0
RETRIES_LEAST: Final = 100
"""A group whose retryMaxTimes is below may lose messages to the broker's `%DLQ%` by mere crashes.

With ackd a retry is no new delivery of the broker; only a hold that was lost is one."""
_COPY_FIELD: Final = 4


class RocketMQConsumer:
    """`ackd.ports.Consumer` and `ackd.ports.OwnAcks`."""

    def __init__(self, options: RocketMQOptions, spec: ConsumerSpec, rpc: Rpc) -> None:
        self._options = options
        self._spec = spec
        self._rpc = rpc
        self._client = Client(rpc, options, spec.group)
        self._holds = Holds(self._client, options.invisible_duration_ms)
        self._session: Session | None = None
        self._topics: dict[str, list[MessageQueue]] = {}
        # Bounded by what is held: `Holds.room`.
        self._events: asyncio.Queue[ConsumerEvent] = asyncio.Queue()
        self._fetching: dict[TopicPartition, int] = {}
        self._paused: dict[TopicPartition, None] = {}
        self._nominated: dict[TopicPartition, None] = {}
        self._changed = asyncio.Event()
        self._sessions = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._trouble = ""
        self._filter = expression(spec.filter)
        self._closed = False

    # --- life

    async def start(self) -> None:
        """Find the topics, tell the broker what we want, begin to draw. Raises BrokerError."""
        if self._session is not None:
            return
        await self._rpc.start()
        for topic in self._spec.topics:
            self._topics[topic] = await self._queues(topic)
        filters = dict.fromkeys(self._spec.topics, self._filter)
        settings = consumer_settings(self._client.group, filters, self._options.poll_ms)
        session = Session(self._rpc, settings, self._client.group)
        session.start()
        try:
            await session.ready(READY_S)
            self._check_order(session)
        except BrokerError:
            await session.close()
            raise
        self._session = session
        self._check_group(session)
        self._nominate(
            TopicPartition(topic, number)
            for topic, queues in self._topics.items()
            for number in range(len(queues))
        )
        loop = asyncio.get_running_loop()
        draws = 1 if self._spec.ordered else DRAWS
        work = [
            self._holds.run(),
            *(self._draw(topic) for topic in self._topics for _ in range(draws)),
        ]
        self._tasks = [loop.create_task(each, name="rocketmq.consumer") for each in work]
        for task in self._tasks:
            task.add_done_callback(self._ended)

    def _check_group(self, session: Session) -> None:
        """What the broker's own settings of the group would do to messages."""
        most = session.attempts_max
        if 0 < most <= RETRIES_LEAST:
            detail = (
                f"the broker gives a message of group {self._spec.group!r} up after {most} times, "
                "and counts each time that a hold ended, in a crash too, whatever attempts_max "
                f"says: set the group's retryMaxTimes to {RETRIES_LEAST} or more"
            )
            self._events.put_nowait(Condition("rocketmq/retry-max-times", detail, warning=True))

    def _check_order(self, session: Session) -> None:
        """Order is the broker's to give. Raises BrokerError when it does not."""
        if not self._spec.ordered:
            return
        if not session.orderly:
            raise BrokerError(
                f"group {self._spec.group!r} is not orderly, so messages come in any order: make "
                "it so (updateSubGroup -o true), or leave `ordering` out",
                code="GROUP_NOT_ORDERLY",
            )
        for topic, queues in self._topics.items():
            if any(set(each.accept_message_types) != {MessageType.FIFO} for each in queues):
                raise BrokerError(
                    f"topic {topic!r} is no FIFO topic, so its messages have no order",
                    code="TOPIC_NOT_FIFO",
                )

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Work that ends by itself is a bug: the consumer has to be made anew."""
        if not task.cancelled():
            error = task.exception()
            LOG.error("the consumer's work has ended", exc_info=error)
            self._events.put_nowait(Condition("rocketmq/crash", repr(error), fatal=True))

    async def _queues(self, topic: str) -> list[MessageQueue]:
        queues = await self._client.route(topic)
        if not queues:
            raise BrokerError(f"there is no topic {topic!r}", code="TOPIC_NOT_FOUND")
        if len({each.broker.name for each in queues}) > 1:
            raise BrokerError(f"topic {topic!r} lies on several brokers, which is not supported")
        return queues

    def _nominate(self, partitions: Iterable[TopicPartition]) -> None:
        found = tuple(tp for tp in partitions if tp not in self._nominated)
        if found:
            self._nominated.update(dict.fromkeys(found))
            self._events.put_nowait(Nominated(found))

    async def close(self) -> None:
        """See the port. What is held comes again after `invisible_duration_ms`."""
        self._closed = True
        self._events.put_nowait(Condition("rocketmq/closed", ""))  # for whoever waits for events
        if self._tasks:
            await self._holds.flush(FLUSH_S)
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()
        await self._rpc.close()

    # --- drawing

    async def _draw(self, topic: str) -> None:
        # After an answer that was lost the same id gets the same messages of an orderly group.
        attempt = ""
        while True:
            while not self._may_draw(topic):
                self._changed.clear()
                await self._changed.wait()
            asked_ms = monotonic_ms()
            attempt = attempt or uuid.uuid4().hex
            try:
                found = await self._client.receive(
                    self._topics[topic][0],
                    most=BATCH_MAX,
                    hold_ms=self._options.invisible_duration_ms,
                    poll_ms=self._options.poll_ms,
                    expression=self._filter,
                    attempt_id=attempt,
                )
            except BrokerError as error:
                await self._failed(error)
                continue
            attempt = ""
            await self._works()
            if found:
                self._holds.taken(
                    found, max(asked_ms, monotonic_ms() - self._options.invisible_duration_ms // 6)
                )
                await self._hand_over(topic, found)
            await self._holds.room()

    async def _hand_over(self, topic: str, found: list[Taken]) -> None:
        arrivals = [
            Arrival(each.message_id.encode(), place_of(each), envelope.record(each))
            for each in found
        ]
        unknown = {each.place.partition for each in arrivals if each.place.partition >= COPIES}
        self._nominate(TopicPartition(topic, number) for number in sorted(unknown))
        await self._events.put(Arrived(topic, arrivals))

    def _may_draw(self, topic: str) -> bool:
        """Everything that may come has an owner here, and there is room."""
        mine = [tp for tp in self._nominated if tp.topic == topic]
        return all(tp in self._fetching and tp not in self._paused for tp in mine)

    async def _failed(self, error: BrokerError) -> None:
        if error.detail != self._trouble:
            self._trouble = error.detail
            away = Condition("rocketmq/receive", f"{code_of(error)}: {error.detail}", away=True)
            await self._events.put(away)
        await asyncio.sleep(PAUSE_S)

    async def _works(self) -> None:
        if self._trouble:
            over = Condition("rocketmq/receive", self._trouble, cleared=True)
            self._trouble = ""
            await self._events.put(over)

    async def events(self) -> list[ConsumerEvent]:
        """See the port."""
        if self._closed:
            raise BrokerError("the consumer is closed")
        found = [await self._events.get()]
        if self._closed:
            raise BrokerError("the consumer is closed")
        while not self._events.empty():
            found.append(self._events.get_nowait())
        return found

    async def also(self, topic: str) -> None:
        """No further topics: nothing is sent back here."""
        raise BrokerError(f"{topic!r} can't be added")

    def fetch_from(self, partition: TopicPartition, offset: int) -> int:
        """Nothing can be asked for; from now on it may be drawn."""
        self._sessions += 1
        self._fetching[partition] = self._sessions
        self._paused.pop(partition, None)
        self._look_again()
        return self._sessions

    def stop_fetch(self, partition: TopicPartition) -> None:
        """See the port."""
        if self._fetching.pop(partition, None) is not None:
            self._holds.let_go(partition)

    def pause(self, partition: TopicPartition) -> None:
        """See the port; it holds up the whole topic."""
        self._paused[partition] = None

    def resume(self, partition: TopicPartition) -> None:
        """See the port."""
        self._paused.pop(partition, None)
        self._look_again()

    def _look_again(self) -> None:
        self._changed.set()

    # --- positions, of which there are none

    async def topics(self) -> list[TopicInfo]:
        """See the port. RocketMQ gives a topic no identity but its name."""
        return [
            TopicInfo(topic, topic_id(self._options.namespace, topic), len(queues))
            for topic, queues in self._topics.items()
        ]

    async def committed(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, Committed]:
        """The store alone knows."""
        return {each: Committed(-1, "") for each in partitions}

    async def commit(self, positions: Mapping[TopicPartition, Committed]) -> None:
        """The broker has an ack for each message instead."""

    async def log_range(self, partition: TopicPartition) -> tuple[int, int]:
        """Not known; what the group gets is the broker's business."""
        return 0, 0

    async def offset_at(self, partition: TopicPartition, timestamp_ms: int) -> int:
        """As `log_range`."""
        return 0

    # --- own acks

    def placed(self, topic: str, message: bytes, place: AssignedPlace) -> None:
        """See `ackd.ports.OwnAcks`."""
        self._holds.placed(topic, message.decode(), place)

    def unwanted(self, topic: str, message: bytes) -> None:
        """See `ackd.ports.OwnAcks`."""
        self._holds.unwanted(topic, message.decode())

    def finished(self, partition: TopicPartition, offsets: Sequence[int]) -> None:
        """See `ackd.ports.OwnAcks`."""
        self._holds.finished(partition, offsets)

    def kept(self, topic: str) -> list[tuple[bytes, AssignedPlace]]:
        """See `ackd.ports.OwnAcks`."""
        return self._holds.kept(topic)


def place_of(taken: Taken) -> AssignedPlace:
    """Where it lies. The fifth word of a handle tells a copy from the message itself."""
    words = taken.handle.split(" ")
    copied = len(words) > _COPY_FIELD and words[_COPY_FIELD] not in ("", "0")
    return AssignedPlace(taken.queue + (COPIES if copied else 0), taken.offset)


def topic_id(namespace: str, topic: str) -> bytes:
    """An identity made of the name: one that is deleted and made again can't be told apart."""
    return blake2b(f"{namespace}%{topic}".encode(), digest_size=TOPIC_ID_BYTES).digest()
