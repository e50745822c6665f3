"""One subscription's side: sessions, progress, and one stream of events."""

from __future__ import annotations

import asyncio
import contextlib
import re
import uuid
from collections.abc import Mapping, Sequence
from typing import Final

from ackd.core.ids import TopicPartition
from ackd.errors import BrokerError
from ackd.ports import (
    Committed,
    Condition,
    ConsumerEvent,
    ConsumerSpec,
    TopicInfo,
    TopicReplaced,
)
from ackd.ports.own_topics import is_own_topic
from ackd_redis_stream.layout import COMMIT, Topic
from ackd_redis_stream.member import Member
from ackd_redis_stream.reading import Reading
from ackd_redis_stream.server import Server, explained

METADATA_CHARS_MAX: Final = 4096
LEAVE_S: Final = 3.0


class RedisStreamConsumer:
    """See `ackd.ports.Consumer`. Of each session one batch waits at most, beside the group's
    events.
    """

    def __init__(self, server: Server, spec: ConsumerSpec) -> None:
        self._server = server
        self._spec = spec
        self._topics = spec.topics
        self._events: list[ConsumerEvent] = []
        self._sessions: dict[TopicPartition, Reading] = {}
        self._numbers = 0
        self._news = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self._joined = False
        name = spec.static_id or f"{spec.client_id}-{uuid.uuid4().hex[:8]}"
        self._member = Member(server, spec.group, name, self._find, self._tell)

    async def start(self) -> None:
        self._check()
        if self._spec.joins and not self._joined:
            self._joined = True
            self._hold(asyncio.get_running_loop().create_task(self._member.run()))

    async def also(self, topic: str) -> None:
        if topic not in self._topics:
            self._topics = (*self._topics, topic)
            self._member.look()

    async def events(self) -> list[ConsumerEvent]:
        while True:
            self._check()
            found, self._events = self._events, []
            for reading in self._sessions.values():
                found += reading.take()
            if found:
                return found
            self._news.clear()
            await self._news.wait()

    def fetch_from(self, partition: TopicPartition, offset: int) -> int:
        self.stop_fetch(partition)
        self._numbers += 1
        reading = Reading(self._server, partition, self._numbers, offset, self._news)
        self._sessions[partition] = reading
        reading.task = asyncio.get_running_loop().create_task(reading.run())
        self._hold(reading.task)
        return self._numbers

    def stop_fetch(self, partition: TopicPartition) -> None:
        reading = self._sessions.pop(partition, None)
        if reading is not None:
            reading.stop()

    def pause(self, partition: TopicPartition) -> None:
        if partition in self._sessions:
            self._sessions[partition].pause()

    def resume(self, partition: TopicPartition) -> None:
        if partition in self._sessions:
            self._sessions[partition].resume()

    async def topics(self) -> list[TopicInfo]:
        self._check()
        return [
            TopicInfo(name, bytes.fromhex(topic.identity), topic.partitions)
            for name, topic in sorted((await self._find()).items())
        ]

    async def committed(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, Committed]:
        self._check()
        topics = await self._server.topics()
        found = dict.fromkeys(partitions, Committed(-1, ""))
        for at in partitions:
            topic = topics.get(at.topic)
            if topic is None:
                continue
            with explained("positions"):
                row: bytes | None = await self._server.client.hget(
                    self._server.key("at", self._spec.group), topic.place(at.partition)
                )
            if row is not None:
                offset, _, metadata = row.decode().partition("|")
                found[at] = Committed(int(offset), metadata)
        return found

    async def commit(self, positions: Mapping[TopicPartition, Committed]) -> None:
        self._check()
        topics = await self._server.topics()
        rows: list[str] = []
        for at, position in positions.items():
            topic = topics.get(at.topic)
            if topic is None:
                raise BrokerError(f"there is no topic {at.topic}")
            if len(position.metadata) > METADATA_CHARS_MAX:
                raise BrokerError(f"metadata of more than {METADATA_CHARS_MAX} characters")
            rows += [topic.place(at.partition), f"{position.offset}|{position.metadata}"]
        keys = [self._server.key(kind, self._spec.group) for kind in ("beat", "at")]
        if rows and not await self._server.script(COMMIT, keys, [self._member.name, *rows]):
            raise BrokerError("no member of the group")

    async def log_range(self, partition: TopicPartition) -> tuple[int, int]:
        self._check()
        return await self._server.range(await self._server.log(partition))

    async def offset_at(self, partition: TopicPartition, timestamp_ms: int) -> int:
        self._check()
        return await self._server.offset_at(await self._server.log(partition), timestamp_ms)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._news.set()
        for reading in self._sessions.values():
            reading.stop()
        self._member.stop()
        with contextlib.suppress(BrokerError, TimeoutError):
            async with asyncio.timeout(LEAVE_S):
                await asyncio.gather(*self._tasks, return_exceptions=True)
                if self._joined:
                    await self._member.leave()

    def _check(self) -> None:
        if self._closed:
            raise BrokerError("the consumer is closed")

    def _hold(self, task: asyncio.Task[None]) -> None:
        """A task that nobody holds may vanish, and its error with it."""
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._tell(Condition("task", f"a task ended: {error!r}", fatal=True))

    def _tell(self, event: ConsumerEvent) -> None:
        if isinstance(event, TopicReplaced):
            for partition in [each for each in self._sessions if each.topic == event.topic]:
                self.stop_fetch(partition)
        self._events.append(event)
        self._news.set()

    async def _find(self) -> dict[str, Topic]:
        """The topics that there are of those that are subscribed."""
        existing = await self._server.topics()
        patterns = [re.compile(each) for each in self._topics if each.startswith("^")]
        return {
            name: topic
            for name, topic in existing.items()
            if name in self._topics
            or (not is_own_topic(name) and any(each.match(name) for each in patterns))
        }
