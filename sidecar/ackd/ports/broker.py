"""A connection to a broker: publishing, topics, consumers, and what it can do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol, runtime_checkable

from ackd.ports.condition import Condition
from ackd.ports.consumer import Consumer, ConsumerSpec, StartPolicy
from ackd.ports.events import Headers
from ackd.ports.own_topics import RESERVED


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to publish. `partition` None = the broker's partitioner chooses by the key."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None
    delay_ms: int = 0


@dataclass(frozen=True, slots=True)
class Stored:
    """The broker has stored the message, as durably as its settings say.

    `offset` is -1 if the broker gives a delayed message its offset only when it is due.
    """

    topic: str
    partition: int
    offset: int


class Failure(Enum):
    """How a publish failed. By this, rule R20 decides whether ackd may try another partition."""

    NOT_STORED = "not-stored"
    UNKNOWN = "unknown"
    REFUSED = "refused"
    PRESSURE = "pressure"


@dataclass(frozen=True, slots=True)
class NotStored:
    """The publish failed: `failure` says how sure that is, `code` is the broker's own name for
    it.
    """

    failure: Failure
    code: str
    detail: str


PublishResult = Stored | NotStored


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an adapter can do, as data. ackd answers a request for anything else with a problem
    that says so.
    """

    name: str
    order_within_partition: bool
    explicit_partition: bool
    delayed_publish: bool
    delay_max_ms: int
    start_policies: frozenset[StartPolicy]
    seek_by_time: bool
    commit_metadata_chars: int
    value_bytes_max: int
    broker_side_acks: bool = False
    """The broker keeps an ack for each message (`ackd.ports.broker_side_acks`); a group there
    has no position.
    """
    reads_offsets: bool = True
    """Who does not join a group can read a topic by offset (`ConsumerSpec.joins` False)."""
    makes_topics: bool = True
    """`ensure_topic` can create topics."""
    filters: frozenset[str] = frozenset()
    """Kinds of `ConsumerSpec.filter`: `tag`, `sql92`."""
    reserved: tuple[str, ...] = field(default_factory=lambda: RESERVED)
    """Prefixes of the names of ackd's own topics and the broker's, with their namespace or (after
    the last slash) without: applications can't publish to them through ackd.
    """


@runtime_checkable
class Broker(Protocol):
    """One connection to a broker. Built by an adapter's factory from its section of the
    configuration.
    """

    capabilities: Capabilities

    async def start(self) -> None:
        """Connect, at least until the cluster is known. Raises BrokerError."""

    async def cluster_id(self) -> str:
        """Return the cluster's own identity, which is part of every record's name (rule R1).
        Raises BrokerError.
        """

    def consumer(self, spec: ConsumerSpec) -> Consumer:
        """Make a consumer; it does nothing before its `start`."""

    async def publish(self, messages: Sequence[Outgoing]) -> list[PublishResult]:
        """Publish each message once and return the results in the same order. Never raises
        because of a single message.
        """

    async def partitions(self, topic: str) -> int | None:
        """Count the partitions of a topic; None if it does not exist. Raises BrokerError."""

    async def ensure_topic(self, topic: str, settings: Mapping[str, str]) -> None:
        """Create one of ackd's own topics unless it exists. Raises BrokerError (missing rights,
        say).
        """

    def dead_letter_topic(self, group: str) -> str:
        """Name a group's dead-letter topic. Works before `start` and never changes.

        The name is valid at this broker whatever the group is called, no other group has it, and no
        pattern of a subscription matches it (rule R25).
        """

    def retry_topic(self, group: str) -> str:
        """Name a group's retry topic, by the same rules as `dead_letter_topic`."""

    def conditions(self) -> list[Condition]:
        """Report what is wrong with the connection now, for readiness."""

    async def close(self) -> None:
        """Flush accepted messages within a bounded time and disconnect. Never raises."""
