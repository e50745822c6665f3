"""From where the broker hands out the messages of each queue: asked, and moved, at the brokers.

RocketMQ's proxies know no such calls. A broker notes a move in memory, and writes it down with the
group's offsets (`flushConsumerOffsetInterval`, 5 s).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from ackd.core.ids import TopicPartition
from ackd.core.log_generations import split
from ackd.errors import BrokerError
from ackd.ports import Arrival, AssignedPlace, LogPart
from ackd_adapters.rocketmq import envelope
from ackd_adapters.rocketmq.client import code_of, expression
from ackd_adapters.rocketmq.protocol.definition_pb2 import FilterType
from ackd_adapters.rocketmq.remoting import ensure
from ackd_adapters.rocketmq.remoting_admin import CONSUMED, LogQueue, RemotingAdmin, object_in

RUNTIME: Final = 28
RESET: Final = 222
REFUSED: Final = frozenset({"NO_PERMISSION", "REQUEST_CODE_NOT_SUPPORTED"})
"""No rights, or a proxy stands in for the name servers and the brokers."""
NOT_FOUND: Final = 22
"""The group never got anything of the queue."""


class QueueName(NamedTuple):
    """A queue of a topic, by the name of its broker and the number there."""

    broker: str
    number: int


class RocketMQPositions:
    """`ackd.ports.BrokerPositions`. `queue_of`: which queue a partition is; `queues`: the
    partitions of a topic's queues; `filter`: the group's.
    """

    def __init__(
        self,
        admin: RemotingAdmin,
        group: str,
        queue_of: Callable[[TopicPartition], QueueName],
        queues: Callable[[str], Sequence[TopicPartition]],
        filter: str = "",  # noqa: A002 -- its name everywhere
    ) -> None:
        self._admin = admin
        self._group = group
        self._filter = filter
        self._queue_of = queue_of
        self._queues = queues

    @property
    def on(self) -> bool:
        return self._admin.on

    def queues(self, topic: str) -> Sequence[TopicPartition]:
        return self._queues(topic)

    async def range(self, partition: TopicPartition) -> tuple[int, int]:
        return await self._admin.range(await self._at(partition))

    async def offset_at(self, partition: TopicPartition, timestamp_ms: int) -> int:
        return await self._admin.offset_at(await self._at(partition), timestamp_ms)

    async def group_offset(self, partition: TopicPartition) -> int:
        fields = {"consumerGroup": self._admin.full(self._group), "setZeroIfNotFound": "false"}
        answer = await self._admin.ask(await self._at(partition), CONSUMED, fields)
        if answer.code == NOT_FOUND:
            return -1
        return int(ensure("offset of the group", answer).fields["offset"])

    async def booted_ms(self, partition: TopicPartition) -> int:
        answer = await self._admin.ask(await self._at(partition), RUNTIME, {})
        table = object_in(ensure("runtime of the broker", answer)).get("table", {})
        return int(table.get("bootTimestamp", 0))

    async def read(self, partition: TopicPartition, offset: int) -> LogPart:
        at = await self._at(partition)
        pulled = await self._admin.pull(self._group, at, offset, filter=self._filter)
        number = split(partition.partition)[0]
        messages = [
            Arrival(
                each.message.message_id.encode(),
                AssignedPlace(number, each.message.offset),
                envelope.record(each.message),
                each.message.stored_ms,
            )
            for each in pulled.messages
            if each.message.offset >= offset and self._passes(each.message.tag)
        ]
        return LogPart(messages, pulled.next_offset, pulled.first)

    async def move(self, positions: Mapping[TopicPartition, int]) -> None:
        for partition, offset in positions.items():
            at = await self._at(partition)
            first, end = await self._admin.range(at)
            fields = {
                "group": self._admin.full(self._group),
                "offset": str(min(max(offset, first), end)),
                "timestamp": "-1",
                "isForce": "true",
            }
            ensure(f"reset of {partition}", await self._admin.ask(at, RESET, fields))

    def refused(self, error: BrokerError) -> bool:
        return code_of(error) in REFUSED

    def by_hand(self, partition: TopicPartition, offset: int) -> str:
        broker, number = self._queue_of(partition)
        group, topic = self._admin.full(self._group), self._admin.full(partition.topic)
        return (
            f"mqadmin resetOffsetByTime -n <name servers> -g {group} -t {topic} "
            f"-b <address of {broker}> -q {number} -o {offset} -s 0"
        )

    def _passes(self, tag: str) -> bool:
        """A broker compares hashes of tags."""
        wanted = expression(self._filter)
        tags = [each.strip() for each in wanted.expression.split("||")]
        return wanted.type == FilterType.SQL or "*" in tags or tag in tags

    async def _at(self, partition: TopicPartition) -> LogQueue:
        broker, number = self._queue_of(partition)
        for each in await self._admin.queues(partition.topic):
            if (each.broker, each.number) == (broker, number):
                return each
        raise BrokerError(f"no name server knows queue {number} of {partition.topic} at {broker}")
