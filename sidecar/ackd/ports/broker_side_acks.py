"""Ports for brokers that keep an ack for each message themselves (RocketMQ, Pulsar).

Such a broker delivers messages in any order, hides them for a while, and delivers every message
again whose ack it lacks or lost in a crash. The engine treats it as a log whose records arrive in
any order. The store decides as usual, and the adapter acks at the broker afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from ackd.core.ids import TopicPartition
from ackd.ports.events import AssignedPlace


@runtime_checkable
class BrokerSideAcks(Protocol):
    """A `Consumer` of such a broker also implements this. No method waits or raises."""

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


class Places(Protocol):
    """Remembers, in the store, the first place of messages that come again under another one."""

    async def assign(
        self,
        subscription: str,
        topic_id: bytes,
        keep_ms: int,
        arrivals: Sequence[tuple[bytes, AssignedPlace]],
    ) -> list[AssignedPlace]:
        """Return the place under which each message is known. An unknown message gets the given
        one. The store remembers it for at least `keep_ms` after the last question. Raises
        StoreError.
        """
