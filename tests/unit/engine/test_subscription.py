"""The parts of a subscription put together: it starts, works, is built again, and leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import fields, replace
from typing import cast, get_args

import pytest

from ackd.api.messages import Delivery, LeaseView, ReceiveRequest, SettleItem, SettleVerb, Status
from ackd.config.subscription import SubscriptionSettings
from ackd.core.ids import TopicPartition
from ackd.core.ledger import effects
from ackd.engine.base.spill_file import Spill
from ackd.engine.base.tasks import Tasks
from ackd.engine.cluster.members import MemberNote, read_note
from ackd.engine.delivery.handed_leases import HandedLeases
from ackd.engine.ownership.hand_over import HANDOVER_MS
from ackd.engine.partition.partition import Partition
from ackd.engine.parts_by_name import PartsByName
from ackd.engine.settlement.settle import Settler
from ackd.engine.subscription import Subscription
from ackd.errors import BrokerFatalError, DrainingError
from ackd.ports import Assigned, Condition, ConsumerEvent, Fetched, TopicInfo
from tests.unit.engine.copies import NoSpill
from tests.unit.engine.world import (
    LEASE_MS,
    ME,
    NAME,
    TOPIC,
    TOPIC_ID,
    TestBroker,
    TestConsumer,
    World,
    record,
)

TP = TopicPartition(TOPIC, 0)
FENCED = Condition("fenced", "another member has its name", fatal=True)
OWN_EFFECTS = {effects.FetchFrom, effects.FinishRange, effects.Exhausted, effects.Mistaken}
"""A partition carries them out itself."""


class FedConsumer(TestConsumer):
    """Brings the events that a test puts in."""

    def __init__(self) -> None:
        super().__init__()
        self.known = [TopicInfo(TOPIC, TOPIC_ID, 1)]
        self.closed = False
        self._events: asyncio.Queue[ConsumerEvent] = asyncio.Queue()

    def brings(self, *events: ConsumerEvent) -> None:
        for event in events:
            self._events.put_nowait(event)

    async def events(self) -> list[ConsumerEvent]:
        return [await self._events.get()]

    async def close(self) -> None:
        self.closed = True


async def no_look(token: str) -> LeaseView:
    raise NotImplementedError(token)


class Scene:
    """One subscription, built as the runtime does it. `consumer`: of the last one built."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.context = replace(world.context, spill=lambda *_: cast("Spill", NoSpill()))
        self.by_name, self.handed = PartsByName(), HandedLeases()
        self.consumer: FedConsumer
        self.tasks = Tasks("subscription")
        self.ended: list[BaseException] = []

    def build(self, **settings: object) -> Subscription:
        self.consumer = FedConsumer()
        plain = SubscriptionSettings(topics=(TOPIC,), lease_ms=LEASE_MS, start="earliest")
        built = Subscription(
            NAME,
            replace(plain, **settings),  # type: ignore[arg-type]
            TestBroker(self.consumer),
            self.context,
            handed=self.handed,
            by_name=self.by_name,
            look=no_look,
        )
        built.state.cluster = built.cluster_scope("cluster")
        return built

    def run(self, subscription: Subscription) -> None:
        async def until_ended() -> None:
            try:
                await subscription.run()
            except BaseExceptionGroup as group:
                self.ended += group.exceptions

        self.tasks.start(until_ended(), "run", ends=True)

    async def works(self, *offsets: int, **settings: object) -> Subscription:
        """It owns its partition and has these messages."""
        subscription = self.build(**settings)
        self.run(subscription)
        self.consumer.brings(Assigned((TP,)))
        await until(lambda: bool(subscription.partitions.owned))
        self.fetched(*offsets)
        await until(lambda: subscription.partitions.held()[0] == len(offsets))
        return subscription

    def fetched(self, *offsets: int) -> None:
        session = len(self.consumer.fetched_from)
        self.consumer.brings(Fetched(TP, session, [record(each) for each in offsets]))

    async def receives(self, most: int = 10) -> list[Delivery]:
        received = await self.by_name.dispatchers[NAME].receive(ReceiveRequest(max=most))
        return received.messages

    async def acks(self, *deliveries: Delivery) -> set[Status]:
        settler = Settler(self.by_name.settles, self.context)
        items = [SettleItem(each.lease, SettleVerb.ACK) for each in deliveries]
        return {each.status for each in await settler.settle(items)}


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - test time: nothing waits
            await asyncio.sleep(0.01)


@pytest.fixture
async def scene(world: World) -> AsyncIterator[Scene]:
    scene = Scene(world)
    yield scene
    await scene.tasks.stop()


# --- putting together


async def test_others_find_each_of_its_parts_by_its_name(scene: Scene) -> None:
    scene.build()
    for table in fields(PartsByName):
        assert NAME in getattr(scene.by_name, table.name), table.name


async def test_one_that_is_built_again_replaces_all_of_its_parts(scene: Scene) -> None:
    """A part of the former run would answer for partitions that nobody owns any more."""
    scene.build()
    before = {each.name: getattr(scene.by_name, each.name)[NAME] for each in fields(PartsByName)}
    scene.build()
    for name, part in before.items():
        assert getattr(scene.by_name, name)[NAME] is not part, name


async def test_every_decision_of_a_ledger_has_somebody_who_carries_it_out(scene: Scene) -> None:
    subscription = scene.build()
    handled = subscription._partition_parts(scene.handed).effects
    assert set(handled) | OWN_EFFECTS == set(get_args(effects.Effect))


async def test_who_reads_the_ledger_as_it_was_is_told_before_it_changes(scene: Scene) -> None:
    """Deduplication must see which message an ack ends; claims see what the reply made of it."""
    subscription = scene.build(dedup=replace(SubscriptionSettings(topics=()).dedup, key="key"))
    told = subscription._partition_parts(scene.handed).observers
    assert subscription.dedup is not None
    assert list(told) == [
        subscription.tracing.on_reply,
        subscription.dedup.on_reply,
        Partition.apply,
        subscription.claims.on_reply,
    ]


# --- starting


async def test_what_it_does_in_a_word(scene: Scene) -> None:
    subscription = scene.build()
    assert subscription.phase() == "starting"
    scene.run(subscription)
    await until(lambda: subscription.state.health.joined)
    assert subscription.phase() == "idle"
    scene.consumer.brings(Assigned((TP,)))
    await until(lambda: bool(subscription.partitions.owned))
    assert subscription.phase() == "running"
    await scene.by_name.controls[NAME].pause("group", "", None)
    assert subscription.phase() == "paused"


@pytest.mark.parametrize("who", ["store", "broker"])
async def test_a_start_waits_for_whoever_is_away_and_says_so(
    world: World, scene: Scene, who: str
) -> None:
    subscription = scene.build()
    away = world.store if who == "store" else scene.consumer
    away.away = True
    scene.run(subscription)
    health = subscription.state.health
    await until(lambda: "away" in health.detail)
    assert not health.joined
    away.away = False
    await until(lambda: health.joined)
    assert health.detail == ""


async def test_a_broker_that_ends_it_ends_all_of_its_tasks(scene: Scene) -> None:
    """The runtime builds it again."""
    subscription = await scene.works(0)
    scene.consumer.brings(FENCED)
    await until(lambda: bool(scene.ended))
    (error,) = scene.ended
    assert isinstance(error, BrokerFatalError)
    assert scene.consumer.closed
    assert subscription.dispatcher.stopped


# --- at work


async def test_a_message_is_delivered_acked_and_committed(scene: Scene) -> None:
    subscription = await scene.works(0, 1)
    first, second = await scene.receives()
    assert await scene.acks(first, second) == {Status.ACKED}
    await until(lambda: TP in scene.consumer.positions and scene.consumer.positions[TP].offset == 2)
    assert subscription.partitions.held() == (0, 0)


async def test_a_lease_that_ends_is_delivered_again_to_who_waits(scene: Scene) -> None:
    """I4: the timers run with the rest."""
    await scene.works(0)
    (first,) = await scene.receives()
    dispatcher = scene.by_name.dispatchers[NAME]
    received = await dispatcher.receive(ReceiveRequest(wait_ms=2 * LEASE_MS))
    (again,) = received.messages
    assert (again.record.offset, again.attempt) == (0, 2)
    assert scene.world.clock.wall_ms() - first.deadline_ms <= 100


# --- leaving


async def test_a_clean_stop_commits_what_is_known_and_says_that_it_left(scene: Scene) -> None:
    subscription = await scene.works(0, 1)
    await scene.acks((await scene.receives(1))[0])
    await subscription.leave()
    assert scene.consumer.positions[TP].offset == 1
    assert subscription.membership.note.left
    assert subscription.partitions.owned == {}
    with pytest.raises(DrainingError):
        await scene.receives()


def written(world: World) -> MemberNote:
    """What the others read of this sidecar."""
    return read_note(world.data.members[NAME][ME].note)


async def joined_by_another(world: World) -> None:
    await world.store.register(NAME, "pod-2")
    await world.store.heartbeat(NAME, "pod-2", 1, (), "")


async def test_a_departure_leaves_everything_to_a_sidecar_that_stays(
    world: World, scene: Scene
) -> None:
    """At once, with a lease open: the others hear of it, the group is left, and the lease is
    settled here as before.
    """
    subscription = await scene.works(0, 1)
    (first,) = await scene.receives(1)
    departure = scene.by_name.departures[NAME]
    await departure.leave()
    assert subscription.partitions.owned, "there is nobody who would take it"
    await joined_by_another(world)
    await until(lambda: bool(subscription.membership.alive))
    await departure.leave()
    assert subscription.partitions.owned == {}
    await departure.stop()
    assert scene.consumer.closed
    await until(lambda: bool(written(world).handed))
    assert written(world).leaving
    assert await scene.acks(first) == {Status.ACKED}
    scene.consumer.brings(Assigned((TP,)))
    await asyncio.sleep(2)
    assert subscription.partitions.owned == {}
    assert not scene.ended


@pytest.mark.parametrize("who", ["store", "broker"])
async def test_a_stop_does_not_wait_for_whoever_is_away(
    world: World, scene: Scene, who: str
) -> None:
    """R34: the store knows what was settled."""
    subscription = await scene.works(0)
    away = world.store if who == "store" else scene.consumer
    away.away = True
    began_ms = world.clock.monotonic_ms()
    await subscription.leave()
    assert world.clock.monotonic_ms() - began_ms <= HANDOVER_MS
    assert subscription.partitions.owned == {}


async def test_leases_live_on_when_it_is_built_again(scene: Scene) -> None:
    """An application that works on a message does not notice."""
    before = await scene.works(0)
    (delivery,) = await scene.receives()
    scene.consumer.brings(FENCED)
    await until(lambda: bool(scene.ended))
    after = scene.build()
    after.inherit(before)
    scene.run(after)
    scene.consumer.brings(Assigned((TP,)))
    await until(lambda: bool(after.partitions.owned))
    assert await scene.acks(delivery) == {Status.ACKED}


async def test_what_an_operator_paused_stays_paused_when_it_is_built_again(scene: Scene) -> None:
    """A pause of this sidecar is in no store."""
    before = scene.build()
    await before.control.pause("pod", "deploy", None)
    after = scene.build()
    assert after.phase() == "starting"
    after.inherit(before)
    assert after.state.paused
    pauses: Mapping[str, str] = {each.scope: each.reason for each in after.control.pauses()}
    assert pauses == {"pod": "deploy"}
