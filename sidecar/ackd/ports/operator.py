"""What operators' commands ask of a broker beyond what serving needs. Optional for an adapter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
class SingleAcks(Protocol):
    """Groups of plain consumers that remember acks of single messages above their position, as
    Pulsar's Shared subscriptions do.
    """

    async def acks_above(
        self, group: str, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, Sequence[tuple[int, int]]]:
        """Return the ranges [start, end) above the group's positions that it has acked. Raises
        BrokerError.
        """

    async def give_back(
        self,
        group: str,
        positions: Mapping[TopicPartition, Committed],
        finished: Mapping[TopicPartition, Sequence[tuple[int, int]]],
    ) -> None:
        """Leave a group without members to plain consumers: at these positions, with these ranges
        acked, and without a mark of ackd's. Durable when it returns. Raises BrokerError.
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


@runtime_checkable
class GroupTopics(Protocol):
    """Sends a message to one group of a topic alone."""

    def group_topic(self, group: str, topic: str) -> str:
        """Name the topic whose messages reach only this group, among those of `topic`.
        `Broker.ensure_topic` makes it.
        """
