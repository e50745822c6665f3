"""The simulated cluster's logs: topics with identities, partitions with holes, retention."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b

from ackd.core.ids import TopicPartition
from ackd.ports import Headers, Record
from ackd.ports.own_topics import RETRY_PREFIX
from tests.simulation.world import MS, World


@dataclass(slots=True)
class Log:
    """One partition. `records` by offset; what is missing below `end` is a hole."""

    records: dict[int, Record] = field(default_factory=dict)
    start: int = 0
    end: int = 0
    removed: set[int] = field(default_factory=set)
    listeners: list[Callable[[], None]] = field(default_factory=list)

    def append(self, key: bytes | None, value: bytes | None, headers: Headers, now_ms: int) -> int:
        """One record; returns its offset."""
        offset = self.end
        self.records[offset] = Record(offset, key, value, headers, now_ms)
        self.end += 1
        self._tell()
        return offset

    def skip(self, count: int) -> None:
        """Transaction markers and aborted records: offsets that hold nothing for a consumer."""
        self.end += count
        self._tell()

    def compact(self, offset: int) -> None:
        """A later record of the same key has replaced this one."""
        if self.records.pop(offset, None) is not None:
            self.removed.add(offset)

    def retain(self, start: int) -> list[int]:
        """Retention deletes what lies below `start`; returns which records went."""
        self.start = max(self.start, min(start, self.end))
        gone = [offset for offset in self.records if offset < self.start]
        for offset in gone:
            self.compact(offset)
        return gone

    def following(self, position: int, most: int) -> list[Record]:
        """The next records at or after a position."""
        found: list[Record] = []
        while position < self.end and len(found) < most:
            record = self.records.get(position)
            if record is not None:
                found.append(record)
            position += 1
        return found

    def _tell(self) -> None:
        for listener in list(self.listeners):
            listener()


@dataclass(slots=True)
class Topic:
    """A topic of one identity."""

    name: str
    topic_id: bytes
    logs: list[Log]


class Cluster:
    """All topics. `up` False: nobody is answered. `foreign_delays`: other clients delayed messages.

    `at_once`: the messages of one publish are on their way together, and clients notice when
    nobody answers.
    """

    def __init__(self, world: World, name: str = "cluster-1") -> None:
        self.world = world
        self.name = name
        self.up = True
        self.foreign_delays = False
        self.at_once = False
        self.topics: dict[str, Topic] = {}
        self.retired: list[Topic] = []
        self.on_replaced: list[Callable[[Topic], None]] = []
        self.on_append: Callable[[TopicPartition, int, bytes, Headers], None] | None = None
        self._made = 0

    def make(self, name: str, partitions: int) -> Topic:
        """Create a topic."""
        self._made += 1
        identity = blake2b(f"{name}/{self._made}".encode(), digest_size=16).digest()
        topic = self.topics[name] = Topic(name, identity, [Log() for _ in range(partitions)])
        return topic

    def of(self, topic_id: bytes) -> Topic | None:
        """The topic of this identity, unless it was made again."""
        return next((t for t in self.topics.values() if t.topic_id == topic_id), None)

    def holds(self, topic_id: bytes, partition: int, offset: int) -> bool:
        """Whether the message can still be read."""
        topic = self.of(topic_id)
        return topic is not None and offset in topic.logs[partition].records

    def is_of(self, topic_id: bytes, partition: int, offset: int, value: bytes | None) -> bool:
        """Whether this is what the topic of that identity has there, or had: it may be gone."""
        topics = [t for t in (*self.topics.values(), *self.retired) if t.topic_id == topic_id]
        logs = [topic.logs[partition] for topic in topics]
        record = logs[0].records.get(offset) if logs else None
        return not logs or (offset < logs[0].end and (record is None or record.value == value))

    def is_hole(self, topic_id: bytes, partition: int, offset: int) -> bool:
        """The log has passed this offset and holds nothing there."""
        topic = self.of(topic_id)
        if topic is None:
            return False
        log = topic.logs[partition]
        return offset < log.end and offset not in log.records

    def remake(self, name: str) -> Topic:
        """Delete a topic and make it again: offsets start at 0, the identity is another (R1)."""
        old = self.topics[name]
        self.retired.append(old)
        topic = self.make(name, len(old.logs))
        self.world.note("broker", "topic made again", name)
        for tell in self.on_replaced:
            tell(topic)
        return topic

    def log(self, tp: TopicPartition) -> Log:
        """A partition of the topic as it is now."""
        return self.topics[tp.topic].logs[tp.partition]

    def publish(
        self,
        topic: str,
        partition: int,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Headers = (),
    ) -> int:
        """Append a record; the topic is made when it is new."""
        if topic not in self.topics:
            self.make(topic, partition + 1)
        log = self.topics[topic].logs[partition]
        if self.on_append is not None:
            self.on_append(TopicPartition(topic, partition), log.end, value, headers)
        return log.append(key, value, headers, self.world.now_us // MS)


def is_retry(topic: str) -> bool:
    """Whether copies of stuck messages go there."""
    return topic.startswith(RETRY_PREFIX)
