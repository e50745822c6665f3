"""What is different about brokers that keep an ack for each message themselves (RocketMQ, Pulsar).

Such a broker hands messages over in any order, holds them back for a while, and brings back what it
was not told to be finished: also what was, when it forgot that in a crash. To the engine it is a
log whose records arrive in any order. The store decides as ever; the broker is told afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from ackd.core.ids import TopicPartition
from ackd.ports.events import AssignedPlace


@runtime_checkable
class OwnAcks(Protocol):
    """A `Consumer` of such a broker is this too. Nothing here waits or raises."""

    def placed(self, topic: str, message: bytes, place: AssignedPlace) -> None:
        """By this place it will be spoken of: an arrival that the engine keeps."""

    def unwanted(self, topic: str, message: bytes) -> None:
        """Not kept: it may come again."""

    def finished(self, partition: TopicPartition, offsets: Sequence[int]) -> None:
        """The store has it: the broker may forget these. It is told until it has understood."""

    def kept(self, topic: str) -> list[tuple[bytes, AssignedPlace]]:
        """What was handed over and is not finished."""


class Places(Protocol):
    """Where messages are that come again under another place; kept by the store."""

    async def intern(
        self,
        subscription: str,
        topic_id: bytes,
        keep_ms: int,
        arrivals: Sequence[tuple[bytes, AssignedPlace]],
    ) -> list[AssignedPlace]:
        """The place under which each is known; one that is not known is known by this from now on,
        for at least `keep_ms` after it was last asked for. Raises StoreError.
        """
