"""Stuck messages leave the window, wait in the retry topic and come back once (R2-R4, R8, I5)."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from ackd.api.messages import Delivery, ReceiveRequest, SettleItem, SettleResult, SettleVerb, Status
from ackd.config.schema import BrokerSettings, Settings
from ackd.config.subscription import SubscriptionSettings
from ackd.core.ids import TopicPartition
from ackd.engine.ownership.recover import Recovery, Wish
from ackd.engine.retry.own_settings import ADDED_BYTES
from ackd.engine.retry.own_topic import LOOK_EVERY_MS, RetryTopic
from ackd.engine.runtime import Runtime
from ackd.ports import Broker, Headers, Outgoing, Stored
from ackd.store.memory import Data, MemoryStore
from ackd_adapters.kafka import KafkaOptions
from ackd_adapters.kafka import adapter as kafka_adapter
from ackd_adapters.local import adapter as local_adapter
from ackd_adapters.local.config import LocalOptions
from ackd_adapters.pulsar import PulsarOptions
from ackd_adapters.pulsar import adapter as pulsar_adapter
from tests.integration.engine.linked import TWO
from tests.support.kafka import Kafka
from tests.support.pulsar import Pulsar
from tests.support.wait import wait_until_async

_numbers = itertools.count(1)
NAME = "work"
QUICK = {"stuck_after_ms": 500, "stuck_min_age_ms": 500, "commit_interval_ms": 50}


@dataclass
class Place:
    """A broker with a topic, a store, and the sidecars that a test starts on them."""

    stack: AsyncExitStack
    tmp: Path
    kafka: Kafka | None = None
    pulsar: Pulsar | None = None
    topic: str = field(default_factory=lambda: f"send-back-{next(_numbers)}-{time.time_ns()}")
    data: Data = field(default_factory=Data)

    def open(self) -> Broker:
        """A connection."""
        if self.kafka is not None:
            options = KafkaOptions(bootstrap_servers=self.kafka.bootstrap, topics_refresh_ms=500)
            return kafka_adapter.open("b", options)
        if self.pulsar is not None:
            # Offsets without gaps, as on the other brokers.
            pulsar = PulsarOptions(
                service_url=self.pulsar.url, admin_url=self.pulsar.web_url, batch_messages_max=1
            )
            return pulsar_adapter.open("b", pulsar)
        return local_adapter.open("b", LocalOptions(path=self.tmp / "queue", partitions=1))

    async def make_topic(self) -> None:
        """Where no broker makes it by itself."""
        if self.kafka is not None:
            await asyncio.to_thread(self.kafka.create_topic, self.topic, partitions=1, config={})
        if self.pulsar is not None:
            # Not partitioned, as most topics are.
            name = f"public/default/{self.topic}"
            await asyncio.to_thread(self.pulsar.admin.create_topic, name)

    async def start(self, name: str = "one", *, ready: bool = True, **more: object) -> Sidecar:
        """A sidecar, ready unless it will not be."""
        subscription = SubscriptionSettings(
            broker="b",
            topics=(self.topic,),
            group=self.topic,
            **{"start": "earliest", **QUICK, **more},  # type: ignore[arg-type]
        )
        runtime = Runtime(
            Settings(
                identity=name,
                state_dir=self.tmp / name,
                brokers={"b": BrokerSettings(adapter="any")},
                subscriptions={NAME: subscription},
            ),
            store=MemoryStore(self.data),
            brokers={"b": self.open()},
        )
        self.stack.push_async_callback(runtime.stop)
        await runtime.start()

        async def is_ready() -> bool:
            if not ready:
                return bool(runtime._subscriptions[NAME].partitions.owned)
            return all(reason.ok for reason in runtime.readiness())

        await wait_until_async(is_ready, "the sidecar to be ready", timeout_s=60)
        return Sidecar(self, runtime)


@dataclass
class Sidecar:
    """A running one."""

    place: Place
    runtime: Runtime

    async def publish(self, count: int, *, size: int = 10, headers: Headers = ()) -> None:
        """Messages with their number as value."""
        broker = self.runtime._brokers["b"]
        for start in range(0, count, 1_000):
            numbers = range(start, min(start + 1_000, count))
            batch = [
                Outgoing(self.place.topic, None, (b"%d" % n).ljust(size), headers, partition=0)
                for n in numbers
            ]
            assert all(isinstance(each, Stored) for each in await broker.publish(batch))

    async def receive(
        self, most: int = 1_000, wait_ms: int = 30_000, **more: int
    ) -> list[Delivery]:
        """One receive."""
        request = ReceiveRequest(max=most, wait_ms=wait_ms, **more)  # type: ignore[arg-type]
        return (await self.runtime.receive(NAME, request)).messages

    async def collect(self, count: int, **more: int) -> list[Delivery]:
        """So many messages; AssertionError when they do not come."""
        found: list[Delivery] = []
        while len(found) < count:
            got = await self.receive(count - len(found), **more)
            assert got, f"only {len(found)} of {count}"
            found += got
        return found

    async def settle(
        self, messages: Sequence[Delivery], do: SettleVerb, reason: str | None = None, **more: int
    ) -> list[str]:
        """Statuses."""
        items = [SettleItem(each.lease, do, reason=reason, **more) for each in messages]  # type: ignore[arg-type]
        results: list[SettleResult] = await self.runtime.settle(items)
        assert all(r.status is not Status.UNAVAILABLE for r in results)
        return [result.status.value for result in results]

    async def watermark(self) -> int:
        """Of the topic's one partition, -1 while nobody owns it."""
        rows = await self.runtime.lag(NAME)
        return next((row.watermark for row in rows if row.topic == self.place.topic), -1)

    async def until_watermark(self, offset: int, timeout_s: float = 60) -> None:
        """Wait for progress."""

        async def there() -> bool:
            return await self.watermark() >= offset

        await wait_until_async(there, f"the watermark to be {offset}", timeout_s=timeout_s)

    def count(self, family: str, *labels: str) -> float:
        """A counter."""
        value: float = getattr(self.runtime.metrics, family).at(NAME, *labels).value
        return value

    async def until_count(self, most: float, family: str, *labels: str) -> None:
        """Wait for a counter."""

        async def there() -> bool:
            return self.count(family, *labels) >= most

        await wait_until_async(there, f"{most} of {family} {labels}", timeout_s=60)


@asynccontextmanager
async def place_of(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    """One on the broker that is the fixture's parameter."""
    servers = {name: request.getfixturevalue(name) for name in [request.param] if name != "local"}
    folder: Path = request.getfixturevalue("tmp_path")
    async with AsyncExitStack() as stack:
        made = Place(stack, folder, **servers)
        await made.make_topic()
        yield made


@pytest.fixture(params=TWO)
async def place(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    """A place to run in."""
    async with place_of(request) as made:
        yield made


async def test_i5_the_2101_message_is_sent_back_and_the_watermark_moves(place: Place) -> None:
    # Long enough to hand out and ack all the others on a busy machine.
    sidecar = await place.start(stuck_after_ms=6_000, stuck_min_age_ms=6_000)
    await sidecar.publish(2_201, headers=(("own", b"yes"),))
    messages = await sidecar.collect(2_201, lease_ms=300_000)
    stuck = messages[2_101]
    assert stuck.id == f"{place.topic}/0/2101"
    await sidecar.settle([m for m in messages if m is not stuck], SettleVerb.ACK)
    await sidecar.until_watermark(2_201)
    assert sidecar.count("retry_topic_moves", "age") == 1
    # Its lease is as good as ever: it is settled where the message was, and nothing comes back.
    assert await sidecar.settle([stuck], SettleVerb.EXTEND, lease_ms=60_000) == ["extended"]
    assert await sidecar.receive(wait_ms=500) == []
    assert await sidecar.settle([stuck], SettleVerb.ACK) == ["acked"]
    assert await sidecar.settle([stuck], SettleVerb.ACK) == ["already_acked"]
    await sidecar.until_count(1, "claims", "finished")
    assert await sidecar.receive(wait_ms=500) == []
    lag = await sidecar.runtime.lag(NAME)
    assert all(row.leased == row.retrying == row.ready == 0 for row in lag)


async def test_r4_a_forwarded_lease_that_runs_out_comes_again_once_under_its_own_name(
    place: Place,
) -> None:
    sidecar = await place.start()
    await sidecar.publish(10, headers=(("own", b"yes"),))
    messages = await sidecar.collect(10, lease_ms=60_000)
    await sidecar.settle(messages[1:], SettleVerb.ACK)
    await sidecar.until_watermark(10)
    assert await sidecar.settle(messages[:1], SettleVerb.EXTEND, lease_ms=1_000) == ["extended"]
    (again,) = await sidecar.receive(wait_ms=30_000)
    assert (again.id, again.attempt) == (f"{place.topic}/0/0", 2)
    assert again.record.headers == (("own", b"yes"),)
    assert again.record.value == messages[0].record.value
    assert again.record.timestamp_ms == messages[0].record.timestamp_ms
    assert again.first_seen_ms == messages[0].first_seen_ms
    assert await sidecar.settle(messages[:1], SettleVerb.ACK) == ["lost"]
    assert await sidecar.settle([again], SettleVerb.ACK) == ["acked"]
    assert await sidecar.receive(wait_ms=1_000) == []


@pytest.mark.alone
async def test_a_long_retry_leaves_at_once_waits_and_goes_on_counting(place: Place) -> None:
    # A delay above `stuck_after` leaves at once; before it, nothing leaves by its age.
    sidecar = await place.start(attempts_max=3, stuck_after_ms=5_000, stuck_min_age_ms=5_000)
    await sidecar.publish(3)
    messages = await sidecar.collect(3)
    due_s = time.monotonic() + 5.5
    assert await sidecar.settle(messages[:1], SettleVerb.RETRY, delay_ms=5_500) == ["retrying"]
    await sidecar.settle(messages[1:], SettleVerb.ACK)
    await sidecar.until_watermark(3)
    assert sidecar.count("retry_topic_moves", "delay") == 1
    (second,) = await sidecar.receive(wait_ms=30_000)
    assert time.monotonic() >= due_s
    assert second.attempt == 2
    assert await sidecar.settle([second], SettleVerb.RETRY, delay_ms=100) == ["retrying"]
    (third,) = await sidecar.receive()
    assert (third.id, third.attempt) == (messages[0].id, 3)
    # The budget: 3 deliveries. A further retry makes a dead letter under the name of its origin.
    assert await sidecar.settle([third], SettleVerb.RETRY, delay_ms=100) == ["dead"]
    await sidecar.until_count(1, "copies", "dead-letter-topic", "stored")
    assert await sidecar.receive(wait_ms=500) == []


async def test_r4_dead_while_forwarded_goes_to_the_dead_letter_topic(place: Place) -> None:
    sidecar = await place.start()
    await sidecar.publish(2)
    messages = await sidecar.collect(2, lease_ms=60_000)
    await sidecar.settle(messages[1:], SettleVerb.ACK)
    await sidecar.until_watermark(2)
    held = messages[0]

    async def told() -> bool:
        """People see the forwarded lease as it is."""
        rows = await sidecar.runtime.in_flight(NAME, 0, 10)
        found = [
            (r.state, r.id, r.attempt, r.since_ms, r.deadline_ms, r.published_ms) for r in rows
        ]
        times = held.first_seen_ms, held.deadline_ms, held.record.timestamp_ms
        return found == [("waiting_for_lease", held.id, 1, *times)]

    await wait_until_async(told, "the copy to have asked for its message")
    items = [SettleItem(held.lease, SettleVerb.DEAD, reason="no such order")]
    (result,) = await sidecar.runtime.settle(items)
    assert result.status is Status.DEAD
    await sidecar.until_count(1, "copies", "dead-letter-topic", "stored")
    assert await sidecar.receive(wait_ms=500) == []


async def test_r15_a_lost_lease_tells_where_its_message_is_after_it_moved(place: Place) -> None:
    """Not "finished" while somebody else works on it, or when it is dead: any sidecar knows."""
    sidecar = await place.start()
    await sidecar.publish(3)
    messages = await sidecar.collect(3, lease_ms=2_000)
    await sidecar.settle(messages[2:], SettleVerb.ACK)
    await sidecar.until_watermark(3)
    first = {each.id: each for each in messages[:2]}
    again = await sidecar.collect(2, lease_ms=60_000)
    other = await place.start("two")

    async def now() -> list[tuple[Status, str | None, int | None]]:
        items = [SettleItem(first[each.id].lease, SettleVerb.ACK) for each in again]
        found = [await each.runtime.settle(items) for each in (sidecar, other)]
        told = [
            [(each.status, each.now_state, each.now_attempt) for each in part] for part in found
        ]
        assert told[0] == told[1]
        return told[0]

    assert await now() == [(Status.LOST, "leased", 2)] * 2
    assert await other.settle(again[:1], SettleVerb.DEAD) == ["dead"]
    assert await other.settle(again[1:], SettleVerb.RETRY, delay_ms=60_000) == ["retrying"]
    assert [state for _, state, _ in await now()] == ["dead", "retrying"]

    async def stored() -> bool:
        counts = [each.count("copies", "dead-letter-topic", "stored") for each in (sidecar, other)]
        return sum(counts) == 1

    await wait_until_async(stored, "the dead letter to be stored")
    assert [state for _, state, _ in await now()] == ["dead", "retrying"]
    for each in (sidecar, other):
        for lease, state in ((again[0].lease, "dead"), (first[again[0].id].lease, "dead")):
            assert (await each.runtime.lease(lease)).state == state
        assert (await each.runtime.lease(first[again[1].id].lease)).state == "lost"


async def test_a_new_owner_knows_what_was_sent_back(place: Place) -> None:
    one = await place.start()
    await one.publish(4)
    messages = await one.collect(4, lease_ms=60_000)
    await one.settle(messages[2:], SettleVerb.ACK)
    await one.until_watermark(4)
    await one.runtime.stop()
    two = await place.start("two")
    assert await two.settle(messages[:1], SettleVerb.EXTEND, lease_ms=1_500) == ["extended"]
    assert await two.settle(messages[1:2], SettleVerb.ACK) == ["acked"]
    (again,) = await two.receive(wait_ms=30_000)
    assert (again.id, again.attempt) == (messages[0].id, 2)
    await two.settle([again], SettleVerb.ACK)
    assert await two.receive(wait_ms=1_000) == []
    assert await two.watermark() == 4


async def test_i5_a_partition_that_was_opened_while_the_retry_topic_was_made(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its opening began before and ended after: what is stuck there is sent back all the same."""
    begun, made = asyncio.Event(), asyncio.Event()
    take, make = Recovery.take, RetryTopic._prepare

    async def slow_take(self: Recovery, wish: Wish, tp: TopicPartition) -> bool:
        begun.set()
        await made.wait()
        return await take(self, wish, tp)

    async def slow_make(self: RetryTopic) -> bool:
        await begun.wait()
        done = await make(self)
        made.set()
        return done

    monkeypatch.setattr(Recovery, "take", slow_take)
    monkeypatch.setattr(RetryTopic, "_prepare", slow_make)
    sidecar = await place.start()
    await sidecar.publish(2)
    messages = await sidecar.collect(2, lease_ms=120_000)
    await sidecar.settle(messages[1:], SettleVerb.ACK)
    await sidecar.until_watermark(2, timeout_s=LOOK_EVERY_MS / 2_000)
    assert sidecar.count("retry_topic_moves", "age") == 1
    assert await sidecar.settle(messages[:1], SettleVerb.ACK) == ["acked"]


@pytest.mark.parametrize("harm", ["", "lost"])
async def test_i8_bodies_of_waiting_messages_lie_on_the_disk(place: Place, harm: str) -> None:
    sidecar = await place.start(stuck_after_ms=60_000)
    await sidecar.publish(50, size=1_000)
    messages = await sidecar.collect(50)
    due = time.monotonic() + 8.0
    assert set(await sidecar.settle(messages, SettleVerb.RETRY, delay_ms=8_000)) == {"retrying"}
    subscription = sidecar.runtime._subscriptions[NAME]

    async def spilled() -> bool:
        return subscription.bodies.taken > 50 * 1_000

    await wait_until_async(spilled, "the bodies to be on the disk", timeout_s=60)
    assert subscription.partitions.held()[1] < 50 * 200
    files = list((place.tmp / "one" / "spill").rglob("*.bodies"))
    assert files
    for file in files if harm else ():
        os.truncate(file, 0)
    again = await sidecar.collect(50, wait_ms=30_000)
    assert time.monotonic() >= due
    assert {m.id: m.record.value for m in again} == {m.id: m.record.value for m in messages}
    assert set(await sidecar.settle(again, SettleVerb.ACK)) == {"acked"}
    await sidecar.until_watermark(50)


@pytest.mark.kafka
async def test_r25_a_retry_topic_that_can_not_be_made_holds_nothing_else_back(
    kafka: Kafka, tmp_path: Path
) -> None:
    """Kafka refuses three replicas on one broker; an operator makes the topic later."""
    async with AsyncExitStack() as stack:
        place = Place(stack, tmp_path, kafka)
        await asyncio.to_thread(kafka.create_topic, place.topic, partitions=1, config={})
        sidecar = await place.start(ready=False, retry_topic_replication=3)
        await sidecar.publish(3)
        messages = await sidecar.collect(3, lease_ms=60_000, wait_ms=30_000)
        assert await sidecar.settle(messages[1:], SettleVerb.ACK) == ["acked", "acked"]
        reason = next(r for r in sidecar.runtime.readiness() if r.name.startswith("subscription"))
        assert not reason.ok
        assert "retry-topic: stuck messages can't move to the retry topic" in reason.detail
        held = (await sidecar.runtime.explain(NAME)).partitions[0]
        assert held.released_by.endswith(
            "it does not move to the retry topic: there is no retry topic yet"
        )
        own = sidecar.runtime._subscriptions[NAME].retry_topic.topic.name
        await asyncio.to_thread(kafka.create_topic, own, partitions=1, config={})
        await sidecar.until_watermark(3, timeout_s=60)
        assert await sidecar.settle(messages[:1], SettleVerb.ACK) == ["acked"]

        async def is_ready() -> bool:  # once the topic's own partition is opened
            return all(each.ok for each in sidecar.runtime.readiness())

        await wait_until_async(is_ready, "the sidecar to be ready")


def _limit(kafka: Kafka, topic: str, limit_bytes: int) -> None:
    """Change what a topic takes."""
    entry = ConfigEntry(
        "max.message.bytes",
        str(limit_bytes),
        incremental_operation=AlterConfigOpType.SET,
    )
    topics = ConfigResource.Type.TOPIC
    named = ConfigResource(topics, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for done in admin.incremental_alter_configs([named]).values():
        done.result(60)


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_i1_a_copy_that_is_refused_is_tried_again_from_five_seconds_on(
    kafka: Kafka, tmp_path: Path
) -> None:
    """RocketMQ's client tries a message whose send back failed again after 5 s, and so do we."""
    async with AsyncExitStack() as stack:
        place = Place(stack, tmp_path, kafka)
        await asyncio.to_thread(kafka.create_topic, place.topic, partitions=1, config={})
        sidecar = await place.start()
        own = sidecar.runtime._subscriptions[NAME].retry_topic.topic.name
        await sidecar.publish(1, size=4_000 + ADDED_BYTES)
        for each in (place.topic, own):  # ackd raises the limit of its own topic to the other's
            await asyncio.to_thread(_limit, kafka, each, 2_000)
        (message,) = await sidecar.collect(1, lease_ms=60_000)
        await sidecar.until_count(1, "copies", "retry-topic", "failed")
        failed_s = time.monotonic()
        (row,) = await sidecar.runtime.in_flight(NAME, 0, 10)
        assert row.state == "moving"
        assert "large" in (row.error or "").lower()
        assert await sidecar.watermark() == 0
        await asyncio.to_thread(_limit, kafka, own, 1_000_000)
        await sidecar.until_watermark(1, timeout_s=60)
        assert time.monotonic() - failed_s > 2  # the failure was noticed a while later
        assert await sidecar.settle([message], SettleVerb.ACK) == ["acked"]
