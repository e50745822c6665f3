"""Messages as they are fetched, and a consumer's events in the order in which they happened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from msgspec import Struct

from ackd.core.ids import TopicPartition
from ackd.ports.trouble import Condition

Headers = tuple[tuple[str, bytes | None], ...]


class Record(Struct, gc=False):
    """One message as fetched. `timestamp_ms` is the broker's; key and value may be absent
    (tombstone).

    A Struct, as there may be 100,000 of them: smaller, and nothing for the garbage collector.
    """

    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int

    def size(self) -> int:
        """Bytes of key, value and headers (bounds are counted in these)."""
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
    """The group takes these partitions away in good order. Call `done()` when progress is handed
    over.

    The adapter waits for `done()` for a bounded time only (rule R34: at most 2 s).
    """

    partitions: tuple[TopicPartition, ...]
    _done: Done

    def done(self) -> None:
        """Tell the adapter that the hand-over is finished; may be called more than once."""
        self._done.set()


class Done(Protocol):
    """What `Revoked` calls back; safe to call from the event loop's thread."""

    def set(self) -> None:
        """Mark as done."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The group took these partitions away without asking (session ended). Nothing may be
    committed.
    """

    partitions: tuple[TopicPartition, ...]


class Delay(NamedTuple):
    """A client-set delay: another client than ackd delayed a message before it came here.

    `due_ms`: not to be delivered before (Unix time), 0 = now. `attempts`: how often it was
    delivered elsewhere; its first delivery here is the next one.
    """

    due_ms: int
    attempts: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """Records of one partition in offset order, from one uninterrupted fetch `session`.

    `session` is the number that `fetch_from` returned; it changes with every seek or re-assignment.
    A gap between offsets is only a gap within one session (rule R7). The first record of a session
    is the first existing one at or after the offset that was asked for.

    `delays`: client-set delays of these records, by offset; the same each time a record comes.

    `leader_epoch`: of the leader that wrote these records, -1 = not known (see `SeesTruncation`).
    """

    partition: TopicPartition
    session: int
    records: list[Record]
    delays: Mapping[int, Delay] | None = None
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class EndReached:
    """The session has read everything below `offset` (gaps up to there included)."""

    partition: TopicPartition
    session: int
    offset: int


@dataclass(frozen=True, slots=True)
class OutOfRange:
    """The offset asked for is not in the log [`log_start`, `log_end`): retention or truncation.

    `cut`: the log was truncated there (rule R1). What was read at or above it is gone, and other
    messages may have its offsets, now or later; the log may have grown again.
    """

    partition: TopicPartition
    session: int
    log_start: int
    log_end: int
    cut: int | None = None


@dataclass(frozen=True, slots=True)
class TopicReplaced:
    """Somebody deleted the topic and made it again under its name: another identity, another record
    (rule R1).

    All its sessions have ended and their buffered records are dropped; `topics()` knows the new
    one.
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
    another one.
    """

    id: bytes
    place: AssignedPlace
    record: Record


@dataclass(frozen=True, slots=True)
class Arrived:
    """Messages of one topic, in any order; some may have come before."""

    topic: str
    arrivals: list[Arrival]


LogEvent = Assigned | Revoked | Lost | Fetched | EndReached | OutOfRange | TopicReplaced | Condition
ConsumerEvent = LogEvent | Arrived
