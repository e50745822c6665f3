"""The simulated broker as the engine sees it (`ackd.ports.Broker` and `Consumer`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ackd.core.ids import TopicPartition
from ackd.errors import BrokerError
from ackd.ports import (
    Assigned,
    Capabilities,
    Committed,
    Condition,
    ConsumerEvent,
    ConsumerSpec,
    Failure,
    Lost,
    NotStored,
    Outgoing,
    PublishResult,
    Revoked,
    StartPolicy,
    Stored,
    TopicInfo,
    TopicReplaced,
)
from ackd.ports.own_topics import DEAD_PREFIX, RETRY_PREFIX
from tests.simulation.fetch import Fetcher
from tests.simulation.group import Group
from tests.simulation.log import Cluster, Topic
from tests.simulation.process import Process
from tests.simulation.world import MS

T = TypeVar("T")
TIMEOUT_US = 1_000 * MS
REJOINS = 0.5
"""Of the revocations so many are taken back at once."""


@dataclass(slots=True)
class BrokerFaults:
    """How often, while `active`, something happens to a call. Latency in us."""

    active: bool = False
    request_lost: float = 0.0
    request_late: float = 0.0
    answer_lost: float = 0.0
    latency_us: tuple[int, int] = (300, 3_000)
    late_us: tuple[int, int] = (1_000_000, 20_000_000)


class SimBroker:
    """One process's connection to the cluster."""

    def __init__(
        self,
        cluster: Cluster,
        group: Group,
        process: Process,
        faults: BrokerFaults,
        consumers: type[SimConsumer],
    ) -> None:
        self.cluster = cluster
        self._consumers = consumers
        self.consumers: list[SimConsumer] = []
        self.group = group
        self.process = process
        self.faults = faults
        self.random = cluster.world.random(f"broker/{process.name}/{process.boot}")
        self.capabilities = Capabilities(
            name="simulated",
            order_within_partition=True,
            explicit_partition=True,
            delayed_publish=False,
            delay_max_ms=0,
            start_policies=frozenset(StartPolicy),
            seek_by_time=True,
            commit_metadata_chars=self.random.choice([120, 400, 4095]),
            value_bytes_max=1 << 20,
        )

    async def call(self, work: Callable[[], T]) -> T:
        """Do something at the broker. Raises BrokerError; then it may or may not have happened."""
        if self.process.loop.dead:
            raise BrokerError("dead")
        world, random, faults = self.cluster.world, self.random, self.faults
        future: asyncio.Future[T] = self.process.loop.create_future()
        latency_us = random.randint(*faults.latency_us)
        fate = self._fate()
        delay_us = random.randint(*faults.late_us) if fate == "late" else latency_us

        def arrives() -> None:
            if not self.cluster.up or fate == "lost":
                return
            error: Exception | None = None
            value: object = None
            try:
                value = work()
            except BrokerError as raised:
                error = raised
            if fate != "unanswered":
                world.after(latency_us, self.process.resolve, future, value, error)  # type: ignore[arg-type]

        world.after(delay_us, arrives)
        try:
            async with asyncio.timeout(TIMEOUT_US / 1_000_000):
                return await future
        except TimeoutError:
            raise BrokerError("no answer in time") from None

    def _fate(self) -> str:
        faults = self.faults
        if not faults.active:
            return ""
        chance = self.random.random()
        for rate, fate in (
            (faults.request_lost, "lost"),
            (faults.request_late, "late"),
            (faults.answer_lost, "unanswered"),
        ):
            if chance < rate:
                return fate
            chance -= rate
        return ""

    # --- ackd.ports.Broker

    async def start(self) -> None:
        """Nothing to connect; raises BrokerError while the cluster is away."""
        await self.call(lambda: None)

    async def cluster_id(self) -> str:
        """The cluster's name."""
        return await self.call(lambda: self.cluster.name)

    def consumer(self, spec: ConsumerSpec) -> SimConsumer:
        """The one subscription's consumer, a new one after a failure."""
        self.consumers.append(self._consumers(self, spec))
        return self.consumers[-1]

    async def publish(self, messages: Sequence[Outgoing]) -> list[PublishResult]:
        """One after the other; a lost answer is `UNKNOWN` and the message may land later."""
        if self.cluster.at_once:
            return await asyncio.gather(*map(self._publish, messages))
        return [await self._publish(message) for message in messages]

    async def _publish(self, message: Outgoing) -> PublishResult:
        def work() -> int:
            return self.cluster.publish(
                message.topic,
                message.partition or 0,
                message.value or b"",
                key=message.key,
                headers=message.headers,
            )

        if self.faults.active and self.random.random() < self.faults.request_lost:
            return NotStored(Failure.NOT_STORED, "leader", "not the leader")
        try:
            offset = await self.call(work)
        except BrokerError as error:
            return NotStored(Failure.UNKNOWN, "timeout", error.detail)
        return Stored(message.topic, message.partition or 0, offset)

    async def partitions(self, topic: str) -> int | None:
        """How many there are."""
        found = self.cluster.topics.get(topic)
        return None if found is None else len(found.logs)

    async def ensure_topic(self, topic: str, settings: Mapping[str, str]) -> None:
        """Made unless it is there."""

        def work() -> None:
            if topic not in self.cluster.topics:
                self.cluster.make(topic, int(settings.get("partitions", "1")))

        await self.call(work)

    def retry_topic(self, group: str) -> str:
        """As on a real broker."""
        return f"{RETRY_PREFIX}{group}"

    def dead_letter_topic(self, group: str) -> str:
        """Any group's name can stand in a topic's here."""
        return f"{DEAD_PREFIX}{group}"

    def conditions(self) -> list[Condition]:
        """That it is away, where clients notice it."""
        away = self.cluster.at_once and not self.cluster.up
        return [Condition("broker-away", "no answer", away=True)] if away else []

    async def close(self) -> None:
        """Nothing to free."""


class SimConsumer:
    """A member of the group. Events come in one stream; sessions as the port says."""

    def __init__(self, broker: SimBroker, spec: ConsumerSpec) -> None:
        self.broker = broker
        self.process = broker.process
        self.spec = spec
        self._world = broker.cluster.world
        self._events: list[ConsumerEvent] = []
        self._wake = asyncio.Event()
        self._member = ""
        self._closed = False
        self._topics = spec.topics
        self._rejoins = self._world.random("rejoins")
        self.fetcher = Fetcher(broker, self._put)

    def _put(self, event: ConsumerEvent) -> None:
        """Something happened; called in the loop of the process."""
        if not self._closed:
            self._events.append(event)
            self._wake.set()

    def _post(self, event: ConsumerEvent) -> None:
        """The broker says something; it arrives a little later."""
        latency_us = self.broker.random.randint(*self.broker.faults.latency_us)
        self._world.after(latency_us, self.process.post, self._put, event)

    def fail(self) -> None:
        """The client can't go on."""
        self._post(Condition("fatal", "the client can't go on", fatal=True))

    # --- the group (Listener)

    def assigned(self, partitions: list[TopicPartition]) -> None:
        """New partitions."""
        self._post(Assigned(tuple(partitions)))

    def revoked(self, partitions: list[TopicPartition], done: Callable[[], None]) -> None:
        """Taken in good order. The next owner may come sooner than this client says."""
        rejoins = self._rejoins.random() < REJOINS
        self._post(Revoked(tuple(partitions), _Done(done), rejoins=rejoins))

    def expelled(self, partitions: list[TopicPartition]) -> None:
        """The session ended; the client joins anew when it runs again."""
        self._post(Lost(tuple(partitions)))
        self.process.post(self._join)

    def replaced(self, topic: Topic) -> None:
        """All sessions of the topic ended; the client finds out a while later."""
        self.fetcher.blind(topic.name)
        delay_us = self.broker.random.randint(1, 800) * MS
        self._world.after(delay_us, self.process.post, self._found, topic)

    def _found(self, topic: Topic) -> None:
        self.fetcher.see(topic.name)
        self._put(TopicReplaced(topic.name, topic.topic_id))

    def _join(self) -> None:
        if not self._closed:
            self._member = self.broker.group.join(self)

    # --- ackd.ports.Consumer

    async def start(self) -> None:
        """Join."""
        await self.broker.call(lambda: None)
        if self.spec.joins:
            self.broker.cluster.on_replaced.append(self.replaced)
            self._join()

    async def also(self, topic: str) -> None:
        """The group reads one more topic."""
        await self.broker.call(lambda: self.broker.group.read(topic))
        if topic not in self._topics:
            self._topics = (*self._topics, topic)

    async def events(self) -> list[ConsumerEvent]:
        """Wait for events."""
        await self._wake.wait()
        self._wake.clear()
        events, self._events = self._events, []
        return events

    def fetch_from(self, partition: TopicPartition, offset: int) -> int:
        """Start fetching."""
        return self.fetcher.start(partition, offset)

    def stop_fetch(self, partition: TopicPartition) -> None:
        """Stop fetching."""
        self.fetcher.stop(partition)
        self._events = [e for e in self._events if getattr(e, "partition", None) != partition]

    def pause(self, partition: TopicPartition) -> None:
        """Hold back."""
        self.fetcher.pause(partition)

    def resume(self, partition: TopicPartition) -> None:
        """Go on."""
        self.fetcher.resume(partition)

    async def topics(self) -> list[TopicInfo]:
        """The topics as the broker knows them now."""
        cluster = self.broker.cluster

        def work() -> list[TopicInfo]:
            topics = [cluster.topics[name] for name in self._topics if name in cluster.topics]
            return [TopicInfo(each.name, each.topic_id, len(each.logs)) for each in topics]

        return await self.broker.call(work)

    async def committed(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, Committed]:
        """The group's positions."""
        offsets = self.broker.group.offsets
        none = Committed(-1, "")
        return await self.broker.call(lambda: {tp: offsets.get(tp, none) for tp in partitions})

    async def commit(self, positions: Mapping[TopicPartition, Committed]) -> None:
        """Commit as a member."""
        ticket, sent = self.broker.group.ticket(self._member), dict(positions)

        def work() -> None:
            if not self.broker.group.commit(ticket, self.process, sent):
                raise BrokerError("not a member")

        await self.broker.call(work)

    async def log_range(self, partition: TopicPartition) -> tuple[int, int]:
        """First and end offset."""
        log = self.broker.cluster.log
        return await self.broker.call(lambda: (log(partition).start, log(partition).end))

    async def offset_at(self, partition: TopicPartition, timestamp_ms: int) -> int:
        """First record that is not older."""

        def work() -> int:
            log = self.broker.cluster.log(partition)
            found = [o for o, r in log.records.items() if r.timestamp_ms >= timestamp_ms]
            return min(found, default=log.end)

        return await self.broker.call(work)

    async def close(self) -> None:
        """Leave the group."""
        if self.process.loop.dead:
            return
        self._closed = True
        self.fetcher.close()
        self.broker.group.leave(self._member)


class _Done:
    """What `Revoked` calls back."""

    def __init__(self, done: Callable[[], None]) -> None:
        self._done = done

    def set(self) -> None:
        """Handed over."""
        self._done()
