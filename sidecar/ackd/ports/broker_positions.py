"""Ports for brokers with individual acks that nevertheless hand the messages of a queue out in
their order, and so have a place from which a group goes on: it can be asked for, and moved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from ackd.core.ids import TopicPartition
from ackd.errors import BrokerError
from ackd.ports.events import Arrival


class LogPart(NamedTuple):
    """Messages of a queue's log in their order, from an offset to before `next`, but for those that
    the subscription's filter leaves out. `first`: where the log begins.
    """

    messages: list[Arrival]
    next: int
    first: int


class BrokerPositions(Protocol):
    """One group's positions. `on`: the options say how to ask; else every question raises
    BrokerError, and only an operator can move the group.

    A partition of a later log generation is asked about as the queue that it is of.
    """

    @property
    def on(self) -> bool: ...

    def queues(self, topic: str) -> Sequence[TopicPartition]:
        """The partitions of a topic's queues on all its brokers, those that are away too, but for
        what was removed. Of a log that goes on in another partition, the first one.
        """

    async def range(self, partition: TopicPartition) -> tuple[int, int]:
        """First and end offset of the queue's log. Raises BrokerError."""

    async def offset_at(self, partition: TopicPartition, timestamp_ms: int) -> int:
        """The first offset of a message that was stored at this Unix time or later; the end if
        there is none. Raises BrokerError.
        """

    async def group_offset(self, partition: TopicPartition) -> int:
        """The offset that the broker hands out next; -1: the group never got any. Raises
        BrokerError.
        """

    async def booted_ms(self, partition: TopicPartition) -> int:
        """When the queue's broker was started, by its own clock. Raises BrokerError."""

    async def read(self, partition: TopicPartition, offset: int) -> LogPart:
        """A bounded number of messages from this offset on, without taking them from the group. At
        least one, or `next` is beyond the offset, unless the log ends there. Raises BrokerError.
        """

    async def move(self, positions: Mapping[TopicPartition, int]) -> None:
        """Let the broker go on from these offsets, or the nearest ones that it has. Raises
        BrokerError.
        """

    def refused(self, error: BrokerError) -> bool:
        """Whether the broker will never do that for ackd, so that only an operator can move it."""

    def by_hand(self, partition: TopicPartition, offset: int) -> str:
        """The command with which an operator moves the group of this queue there."""


@runtime_checkable
class HasPositions(Protocol):
    """A `Consumer` of such a broker also implements this."""

    @property
    def broker_positions(self) -> BrokerPositions: ...
