"""The adapter of RocketMQ on the simulated broker: its consumer and its holds are those that ackd
ships, only the calls themselves are simulated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from ackd.core.ids import TopicPartition
from ackd.core.log_generations import split
from ackd.errors import BrokerError
from ackd.ports import Arrival, AssignedPlace, ConsumerSpec, LogPart, Placed, Record, StoredAt
from ackd_adapters.rocketmq import asking, consumer, holds
from ackd_adapters.rocketmq.broker import CAPABILITIES
from ackd_adapters.rocketmq.client import HeldMessage
from ackd_adapters.rocketmq.config import RocketMQOptions
from ackd_adapters.rocketmq.consumer import RocketMQConsumer
from ackd_adapters.rocketmq.holds import Holds
from ackd_adapters.rocketmq.message import Taken
from ackd_adapters.rocketmq.protocol.definition_pb2 import (
    Broker,
    FilterExpression,
    MessageQueue,
    MessageType,
    Permission,
    Resource,
)
from tests.simulation.broker import SimBroker
from tests.simulation.held_broker import NAME, HeldCluster
from tests.simulation.process import Process
from tests.simulation.store import StoreServer
from tests.simulation.store_client import SimStore
from tests.simulation.store_more import SimPlaces
from tests.simulation.world import MS

POLL_MS = 1_000
LOOKS_US = 40 * MS
READ_MAX = 32


def passes(expression: str, value: bytes) -> bool:
    """Whether the filter lets a message through: two of three."""
    return expression in ("", "*") or int(value.rpartition(b" ")[2]) % 3 != 2


class SimGroupClient:
    """What `GroupClient` asks, of the simulated broker."""

    def __init__(self, broker: SimBroker) -> None:
        assert isinstance(broker.cluster, HeldCluster)
        self._broker = broker
        self._cluster = broker.cluster

    async def route(self, topic: str) -> list[MessageQueue]:
        """All queues, on one broker."""
        await self._broker.call(lambda: None)
        return [
            MessageQueue(
                topic=Resource(name=topic),
                id=number,
                permission=Permission.READ_WRITE,
                broker=Broker(name=NAME),
                accept_message_types=[MessageType.NORMAL],
            )
            for number in range(len(self._cluster.queues))
        ]

    async def receive(
        self,
        queue: MessageQueue,
        *,
        most: int,
        hold_ms: int,
        poll_ms: int,
        expression: FilterExpression,
        attempt_id: str,
    ) -> list[Taken]:
        """A poll. What is drawn for nobody is given back, or lost."""
        del queue, attempt_id
        return await Poll(self._broker, most, hold_ms, expression.expression).answer(poll_ms)

    async def ack(self, topic: str, held: Sequence[HeldMessage]) -> list[str]:
        """Settle."""
        del topic
        handles = [each.handle for each in held]
        return await self._broker.call(lambda: [self._cluster.ack(each) for each in handles])

    async def change(self, topic: str, held: HeldMessage, hold_ms: int) -> str:
        """Renew, or give back."""
        del topic
        handle = held.handle
        return await self._broker.call(lambda: self._cluster.change(handle, hold_ms * MS))


class Poll:
    """One question for messages."""

    def __init__(self, broker: SimBroker, most: int, hold_ms: int, expression: str) -> None:
        assert isinstance(broker.cluster, HeldCluster)
        self._cluster = broker.cluster
        self._world = broker.cluster.world
        self._process: Process = broker.process
        self._latency_us = broker.random.randint(*broker.faults.latency_us)
        self._lost = broker.faults.active and broker.random.random() < broker.faults.answer_lost
        self._most, self._hold_us, self._expression = most, hold_ms * MS, expression
        self._future: asyncio.Future[Any] = self._process.loop.create_future()
        self._until_us = 0

    async def answer(self, poll_ms: int) -> list[Taken]:
        """Raises BrokerError."""
        self._until_us = self._world.now_us + poll_ms * MS
        self._world.after(self._latency_us, self._looks)
        try:
            async with asyncio.timeout(poll_ms / 1000 + 1):
                found: list[Taken] = await self._future
                return found
        except TimeoutError:
            raise BrokerError("no answer in time") from None

    def _looks(self) -> None:
        """At the broker: what there is, or nothing until the time is over."""
        if not self._cluster.up:
            self._answers([], BrokerError("connection refused"))
            return
        gone = not self._process.alive or self._future.done()
        found = self._cluster.draw(
            self._most,
            self._hold_us,
            lambda value: passes(self._expression, value),
            broken_off=gone,
        )
        if gone:
            return
        if found or self._world.now_us >= self._until_us:
            self._answers(found, None)
        else:
            self._world.after(LOOKS_US, self._looks)

    def _answers(self, found: object, error: Exception | None) -> None:
        if not self._lost or error is not None:
            self._world.after(self._latency_us, self._process.resolve, self._future, found, error)


class SimPositions:
    """`ackd.ports.BrokerPositions` of the simulated broker; `on`: it may be asked."""

    def __init__(
        self, owner: HeldConsumer, broker: SimBroker, expression: str, *, on: bool
    ) -> None:
        assert isinstance(broker.cluster, HeldCluster)
        self.on = on
        self._owner = owner
        self._broker = broker
        self._cluster = broker.cluster
        self._expression = expression

    def queues(self, topic: str) -> Sequence[TopicPartition]:
        """As the consumer knows them."""
        return self._owner._queues(topic)

    def _number(self, partition: TopicPartition) -> int:
        if not self.on:
            raise BrokerError("no name servers")
        return self._owner._queue_of(partition).number

    async def range(self, partition: TopicPartition) -> tuple[int, int]:
        """First and end offset."""
        number = self._number(partition)
        return await self._broker.call(lambda: (0, len(self._cluster.queues[number].log)))

    async def offset_at(self, partition: TopicPartition, timestamp_ms: int) -> int:
        """Nobody seeks to a time here."""
        raise NotImplementedError

    async def group_offset(self, partition: TopicPartition) -> int:
        """What the group gets next."""
        number = self._number(partition)
        return await self._broker.call(lambda: self._cluster.queues[number].next)

    async def booted_ms(self, partition: TopicPartition) -> int:
        """When it came up last."""
        self._number(partition)
        return await self._broker.call(lambda: self._cluster.booted_ms)

    async def read(self, partition: TopicPartition, offset: int) -> LogPart:
        """Past the group."""
        number = self._number(partition)

        def work() -> LogPart:
            log = self._cluster.queues[number].log
            part = log[offset : offset + READ_MAX]
            messages = [
                Arrival(
                    each.id.encode(),
                    AssignedPlace(split(partition.partition)[0], each.offset),
                    Record(each.offset, None, each.value, (), each.stored_ms),
                    each.stored_ms,
                )
                for each in part
                if passes(self._expression, each.value)
            ]
            return LogPart(messages, offset + len(part), 0)

        return await self._broker.call(work)

    async def move(self, positions: Mapping[TopicPartition, int]) -> None:
        """Let the group go on from there."""
        for partition, offset in positions.items():
            queue = self._cluster.queues[self._number(partition)]
            await self._broker.call(
                lambda: setattr(queue, "next", min(offset, len(queue.log)))  # noqa: B023 -- at once
            )

    def refused(self, error: BrokerError) -> bool:
        """Never."""
        del error
        return False

    def by_hand(self, partition: TopicPartition, offset: int) -> str:
        """What readiness would say."""
        return f"move {partition} to {offset}"


class HeldConsumer(RocketMQConsumer):
    """The shipped one, without connections, settings and groups to make."""

    def __init__(self, broker: HeldBroker, spec: ConsumerSpec) -> None:
        assert isinstance(broker.cluster, HeldCluster)
        hold_ms = broker.cluster.hold_ms
        options = RocketMQOptions(
            endpoints="simulated:1", invisible_duration_ms=hold_ms, poll_ms=POLL_MS
        )
        nothing: Any = None
        super().__init__(options, spec, nothing, nothing)
        client: Any = SimGroupClient(broker)
        self._client = client
        self._holds = Holds(client, hold_ms)
        positions: Any = SimPositions(self, broker, spec.filter, on=broker.asks)
        self.broker_positions = positions

    async def start(self) -> None:
        """Find the topic and draw."""
        for topic in self._spec.topics:
            await self._look(topic)
        self._start_tasks([self._holds.run(), self._follow()])
        for source in self._sources.values():
            self._begin(source)

    async def close(self) -> None:
        """As it does, and there is no connection."""
        self._closed = True
        await self._asking.ended((POLL_MS + consumer.LATE_MS) / 1000)
        self._holds.return_all()
        await self._holds.flush(consumer.FLUSH_S)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class SleepyPlaces(SimPlaces):
    """The process stands still for so long between its last look at who owns what, and the next
    question for places.
    """

    sleeps_us = 0
    process: Process

    async def assign(
        self, subscription: str, topic_id: bytes, keep_ms: int, arrivals: Sequence[StoredAt]
    ) -> Placed:
        """Intern, later."""
        if self.sleeps_us:
            for_us, self.sleeps_us = self.sleeps_us, 0
            self.process.freeze()
            self.process.world.after(for_us, self.process.thaw)
            await asyncio.sleep(0)
        return await super().assign(subscription, topic_id, keep_ms, arrivals)


class HeldStore(SimStore):
    """The way to the store of one that may fall asleep."""

    def __init__(self, server: StoreServer, process: Process, timeout_ms: int) -> None:
        super().__init__(server, process, timeout_ms)
        self.places: SleepyPlaces = SleepyPlaces(self._call)
        self.places.process = process


class HeldBroker(SimBroker):
    """One process's connection. `asks`: there are name servers."""

    asks = True

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.capabilities = CAPABILITIES

    def consumer(self, spec: ConsumerSpec) -> Any:
        """The one subscription's consumer, a new one after a failure."""
        made = self._consumers(self, spec)
        self.consumers.append(made)
        return made


class NotAsking(HeldBroker):
    """There are no name servers."""

    asks = False


def _monotonic_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)


@contextmanager
def on_virtual_time() -> Iterator[None]:
    """The adapter's clock is that of the simulated process."""
    with ExitStack() as stack:
        for module in (asking, consumer, holds):
            stack.enter_context(patch.object(module, "monotonic_ms", _monotonic_ms))
        yield
