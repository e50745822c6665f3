"""One subscription on RocketMQ: it receives messages from all queues of a topic at once.

A partition is a queue of the topic. The broker stores its retry of a message in another topic; the
message id says which message it is. Only when the store no longer knows that id, the retry gets an
offset of its own, in a partition that stands for such retries.
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
    Assigned,
    AssignedPlace,
    Committed,
    Condition,
    ConsumerEvent,
    ConsumerSpec,
    TopicInfo,
)
from ackd_adapters.rocketmq import envelope
from ackd_adapters.rocketmq.client import GroupClient, code_of, expression
from ackd_adapters.rocketmq.config import RocketMQOptions
from ackd_adapters.rocketmq.holds import Holds, monotonic_ms
from ackd_adapters.rocketmq.making import make_group
from ackd_adapters.rocketmq.message import Taken
from ackd_adapters.rocketmq.protocol.definition_pb2 import MessageQueue, MessageType
from ackd_adapters.rocketmq.remoting_admin import RemotingAdmin
from ackd_adapters.rocketmq.rpc import BATCH_MAX, Rpc
from ackd_adapters.rocketmq.session import Session, consumer_settings

LOG = logging.getLogger("ackd.rocketmq")

COPIES: Final = 1 << 14
"""Partitions from this number on are for broker retries whose message is no longer known. Their
numbers stay below `GENERATION` of `ackd.core.log_generations`.
"""
DRAWS: Final = 4
"""Pending receives for a topic; each returns at most 32 messages. An ordered topic needs one."""
PAUSE_S: Final = 0.2
READY_S: Final = 10.0
FLUSH_S: Final = 1.0
RETRIES_LEAST: Final = 100
"""A group whose retryMaxTimes is below may lose messages to the broker's `%DLQ%` by mere crashes.

With ackd a retry is no new delivery of the broker; only a hold that was lost is one."""
_COPY_FIELD: Final = 4
_NO_GROUP: Final = "group not found"


# tidy: long-class attributes=18 -- implements a port of 17 methods
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
        self._topics: dict[str, list[MessageQueue]] = {}
        # `Holds.room` bounds it by the number of held messages.
        self._events: asyncio.Queue[ConsumerEvent] = asyncio.Queue()
        self._fetching: dict[TopicPartition, int] = {}
        self._paused: dict[TopicPartition, None] = {}
        self._assigned: dict[TopicPartition, None] = {}
        self._changed = asyncio.Event()
        self._sessions = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._condition = ""
        self._filter = expression(spec.filter)
        self._closed = False

    # --- life

    async def start(self) -> None:
        """Find the topics, tell the broker our settings, begin to receive. Raises BrokerError."""
        if self._session is not None:
            return
        await self._rpc.start()
        for topic in self._spec.topics:
            self._topics[topic] = await self._queues(topic)
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
        self._assign(
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
        for topic, queues in self._topics.items():
            if any(set(each.accept_message_types) != {MessageType.FIFO} for each in queues):
                raise BrokerError(
                    f"topic {topic!r} is no FIFO topic, so its messages have no order",
                    code="TOPIC_NOT_FIFO",
                )

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A task that ends by itself is a bug: the consumer has to be made again."""
        if not task.cancelled():
            error = task.exception()
            LOG.error(
                "a task of the consumer ended on a bug, please report it",
                exc_info=error,
            )
            self._events.put_nowait(Condition("rocketmq/crash", repr(error), fatal=True))

    async def _queues(self, topic: str) -> list[MessageQueue]:
        queues = await self._client.route(topic)
        if not queues:
            raise BrokerError(f"there is no topic {topic!r}", code="TOPIC_NOT_FOUND")
        if len({each.broker.name for each in queues}) > 1:
            raise BrokerError(f"topic {topic!r} lies on several brokers, which is not supported")
        return queues

    def _assign(self, partitions: Iterable[TopicPartition]) -> None:
        found = tuple(tp for tp in partitions if tp not in self._assigned)
        if found:
            self._assigned.update(dict.fromkeys(found))
            self._events.put_nowait(Assigned(found))

    async def close(self) -> None:
        """What is held comes again after `invisible_duration_ms`."""
        self._closed = True
        self._events.put_nowait(Condition("rocketmq/closed", ""))  # Wakes whoever waits for events.
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
        # After a lost answer the same id returns the same messages of an orderly group.
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
            Arrival(
                each.message_id.encode(),
                assigned_place(each),
                envelope.record(each),
                each.stored_ms if each.offset >= 0 else 0,
            )
            for each in found
        ]
        unknown = {each.place.partition for each in arrivals if each.place.partition >= COPIES}
        self._assign(TopicPartition(topic, number) for number in sorted(unknown))
        await self._events.put(Arrived(topic, arrivals))

    def _may_draw(self, topic: str) -> bool:
        """Whether every message that may come has an owner here, and there is room, also in
        partitions that the engine has added.
        """
        owned = all(tp in self._fetching for tp in self._assigned if tp.topic == topic)
        return owned and not any(tp in self._fetching for tp in self._paused if tp.topic == topic)

    async def _failed(self, error: BrokerError) -> None:
        if error.detail != self._condition:
            self._condition = error.detail
            away = Condition("rocketmq/receive", f"{code_of(error)}: {error.detail}", away=True)
            await self._events.put(away)
        await asyncio.sleep(PAUSE_S)

    async def _works(self) -> None:
        if self._condition:
            over = Condition("rocketmq/receive", self._condition, cleared=True)
            self._condition = ""
            await self._events.put(over)

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
        self._fetching[partition] = self._sessions
        self._paused.pop(partition, None)
        self._look_again()
        return self._sessions

    def stop_fetch(self, partition: TopicPartition) -> None:
        if self._fetching.pop(partition, None) is not None:
            self._holds.release(partition)

    def pause(self, partition: TopicPartition) -> None:
        """Pause the whole topic: the protocol knows no pause of a partition."""
        self._paused[partition] = None

    def resume(self, partition: TopicPartition) -> None:
        self._paused.pop(partition, None)
        self._look_again()

    def _look_again(self) -> None:
        self._changed.set()

    # --- positions, of which there are none

    async def topics(self) -> list[TopicInfo]:
        """RocketMQ gives a topic no identity but its name."""
        return [
            TopicInfo(topic, topic_id(self._options.namespace, topic), len(queues))
            for topic, queues in self._topics.items()
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
        return 0

    # --- broker-side acks

    def placed(self, topic: str, message: bytes, place: AssignedPlace) -> None:
        self._holds.placed(topic, message.decode(), place)

    def unwanted(self, topic: str, message: bytes) -> None:
        self._holds.unwanted(topic, message.decode())

    def finished(self, partition: TopicPartition, offsets: Sequence[int]) -> None:
        self._holds.finished(partition, offsets)

    def kept(self, topic: str) -> list[tuple[bytes, AssignedPlace]]:
        return self._holds.kept(topic)


def assigned_place(taken: Taken) -> AssignedPlace:
    """The message's position. The fifth word of a handle tells a broker retry from the message
    itself.
    """
    words = taken.handle.split(" ")
    copied = len(words) > _COPY_FIELD and words[_COPY_FIELD] not in ("", "0")
    return AssignedPlace(taken.queue + (COPIES if copied else 0), taken.offset)


def topic_id(namespace: str, topic: str) -> bytes:
    """An identity made of the name. That the topic was deleted and made again is told by the store
    times of its messages (`ackd.core.log_generations`).
    """
    return blake2b(f"{namespace}%{topic}".encode(), digest_size=TOPIC_ID_BYTES).digest()
