"""One connection: publishing, topics, consumers (`ackd.ports.Broker`)."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import uuid
import zlib
from collections.abc import Mapping, Sequence
from typing import Final

from redis.exceptions import RedisError

from ackd.errors import BrokerError
from ackd.ports import (
    Capabilities,
    Condition,
    ConsumerSpec,
    Failure,
    NotStored,
    Outgoing,
    PublishResult,
    StartPolicy,
    Stored,
    own_topics,
)
from ackd_redis_stream import layout
from ackd_redis_stream.config import RedisStreamOptions
from ackd_redis_stream.consumer import METADATA_CHARS_MAX, RedisStreamConsumer
from ackd_redis_stream.layout import Topic
from ackd_redis_stream.server import Server, explained

CLOSE_S: Final = 5.0

CAPABILITIES: Final = Capabilities(
    name="redis-stream",
    order_within_partition=True,
    explicit_partition=True,
    delayed_publish=False,
    delay_max_ms=0,
    start_policies=frozenset(StartPolicy),
    seek_by_time=True,
    commit_metadata_chars=METADATA_CHARS_MAX,
    value_bytes_max=1024 * 1024,
)


class RedisStreamBroker:
    """A connection to one Redis. `ackd.ports.Broker` says what each method does."""

    def __init__(self, name: str, options: RedisStreamOptions) -> None:
        self.name = name
        self.capabilities = dataclasses.replace(
            CAPABILITIES, value_bytes_max=options.message_bytes_max
        )
        self._options = options
        self.server = Server(options)
        self._consumers: list[RedisStreamConsumer] = []
        self._turn = itertools.count()
        self._under_way = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def start(self) -> None:
        await self.cluster_id()

    async def cluster_id(self) -> str:
        """A random name, made by whoever came first."""
        key = self.server.key("cluster")
        with explained("connecting"):
            await self.server.client.set(key, uuid.uuid4().hex, nx=True)
            found: bytes = await self.server.client.get(key)
        return found.decode()

    def consumer(self, spec: ConsumerSpec) -> RedisStreamConsumer:
        made = RedisStreamConsumer(self.server, spec)
        self._consumers.append(made)
        return made

    async def publish(self, messages: Sequence[Outgoing]) -> list[PublishResult]:
        """One transaction for all of them: stored together, or not at all."""
        size = sum(_size(each) for each in messages)
        if not messages:
            return []
        if self.server.closed:
            return [NotStored(Failure.NOT_STORED, "closed", "not connected") for _ in messages]
        if self._under_way and self._under_way + size > self._options.publish_bytes_max:
            full = NotStored(Failure.PRESSURE, "buffer-full", "too much is on its way")
            return [full for _ in messages]
        self._under_way += size
        self._idle.clear()
        try:
            return await self._publish(messages)
        except BrokerError as error:
            failed = NotStored(Failure.NOT_STORED, "away", error.detail)
        except (RedisError, OSError) as error:
            failed = NotStored(Failure.UNKNOWN, type(error).__name__, str(error))
        finally:
            self._under_way -= size
            if not self._under_way:
                self._idle.set()
        return [failed for _ in messages]

    async def partitions(self, topic: str) -> int | None:
        found = await self.server.topic(topic)
        return None if found is None else found.partitions

    async def ensure_topic(self, topic: str, settings: Mapping[str, str]) -> None:
        """See the port. Retention is the operator's business."""
        if not layout.NAME.fullmatch(topic):
            raise BrokerError(f"{topic!r} is no name of a topic here")
        try:
            made = Topic(uuid.uuid4().hex, max(int(settings.get("partitions", "1")), 1))
        except ValueError:
            raise BrokerError(f"partitions of {topic}: no number") from None
        with explained("making a topic"):
            await self.server.client.hsetnx(self.server.key("topics"), topic, made.row())

    def dead_letter_topic(self, group: str) -> str:
        return own_topics.dead_letter_topic(group)

    def retry_topic(self, group: str) -> str:
        return own_topics.retry_topic(group)

    def conditions(self) -> list[Condition]:
        """Those of the consumers come as their events."""
        return []

    async def close(self) -> None:
        for consumer in self._consumers:
            await consumer.close()
        self._consumers.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self._idle.wait()
        await self.server.close()

    async def _publish(self, messages: Sequence[Outgoing]) -> list[PublishResult]:
        """Raises BrokerError when nothing was sent, the client's errors when that is not sure."""
        topics = await self.server.topics()
        results: list[PublishResult | None] = []
        places: list[tuple[int, str, int]] = []
        pipe = self.server.client.pipeline(transaction=True)
        for index, message in enumerate(messages):
            topic = topics.get(message.topic)
            partition = self._partition(message, topic)
            results.append(self._refused(message, topic, partition))
            if results[-1] is None and topic is not None:
                places.append((index, message.topic, partition))
                log = self.server.key("log", topic.identity, partition)
                arguments = [message.topic, topic.row(), *layout.fields(message)]
                pipe.eval(layout.PUBLISH, 2, self.server.key("topics"), log, *arguments)
        for (index, name, partition), entry in zip(places, await pipe.execute(), strict=True):
            if entry:
                results[index] = Stored(name, partition, layout.offset_of(entry))
            else:
                results[index] = NotStored(Failure.NOT_STORED, "replaced", f"{name} was made again")
        return [each for each in results if each is not None]

    def _partition(self, message: Outgoing, topic: Topic | None) -> int:
        if message.partition is not None or topic is None:
            return message.partition or 0
        if message.key is None:
            return next(self._turn) % topic.partitions
        return zlib.crc32(message.key) % topic.partitions

    def _refused(self, message: Outgoing, topic: Topic | None, partition: int) -> NotStored | None:
        if topic is None:
            return NotStored(Failure.REFUSED, "no-topic", f"there is no topic {message.topic}")
        if not 0 <= partition < topic.partitions:
            return NotStored(Failure.REFUSED, "no-partition", f"there is no partition {partition}")
        if message.delay_ms:
            return NotStored(Failure.REFUSED, "no-delay", "a stream can't delay")
        if len(message.value or b"") > self._options.message_bytes_max:
            return NotStored(Failure.REFUSED, "too-large", "more than message_bytes_max")
        return None


def _size(message: Outgoing) -> int:
    size = len(message.value or b"") + len(message.key or b"")
    return size + sum(len(name) + len(value or b"") for name, value in message.headers) + 1
