"""What is different about brokers that keep an ack for each message themselves (RocketMQ, Pulsar).

Such a broker delivers messages in any order, holds them back for a while, and delivers again every
message whose ack it does not have, or forgot in a crash. To the engine it is a log whose records
arrive in any order. The store decides as ever; the broker learns the result afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from ackd.core.ids import TopicPartition
from ackd.ports.events import AssignedPlace


@runtime_checkable
class OwnAcks(Protocol):
    """A `Consumer` of such a broker implements this too. No method waits or raises."""

    def placed(self, topic: str, message: bytes, place: AssignedPlace) -> None:
        """The engine keeps this arrival and will refer to it by this place."""

    def unwanted(self, topic: str, message: bytes) -> None:
        """The engine does not keep this arrival: it may come again."""

    def finished(self, partition: TopicPartition, offsets: Sequence[int]) -> None:
        """The store has finished these: the broker may forget them. The adapter repeats the acks
        until the broker has confirmed them.
        """

    def kept(self, topic: str) -> list[tuple[bytes, AssignedPlace]]:
        """Arrivals that the engine keeps and has not finished."""


class Places(Protocol):
    """Places of messages that come again under another place; kept by the store."""

    async def intern(
        self,
        subscription: str,
        topic_id: bytes,
        keep_ms: int,
        arrivals: Sequence[tuple[bytes, AssignedPlace]],
    ) -> list[AssignedPlace]:
        """The place under which each message is known; an unknown message gets this one, for at
        least `keep_ms` after it was last asked for. Raises StoreError.
        """
