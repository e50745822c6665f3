"""Broadcast: each sidecar is a group of its own, with all partitions and nobody's progress."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from ackd.config.subscription import SubscriptionSettings
from ackd.core.dedup_window import Ask, DedupEntry
from ackd.core.ids import TopicPartition
from ackd.engine.ownership.broadcast import (
    CONDITION,
    REFRESH_MS,
    RETRY_MS,
    BroadcastConsumer,
    ScopedStore,
    apart,
    open_consumer,
    scope,
)
from ackd.errors import BrokerError
from ackd.ports import (
    Assigned,
    Committed,
    Condition,
    Consumer,
    ConsumerEvent,
    ConsumerSpec,
    TopicInfo,
    TopicReplaced,
)
from tests.unit.engine.world import ME, NAME, TOPIC, TOPIC_ID, TestBroker, TestConsumer, World

SETTINGS = SubscriptionSettings(topics=(TOPIC,), mode="broadcast")
EVENT = Condition("broker", "an event of the broker")


class Inner(TestConsumer):
    """Its events come when a test puts them."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: asyncio.Queue[list[ConsumerEvent]] = asyncio.Queue()
        self.looks = 0

    async def events(self) -> list[ConsumerEvent]:
        return await self.queue.get()

    async def topics(self) -> list[TopicInfo]:
        self.looks += 1
        return await super().topics()


@pytest.fixture
def inner() -> Inner:
    return Inner()


@pytest.fixture
async def consumer(world: World, inner: Inner) -> BroadcastConsumer:
    consumer = BroadcastConsumer(inner, world.clock)
    await consumer.start()
    return consumer


def partitions(*numbers: int, topic: str = TOPIC) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic, number) for number in numbers)


async def nothing_comes(consumer: BroadcastConsumer, for_s: float) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(for_s):
            await consumer.events()


# --- which partitions


async def test_all_partitions_are_assigned_at_once(consumer: BroadcastConsumer) -> None:
    assert await consumer.events() == [Assigned(partitions(0, 1, 2, 3))]
    await nothing_comes(consumer, 5 * REFRESH_MS / 1000)


async def test_without_any_topic_the_assignment_is_empty(
    consumer: BroadcastConsumer, inner: Inner
) -> None:
    """Who waits for the first assignment must not wait for ever."""
    inner.known = []
    assert await consumer.events() == [Assigned(())]
    await nothing_comes(consumer, 5)


async def test_what_is_new_is_assigned_and_nothing_twice(
    consumer: BroadcastConsumer, inner: Inner
) -> None:
    await consumer.events()
    inner.known = [TopicInfo(TOPIC, TOPIC_ID, 6), TopicInfo("more", bytes(16), 1)]
    new = (*partitions(4, 5), *partitions(0, topic="more"))
    assert await consumer.events() == [Assigned(new)]


async def test_one_more_topic_is_looked_for_at_once(
    consumer: BroadcastConsumer, inner: Inner, world: World
) -> None:
    await consumer.events()
    began_ms = world.clock.monotonic_ms()
    inner.known = [*inner.known, TopicInfo("more", bytes(16), 1)]
    await consumer.also("more")
    assert await consumer.events() == [Assigned(partitions(0, topic="more"))]
    assert world.clock.monotonic_ms() == began_ms


async def test_r1_a_topic_made_again_is_reported_once(
    consumer: BroadcastConsumer, inner: Inner
) -> None:
    await consumer.events()
    inner.known = [TopicInfo(TOPIC, bytes(16), 4)]
    assert await consumer.events() == [TopicReplaced(TOPIC, bytes(16))]
    await nothing_comes(consumer, 5)


async def test_events_of_the_broker_come_between_the_looks(
    consumer: BroadcastConsumer, inner: Inner
) -> None:
    await consumer.events()
    inner.queue.put_nowait([EVENT])
    assert await consumer.events() == [EVENT]


async def test_a_reader_that_gives_up_waiting_loses_nothing(
    consumer: BroadcastConsumer, inner: Inner
) -> None:
    await consumer.events()
    await nothing_comes(consumer, 0.2)
    inner.queue.put_nowait([EVENT])
    assert await consumer.events() == [EVENT]


# --- the broker is away


async def test_a_broker_that_is_away_is_said_once_and_asked_again_soon(
    consumer: BroadcastConsumer, inner: Inner, world: World
) -> None:
    inner.away = True
    assert await consumer.events() == [Condition(CONDITION, "the broker is away")]
    looks, began_ms = inner.looks, world.clock.monotonic_ms()
    await nothing_comes(consumer, 10 * RETRY_MS / 1000 + 0.1)
    assert inner.looks - looks == 10
    inner.away = False
    assert await consumer.events() == [
        Condition(CONDITION, "", cleared=True),
        Assigned(partitions(0, 1, 2, 3)),
    ]
    assert world.clock.monotonic_ms() - began_ms <= 11 * RETRY_MS
    inner.known = [TopicInfo(TOPIC, TOPIC_ID, 5)]
    assert await consumer.events() == [Assigned(partitions(4))]


# --- progress


async def test_the_broker_keeps_no_progress(consumer: BroadcastConsumer, inner: Inner) -> None:
    """A group of the same name may commit there; none of it is this sidecar's."""
    (tp,) = partitions(0)
    inner.positions[tp] = Committed(100, "")
    assert await consumer.committed([tp]) == {tp: Committed(-1, "")}
    await consumer.commit({tp: Committed(7, "")})
    assert inner.positions == {tp: Committed(100, "")}


async def test_reading_is_that_of_the_consumer_below(
    consumer: BroadcastConsumer, inner: Inner
) -> None:
    (tp,) = partitions(0)
    inner.logs[tp] = (3, 9)
    assert consumer.fetch_from(tp, 5) == 1
    consumer.pause(tp)
    consumer.resume(tp)
    consumer.stop_fetch(tp)
    assert inner.fetched_from == [(tp, 5)]
    assert [name for name, _ in inner.told] == ["pause", "resume", "stop"]
    assert await consumer.log_range(tp) == (3, 9)
    assert await consumer.offset_at(tp, 77) == 77
    assert await consumer.topics() == inner.known
    await consumer.close()
    assert inner.told == []


async def test_errors_of_a_start_are_not_hidden(world: World, inner: Inner) -> None:
    inner.away = True
    with pytest.raises(BrokerError):
        await BroadcastConsumer(inner, world.clock).start()


class SpecBroker(TestBroker):
    """Remembers how its consumers were asked for."""

    def __init__(self) -> None:
        super().__init__(TestConsumer())
        self.specs: list[ConsumerSpec] = []

    def consumer(self, spec: ConsumerSpec) -> Consumer:
        self.specs.append(spec)
        return super().consumer(spec)


async def test_a_broadcast_consumer_joins_no_group(world: World) -> None:
    broker = SpecBroker()
    spec = ConsumerSpec("work", (TOPIC,), client_id="me", static_id="me")
    plain = open_consumer(broker, spec, world.clock, broadcast=False)
    apart_ = open_consumer(broker, spec, world.clock, broadcast=True)
    assert not isinstance(plain, BroadcastConsumer)
    assert isinstance(apart_, BroadcastConsumer)
    assert broker.specs == [spec, replace(spec, joins=False, static_id=None)]


# --- the store


async def test_a_group_has_the_name_of_its_only_member_once(world: World) -> None:
    """Also when it is made again, from settings that have it already."""
    settings, context = apart(NAME, SETTINGS, world.context)
    assert (settings.group, context.identity) == (f"work@{ME}", ME)
    assert apart(NAME, settings, world.context)[0].group == f"work@{ME}"
    named = replace(SETTINGS, group="g", broadcast_id="blue")
    settings, context = apart(NAME, named, world.context)
    assert (settings.group, context.identity) == ("g@blue", "blue")
    assert scope(SETTINGS, "value", ME) == f"value@{ME}"


async def test_a_plain_subscription_is_left_as_it_is(world: World) -> None:
    plain = replace(SETTINGS, mode="clustering")
    assert apart(NAME, plain, world.context) == (plain, world.context)
    assert scope(plain, "value", ME) == "value"


async def beats(store: ScopedStore, name: str) -> Sequence[str]:
    """Names of the members that this sidecar sees."""
    boot = await store.register(NAME, name)
    await store.heartbeat(NAME, name, boot, (), "")
    found = await store.heartbeat(NAME, name, boot, (), "")
    return [each.name for each in found.members]


async def test_sidecars_do_not_see_each_other(world: World) -> None:
    """Else they would share partitions out."""
    one, two = ScopedStore(world.store, "one"), ScopedStore(world.store, "two")
    assert await beats(one, "one") == ["one"]
    assert await beats(two, "two") == ["two"]


async def test_each_has_the_whole_rate_and_live_values_of_its_own(world: World) -> None:
    one, two = ScopedStore(world.store, "one"), ScopedStore(world.store, "two")
    assert (await one.take(NAME, 5, 0.001, 5)).granted == 5
    assert (await one.take(NAME, 5, 0.001, 5)).granted == 0
    assert (await two.take(NAME, 5, 0.001, 5)).granted == 5
    await one.set_live(NAME, b"", b"paused")
    assert await two.set_live(NAME, b"", b"") == b""


async def test_i1_what_another_sidecar_has_acked_is_no_repeat_here(world: World) -> None:
    one, two = ScopedStore(world.store, "one"), ScopedStore(world.store, "two")
    entry = DedupEntry(b"key", b"origin", world.clock.wall_ms())
    await one.dedup_keys.remember(NAME, 60_000, 10, [entry])
    ask = Ask(b"key", b"another", 0)
    ledgers = [(TOPIC_ID, 0)]
    assert await one.dedup_keys.seen(NAME, 60_000, ledgers, [ask]) == [True]
    assert await two.dedup_keys.seen(NAME, 60_000, ledgers, [ask]) == [False]


async def test_values_that_have_names_of_their_own_are_shared(world: World) -> None:
    one = ScopedStore(world.store, "one")
    await one.put("name", b"1")
    assert await world.store.get("name") == b"1"
    assert await one.put_new("name", b"2") == b"1"
    assert await one.swap("name", b"1", b"3") == b"3"
    assert await one.get("name") == b"3"
    await one.delete("name")
    assert await world.store.get("name") is None
    await one.close()
    assert one.run == world.store.run
