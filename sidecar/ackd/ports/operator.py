"""What operators' commands ask of a broker beside what serving needs. An adapter may lack it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from ackd.core.ids import TopicPartition
from ackd.ports.consumer import Committed


@runtime_checkable
class Groups(Protocol):
    """Looks at a group from outside, and moves one that nobody is in."""

    async def group_members(self, group: str) -> list[str]:
        """Who is in it, for people; empty also when there is no such group. Raises BrokerError."""

    async def move_group(self, group: str, positions: Mapping[TopicPartition, Committed]) -> None:
        """Commit positions for a group without members. Raises BrokerError, also when it has
        some.
        """


@runtime_checkable
class TopicLook(Protocol):
    """Tells how a topic is configured."""

    async def topic_settings(self, topic: str) -> Mapping[str, str]:
        """Its settings in effect by Kafka's names; empty when it is not there. Raises BrokerError.
        What does not exist on this kind of broker is left out.
        """
