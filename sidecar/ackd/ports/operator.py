"""What operators' commands ask of a broker beyond what serving needs. Optional for an adapter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from ackd.core.ids import TopicPartition
from ackd.ports.consumer import Committed


@runtime_checkable
class Groups(Protocol):
    """Reads the members of a group, and moves a group without members."""

    async def group_members(self, group: str) -> list[str]:
        """Name the members, for people to read. Empty also if there is no such group. Raises
        BrokerError.
        """

    async def move_group(self, group: str, positions: Mapping[TopicPartition, Committed]) -> None:
        """Commit positions for a group without members. Raises BrokerError, also if it has
        members.
        """


@runtime_checkable
class TopicLook(Protocol):
    """Reads the configuration of a topic."""

    async def topic_settings(self, topic: str) -> Mapping[str, str]:
        """Return the settings in effect, by Kafka's names; empty if the topic does not exist.
        Settings that this kind of broker lacks are left out. Raises BrokerError.
        """


@runtime_checkable
class TopicSizes(Protocol):
    """Lets a topic take longer messages."""

    async def take_messages_of(self, topic: str, bytes_max: int) -> None:
        """Set the largest message that the topic takes. Raises BrokerError."""
