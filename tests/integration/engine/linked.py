"""Sidecars in this process with links over real sockets: one Valkey, one topic of one partition or
some.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest

from ackd.api.messages import Delivery, Received, ReceiveRequest, SettleItem, SettleVerb
from ackd.config.peers import PeerSettings
from ackd.config.schema import BrokerSettings, Settings, StoreSettings
from ackd.config.subscription import SubscriptionSettings
from ackd.config.traces import TraceSettings
from ackd.config.units import MIB
from ackd.core.ids import TopicPartition
from ackd.engine.base.tasks import Vitals
from ackd.engine.runtime import Runtime
from ackd.peer.network import TcpPeers
from ackd.peer.peer_limits import PeerLimits
from ackd.ports import Broker, Headers, Outgoing, Stored
from ackd.store.build import open_store
from ackd.telemetry.metrics import Metrics
from ackd_adapters.kafka import KafkaOptions
from ackd_adapters.kafka import adapter as kafka_adapter
from ackd_adapters.local import adapter as local_adapter
from ackd_adapters.local.config import LocalOptions
from ackd_adapters.pulsar import PulsarOptions
from ackd_adapters.pulsar import adapter as pulsar_adapter
from ackd_adapters.rocketmq import RocketMQOptions
from ackd_adapters.rocketmq import adapter as rocketmq_adapter
from tests.support.kafka import Kafka
from tests.support.pulsar import Pulsar
from tests.support.redis import RedisServer
from tests.support.rocketmq import RocketMQ
from tests.support.wait import wait_until_async

_numbers = itertools.count(1)
NAME = "work"
HOLD_MS = 4_000
T = TypeVar("T")
KAFKA = pytest.param("kafka", marks=pytest.mark.kafka)
PULSAR = pytest.param("pulsar", marks=[pytest.mark.pulsar, pytest.mark.slow])
ROCKETMQ = pytest.param("rocketmq", marks=[pytest.mark.rocketmq, pytest.mark.slow])
TWO = ["local", KAFKA]
WITH_PARTITIONS = [*TWO, PULSAR]
"""A sidecar owns some of a topic's partitions there."""
ALL = [*WITH_PARTITIONS, ROCKETMQ]
"""What a fixture that makes a `ring_of` takes as its parameters."""


@dataclass
class Ring:
    """What the sidecars of one test have in common. Without a broker's server: a local queue, whose
    members may be silent for `session_ms`.

    On RocketMQ one sidecar owns all that a topic has on a broker: a question to a proxy brings
    messages of all its queues there. There is no retry topic. Only Pulsar has topics that are not
    `partitioned`.
    """

    stack: AsyncExitStack
    folder: Path
    store_url: str
    kafka: Kafka | None = None
    topic: str = field(default_factory=lambda: f"linked-{next(_numbers)}-{time.time_ns()}")
    members: list[Linked] = field(default_factory=list)
    limits: PeerLimits | None = None
    pulsar: Pulsar | None = None
    partitions: int = 1
    partitioned: bool = True
    session_ms: int = 3_000
    rocketmq: RocketMQ | None = None
    traces: TraceSettings = field(default_factory=TraceSettings)
    fifo: bool = False
    """Of RocketMQ: whether topic and group are those that keep an order."""
    begun: int = 0
    """How many have been started, those that left since included."""

    @property
    def partition(self) -> TopicPartition:
        """The first one of the topic, and the only one by default."""
        return TopicPartition(self.topic, 0)

    def broker(self) -> Broker:
        """A connection."""
        if self.kafka is not None:
            kafka = KafkaOptions(bootstrap_servers=self.kafka.bootstrap, topics_refresh_ms=500)
            return kafka_adapter.open("b", kafka)
        if self.pulsar is not None:
            pulsar = PulsarOptions(service_url=self.pulsar.url, admin_url=self.pulsar.web_url)
            return pulsar_adapter.open("b", pulsar)
        if self.rocketmq is not None:
            rocketmq = RocketMQOptions(
                endpoints=self.rocketmq.endpoints, invisible_duration_ms=HOLD_MS, poll_ms=1_000
            )
            return rocketmq_adapter.open("b", rocketmq)
        local = LocalOptions(
            path=self.folder / "queue",
            partitions=self.partitions,
            value_bytes_max=256 * MIB,
            session_ms=self.session_ms,
        )
        return local_adapter.open("b", local)

    async def make_topic(self) -> None:
        """Where no broker makes it by itself, or with another number of partitions."""
        if self.kafka is not None:
            count = self.partitions
            await asyncio.to_thread(
                self.kafka.create_topic, self.topic, partitions=count, config={}
            )
        if self.pulsar is not None:
            name = f"public/default/{self.topic}"
            count = self.partitions if self.partitioned else 0
            await asyncio.to_thread(self.pulsar.admin.create_topic, name, count)
        if self.rocketmq is not None:
            admin = self.rocketmq.admin
            kind = "FIFO" if self.fifo else "NORMAL"
            await asyncio.to_thread(admin.topic, self.topic, self.partitions, kind)
            await asyncio.to_thread(lambda: admin.group(self.topic, orderly=self.fifo))

    async def start(
        self, peers: PeerSettings | None = None, name: str = "", **more: object
    ) -> Linked:
        """One more, ready. What else is named is a setting; all others are the defaults."""
        self.begun += 1  # a name of one that left is nobody's again
        name = name or f"sidecar-{self.begun}"
        # RocketMQ decides by itself where a group starts.
        start: dict[str, object] = {} if self.rocketmq is not None else {"start": "earliest"}
        settings = Settings(
            identity=name,
            state_dir=self.folder / name,
            store=StoreSettings(url=self.store_url, prefix=self.topic),
            brokers={"b": BrokerSettings(adapter="any")},
            traces=self.traces,
            subscriptions={
                NAME: SubscriptionSettings(
                    broker="b",
                    topics=(self.topic,),
                    group=self.topic,
                    **{**start, **more},  # type: ignore[arg-type]
                )
            },
        )
        metrics, vitals = Metrics(), Vitals()
        peers = peers or PeerSettings(on=True)
        runtime = Runtime(
            settings,
            store=open_store(settings.store, settings.state_dir),
            brokers={"b": self.broker()},
            metrics=metrics,
            vitals=vitals,
            peers=TcpPeers(name, peers, metrics, vitals, limits=self.limits) if peers.on else None,
        )
        self.stack.push_async_callback(runtime.stop)
        await runtime.start()
        linked = Linked(self, name, runtime)
        self.members.append(linked)
        await linked.ready()
        return linked

    async def started(self, count: int, **more: object) -> tuple[Linked, list[Linked]]:
        """So many; the one that owns the topic's partition, and the others."""
        for _ in range(count):
            await self.start(**more)  # type: ignore[arg-type]
        return await self.sorted()

    async def sorted(self) -> tuple[Linked, list[Linked]]:
        """The one that owns the topic's partition, and the others, which have heard of that.

        The group has settled by then: before each has its share of the topic and of the retry
        topic, the partition may still move.
        """

        async def known() -> tuple[Linked, list[Linked]] | None:
            if not self.shared():
                return None
            owners = [each for each in self.members if self.partition in each.owned]
            others = [each for each in self.members if self.partition not in each.owned]
            if len(owners) != 1 or not all(each.sees(owners[0].name) for each in others):
                return None
            return owners[0], others

        found = await wait_until_async(known, "one owner that all know of")
        assert found is not None
        return found

    def shared(self) -> bool:
        """Whether each has its share of the topic, and those who have one all of the retry topic.

        So none has the retry topic only.
        """
        known = self.members[0].runtime._subscriptions[NAME].topics.known
        if self.rocketmq is not None:
            return sorted(each.main for each in self.members)[-2:] in (
                [0, self.partitions],
                [self.partitions],
            )
        if len(known) < 2 or self.topic not in known:
            return False
        least, rest = divmod(known[self.topic].partitions, len(self.members))
        owned = [at for each in self.members for at in each.owned]
        return (
            len(owned) == len(set(owned)) == sum(each.partitions for each in known.values())
            and all(least <= each.main <= least + bool(rest) for each in self.members)
            and all(each.main or not each.owned for each in self.members)
        )

    async def until_shared(self) -> None:
        """Wait for that."""

        async def so() -> bool:
            return self.shared()

        await wait_until_async(so, "the partitions to be shared", timeout_s=60)


@asynccontextmanager
async def ring_of(
    request: pytest.FixtureRequest, *, make: bool = True, **more: Any
) -> AsyncIterator[Ring]:
    """A ring on the broker that is the fixture's parameter, or on a local queue, for a fixture.
    The run's servers; a topic, unless the test makes it.
    """
    broker = getattr(request, "param", "local")
    servers = {} if broker == "local" else {broker: request.getfixturevalue(broker)}
    store: RedisServer = request.getfixturevalue("valkey")
    folder: Path = request.getfixturevalue("tmp_path")
    async with AsyncExitStack() as stack:
        ring = Ring(stack, folder, store.url, **servers, **more)
        if make:
            await ring.make_topic()
        yield ring


@dataclass
class Linked:
    """A running one, and what a test does with it."""

    ring: Ring
    name: str
    runtime: Runtime

    @property
    def owned(self) -> set[TopicPartition]:
        """Partitions from which it grants leases."""
        return set(self.runtime._subscriptions[NAME].partitions.owned)

    @property
    def main(self) -> int:
        """How many of them are of the topic."""
        return sum(at.topic == self.ring.topic for at in self.owned)

    def sees(self, name: str) -> bool:
        """Whether a heartbeat has told it that this sidecar owns something."""
        view = self.runtime._subscriptions[NAME].membership.view
        return any(member.name == name and member.owned for member in view.alive)

    async def ready(self) -> None:
        """Wait until it says so."""

        async def ok() -> bool:
            return all(reason.ok for reason in self.runtime.readiness())

        await wait_until_async(ok, f"{self.name} to be ready")

    async def publish(
        self,
        count: int,
        size: int = 8,
        key: bytes | None = None,
        first: int = 0,
        headers: Headers = (),
    ) -> None:
        """Messages with their number as value, in all partitions in turn."""
        count_of, broker = self.ring.partitions, self.runtime._brokers["b"]
        explicit = broker.capabilities.explicit_partition
        batch = [
            Outgoing(
                self.ring.topic,
                key,
                (b"%d" % n).ljust(size),
                headers,
                partition=n % count_of if explicit else None,
            )
            for n in range(first, first + count)
        ]
        stored = await broker.publish(batch)
        assert all(isinstance(each, Stored) for each in stored)

    async def receive(self, most: int = 1, wait_ms: int = 30_000, **more: object) -> Received:
        """One receive."""
        request = ReceiveRequest(max=most, wait_ms=wait_ms, **more)  # type: ignore[arg-type]
        return await self.runtime.receive(NAME, request)

    async def one(self, **more: object) -> Delivery:
        """The next message."""
        [message] = (await self.receive(**more)).messages  # type: ignore[arg-type]
        return message

    async def collect(self, count: int, most: int = 100, **more: object) -> list[Delivery]:
        """So many messages, in as many receives as it takes."""
        found: list[Delivery] = []
        while len(found) < count:
            got = (await self.receive(min(count - len(found), most), **more)).messages  # type: ignore[arg-type]
            assert got, f"only {len(found)} of {count}"
            found += got
        return found

    async def settle(
        self, messages: Sequence[Delivery], do: SettleVerb, **more: object
    ) -> list[str]:
        """Statuses."""
        items = [SettleItem(each.lease, do, **more) for each in messages]  # type: ignore[arg-type]
        return [each.status.value for each in await self.runtime.settle(items)]

    async def nothing(self, wait_ms: int = 300) -> None:
        """No message comes."""
        assert (await self.receive(100, wait_ms=wait_ms)).messages == []

    async def watermark(self) -> int:
        """Of the topic's partition; -1 if it does not know."""
        rows = await self.runtime.lag(NAME)
        return next((row.watermark for row in rows if row.topic == self.ring.topic), -1)

    async def until_watermark(self, offset: int) -> None:
        """Wait for the progress of the partition that it owns."""

        async def there() -> bool:
            return await self.watermark() >= offset

        await wait_until_async(there, f"the watermark to be {offset}")

    def waiting(self) -> int:
        """Count the receives that wait here, those of other sidecars among them."""
        return self.runtime._subscriptions[NAME].dispatcher._line.waiting()


def begin(work: Coroutine[object, object, T]) -> asyncio.Task[T]:
    """Run it beside the test, which holds it and awaits it."""
    return asyncio.create_task(work)  # noqa: TID251  held by the caller


def numbers(messages: Sequence[Delivery]) -> list[int]:
    """Their values."""
    return [int(each.record.value or b"") for each in messages]
