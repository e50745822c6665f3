"""A connection to a broker: publishing, topics, consumers, and what it can do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol, runtime_checkable

from ackd.ports.consumer import Consumer, ConsumerSpec, StartPolicy
from ackd.ports.events import Headers
from ackd.ports.own_topics import RESERVED
from ackd.ports.trouble import Condition


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to publish. `partition` None = the broker's partitioner decides by the key."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None
    delay_ms: int = 0


@dataclass(frozen=True, slots=True)
class Stored:
    """The broker has it, durably as far as its settings go.

    `offset` is -1 where the broker gives a delayed message its offset only when it is due.
    """

    topic: str
    partition: int
    offset: int


class Failure(Enum):
    """How a publish failed (rule R20 decides on this whether another partition may be tried)."""

    NOT_STORED = "not-stored"
    UNKNOWN = "unknown"
    REFUSED = "refused"
    PRESSURE = "pressure"


@dataclass(frozen=True, slots=True)
class NotStored:
    """Not published: `failure` says how sure that is, `code` is the broker's own name for it."""

    failure: Failure
    code: str
    detail: str


PublishResult = Stored | NotStored


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an adapter can do, as data; a request for what it can't gets a clear problem."""

    name: str
    order_within_partition: bool
    explicit_partition: bool
    delayed_publish: bool
    delay_max_ms: int
    start_policies: frozenset[StartPolicy]
    seek_by_time: bool
    commit_metadata_chars: int
    value_bytes_max: int
    own_acks: bool = False
    """The broker keeps an ack for each message (`ackd.ports.own_acks`); it can't be positioned."""
    makes_topics: bool = True
    """`ensure_topic` can make one."""
    filters: frozenset[str] = frozenset()
    """Kinds of `ConsumerSpec.filter`: `tag`, `sql92`."""
    reserved: tuple[str, ...] = field(default_factory=lambda: RESERVED)
    """Beginnings of names (behind the last slash) of topics that are ackd's own or the broker's:
    applications publish nothing there through ackd.
    """


@runtime_checkable
class Broker(Protocol):
    """One connection to a broker. Built by an adapter's factory from its section of the
    configuration.
    """

    capabilities: Capabilities

    async def start(self) -> None:
        """Connect as far as needed to know the cluster. Raises BrokerError when it can't."""

    async def cluster_id(self) -> str:
        """The cluster's own identity (part of every ledger key, rule R1). Raises BrokerError."""

    def consumer(self, spec: ConsumerSpec) -> Consumer:
        """Make a consumer; it does nothing before its `start`."""

    async def publish(self, messages: Sequence[Outgoing]) -> list[PublishResult]:
        """Publish once each, results in the same order; never raises for a single message."""

    async def partitions(self, topic: str) -> int | None:
        """How many partitions a topic has, None when it does not exist. Raises BrokerError."""

    async def ensure_topic(self, topic: str, settings: Mapping[str, str]) -> None:
        """Create a topic of ackd's own unless it is there. Raises BrokerError (missing rights,
        say).
        """

    def dead_letter_topic(self, group: str) -> str:
        """The name of a group's dead-letter topic; known before `start`, for ever the same.

        One that a topic can have here, whatever the group is called; no other group's; and no
        pattern of a subscription matches it (rule R25).
        """

    def retry_topic(self, group: str) -> str:
        """The name of a group's retry topic; as for `dead_letter_topic`."""

    def troubles(self) -> list[Condition]:
        """What is wrong with the connection now, for readiness."""

    async def close(self) -> None:
        """Flush what was accepted (bounded) and disconnect. Never raises."""
