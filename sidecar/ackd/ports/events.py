"""Fetched messages and the other events of a consumer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from msgspec import Struct

from ackd.core.ids import TopicPartition
from ackd.ports.condition import Condition

Headers = tuple[tuple[str, bytes | None], ...]


class Record(Struct, gc=False):
    """A message as the broker has it. `timestamp_ms` is the broker's. Key and value may be None
    (tombstone).

    A Struct, because there may be 100,000: it is smaller, and the garbage collector skips it.
    """

    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int

    def size(self) -> int:
        """Bytes of key, value and headers. Bounds in bytes count these."""
        total = len(self.value or b"") + len(self.key or b"")
        for name, value in self.headers:
            total += len(name) + len(value or b"")
        return total


@dataclass(frozen=True, slots=True)
class Assigned:
    """The group assigned these partitions to this sidecar."""

    partitions: tuple[TopicPartition, ...]


@dataclass(slots=True)
class Revoked:
    """The group takes these partitions away in good order. The engine calls `done()` once it has
    handed over their progress.

    The adapter waits at most 2 s for `done()` (rule R34). `rejoins`: the group assigns them to
    nobody before all its members have joined once more.
    """

    partitions: tuple[TopicPartition, ...]
    _done: Done
    rejoins: bool = False

    def done(self) -> None:
        """End the adapter's wait. May be called more than once."""
        self._done.set()


class Done(Protocol):
    """The adapter's side of `Revoked.done`. The event loop's thread calls it."""

    def set(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Lost:
    """The group has taken these partitions away, because the session ended. The engine must not
    commit them.
    """

    partitions: tuple[TopicPartition, ...]


class Delay(NamedTuple):
    """A client-set delay: another client than ackd delayed a message before it came here.

    `due_ms`: when it may be delivered (Unix time), 0 = now. `attempts`: its deliveries elsewhere;
    the first one here counts on from them.
    """

    due_ms: int
    attempts: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """Records of one partition in offset order, from one uninterrupted fetch `session`.

    `session` is the number that `fetch_from` returned. Only within one session are missing offsets
    a gap (rule R7). The first record of a session is the first one at or after the requested
    offset.

    `delays`: client-set delays of these records, by offset; the same each time a record is fetched.

    `leader_epoch`: of the leader that wrote these records, -1 = not known (see `SeesTruncation`).
    """

    partition: TopicPartition
    session: int
    records: list[Record]
    delays: Mapping[int, Delay] | None = None
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class EndReached:
    """The session has read everything below `offset`; what did not come is a gap."""

    partition: TopicPartition
    session: int
    offset: int


@dataclass(frozen=True, slots=True)
class OutOfRange:
    """The requested offset is not in the log [`log_start`, `log_end`), after retention or a
    truncation.

    `cut`: the log was truncated at this offset (rule R1). Messages read at or above it are gone,
    and others may get their offsets; the log may have grown again.
    """

    partition: TopicPartition
    session: int
    log_start: int
    log_end: int
    cut: int | None = None


@dataclass(frozen=True, slots=True)
class TopicReplaced:
    """Somebody deleted the topic and made it again under its name. It has another identity and so
    another record (rule R1).

    The adapter has ended all its sessions and dropped their records; `topics()` returns the new
    topic.
    """

    topic: str
    topic_id: bytes


class AssignedPlace(NamedTuple):
    """The offset under which the engine knows a message, for ever."""

    partition: int
    offset: int


@dataclass(slots=True)
class Arrival:
    """A message that the broker delivered to ackd. `id`: the broker's name of it, the same each
    time it comes.

    `place`: where it is stored; the engine knows it by this place only if it never came under
    another one, and if no other message had the place before. One that the broker stored again, as
    a copy, comes under a partition from `COPIES` of `ackd.core.sources` on. `stored_ms`: when the
    broker stored it there, Unix time, 0 = not known. Within a log it only grows, which tells when
    the broker uses offsets again.
    """

    id: bytes
    place: AssignedPlace
    record: Record
    stored_ms: int = 0


@dataclass(frozen=True, slots=True)
class Arrived:
    """Messages of one topic, in any order; some may have come before."""

    topic: str
    arrivals: list[Arrival]


@dataclass(frozen=True, slots=True)
class Drew:
    """All that the broker gave of this topic before `through_ms` has come in events before this,
    but for what was lost with a question that failed.

    `broken_ms`: when a question for messages failed last, 0 = none did. What the broker gave until
    then may be lost on its way. Both are times of `Clock.monotonic_ms`.
    """

    topic: str
    through_ms: int
    broken_ms: int


LogEvent = Assigned | Revoked | Lost | Fetched | EndReached | OutOfRange | TopicReplaced | Condition
ConsumerEvent = LogEvent | Arrived | Drew
