"""One subscription's side of a broker: it fetches messages, and reads and commits progress."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from ackd.core.ids import TopicPartition
from ackd.ports.broker_side_acks import SourceRegistry
from ackd.ports.events import ConsumerEvent


@dataclass(frozen=True, slots=True)
class Committed:
    """A group's committed position. `offset` -1 = none. `metadata` as stored, without a trailing
    NUL.
    """

    offset: int
    metadata: str


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic of the subscription: its identity (16 bytes) and how many partitions it has."""

    topic: str
    topic_id: bytes
    partitions: int


class StartPolicy(Enum):
    """Where a group that has no progress yet starts."""

    LATEST = "latest"
    EARLIEST = "earliest"
    TIMESTAMP = "timestamp"


@dataclass(frozen=True, slots=True)
class ConsumerSpec:
    """What to consume. A topic with a leading `^` is a regular expression.

    `ordered`: the application wants messages in the order of their partitions. `filter`: which
    messages of a topic, in the broker's own words, "" = all.

    `joins` False: the consumer only reads. It is no member of the group, so the broker assigns it
    nothing, it must not commit, and the group's members do not notice it.

    `sources`: numbers the brokers of a topic, where a topic lies on several (`broker_side_acks`);
    None: nobody else has to know the numbers.
    """

    group: str
    topics: tuple[str, ...]
    client_id: str
    static_id: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    joins: bool = True
    ordered: bool = False
    filter: str = ""
    sources: SourceRegistry | None = None


class Consumer(Protocol):
    """One subscription's side of the broker. The engine makes all calls from one event loop."""

    async def start(self) -> None:
        """Join the group. Returns at once; assignments come as events. Raises BrokerError.

        A consumer that does not join can fetch from then on.
        """

    async def also(self, topic: str) -> None:
        """Also read the group's own retry topic. May be called before or after `start`.

        The assignment of its partitions comes in the same stream of events. They are shared apart
        from the topics, among the members that have something of these. Raises BrokerError.
        """

    async def events(self) -> list[ConsumerEvent]:
        """Wait for the next events and return at least one. The buffer is bounded."""

    def fetch_from(self, partition: TopicPartition, offset: int) -> int:
        """Start or restart fetching at `offset`. Returns the number of the new session, larger
        than all before.
        """

    def stop_fetch(self, partition: TopicPartition) -> None:
        """Stop fetching this partition and drop its buffered records."""

    def pause(self, partition: TopicPartition) -> None:
        """Hold back further records of this partition until `resume`. The session stays."""

    def resume(self, partition: TopicPartition) -> None: ...

    async def topics(self) -> list[TopicInfo]:
        """List the topics that the subscription matches now. Raises BrokerError."""

    async def committed(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, Committed]:
        """Read the group's committed positions, which needs no membership. Raises BrokerError."""

    async def commit(self, positions: Mapping[TopicPartition, Committed]) -> None:
        """Commit and wait for the broker's answer. Raises BrokerError, also if the consumer is
        no member any more.
        """

    async def log_range(self, partition: TopicPartition) -> tuple[int, int]:
        """Return the first and the end offset of the partition's log now. Raises BrokerError."""

    async def offset_at(self, partition: TopicPartition, timestamp_ms: int) -> int:
        """Find the first offset with a timestamp >= `timestamp_ms`; the end offset if there is
        none.
        """

    async def close(self) -> None:
        """Leave the group and free everything, within a bounded time. Never raises."""
