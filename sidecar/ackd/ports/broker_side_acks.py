"""Ports for brokers that keep an ack for each message themselves (RocketMQ, Pulsar).

Such a broker delivers messages in any order, hides them for a while, and delivers every message
again whose ack it lacks or lost in a crash. The engine treats it as a log whose records arrive in
any order. The store decides as usual, and the adapter acks at the broker afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from ackd.core.ids import TopicPartition
from ackd.ports.events import AssignedPlace


@runtime_checkable
class BrokerSideAcks(Protocol):
    """A `Consumer` of such a broker also implements this. No method waits or raises.

    The engine may add partitions that the adapter never assigned, for messages at offsets that the
    broker uses again (`LogCut`). They have numbers from `GENERATION` of `ackd.core.log_generations`
    on, and `fetch_from` is called for them as for others.
    """

    @property
    def hold_ms(self) -> int:
        """For how long the broker keeps a message that it delivered from others, if nobody tells it
        more. It may come again afterwards.
        """

    def placed(self, topic: str, message: bytes, place: AssignedPlace) -> None:
        """The engine keeps this arrival and will name it by `place`."""

    def unwanted(self, topic: str, message: bytes) -> None:
        """The engine does not keep this arrival; the broker may deliver it again."""

    def finished(self, partition: TopicPartition, offsets: Sequence[int]) -> None:
        """The store has finished these messages. The adapter acks them at the broker, and
        repeats that until the broker confirms it.
        """

    def kept(self, topic: str) -> list[tuple[bytes, AssignedPlace]]:
        """List the arrivals that the engine keeps and that are not finished."""

    def source(self, partition: TopicPartition) -> Source:
        """Say with which other partitions this one is drawn. Known for each partition that was
        assigned or arrived.
        """


class Source(NamedTuple):
    """What one sidecar draws as a whole: one topic on one broker. `queue`: the broker's own number
    of the partition. `gone`: no sidecar has found it for so long that it was removed, probably.
    """

    topic: str
    broker: str
    queue: int
    gone: bool


class KnownSource(NamedTuple):
    """A topic's broker in the store: the most queues that it had, for how long no sidecar has found
    it in the route, and the blocks of numbers that it has (`ackd.core.sources`).
    """

    broker: str
    queues: int
    silent_ms: int
    blocks: tuple[int, ...]


class SourceRegistry(Protocol):
    """Numbers the brokers of a subscription's topics; all its sidecars get the same answer."""

    async def __call__(
        self, topic_id: bytes, found: Sequence[tuple[str, int]]
    ) -> list[KnownSource]:
        """`found`: the brokers in the topic's route, each with its number of queues. Returns all
        that are known, these too. Raises StoreError.
        """


class StoredAt(NamedTuple):
    """A message of an `Arrival`: its id, where it is stored, and since when."""

    id: bytes
    place: AssignedPlace
    stored_ms: int


class LogCut(NamedTuple):
    """The broker uses offsets of `partition` again, at latest from `offset` on: it lost what was
    there, or the topic was made again. Messages from there on are of this `generation`.
    """

    partition: int
    offset: int
    generation: int


class Placed(NamedTuple):
    """The places of messages, in their order, and the cuts that these messages showed first."""

    places: list[AssignedPlace]
    cuts: list[LogCut]


class KnownAt(NamedTuple):
    """Places of messages, and how much of the time has passed that counts for how long ids of a
    block are known.
    """

    places: list[AssignedPlace]
    active_ms: int


class Places(Protocol):
    """Remembers, in the store, the first place of messages that come again under another one.

    No two messages ever get the same place, though the broker may use an offset again.
    """

    async def assign(
        self, subscription: str, topic_id: bytes, keep_ms: int, arrivals: Sequence[StoredAt]
    ) -> Placed:
        """Return the place under which each message is known. An unknown message gets the offset
        where it is stored, in a partition of the log's generation. The store remembers the place
        for at least `keep_ms` after the last question; only time in which messages of its block
        come counts. Raises StoreError.
        """

    async def remember(
        self,
        subscription: str,
        topic_id: bytes,
        keep_ms: int,
        held: Sequence[tuple[bytes, AssignedPlace]],
    ) -> None:
        """Remember these places for `keep_ms` from now on, as `assign` does. Raises StoreError."""

    async def look_up(
        self,
        subscription: str,
        topic_id: bytes,
        keep_ms: int,
        clock: int,
        asked: Sequence[tuple[bytes, AssignedPlace]],
    ) -> KnownAt:
        """Return where these messages are known by their ids. An unknown one is known at the given
        place from now on. `clock`: a partition of the block whose time is asked for. Raises
        StoreError.
        """

    async def sources(
        self, subscription: str, topic_id: bytes, found: Sequence[tuple[str, int]]
    ) -> list[KnownSource]:
        """As `SourceRegistry` says. Raises StoreError."""
