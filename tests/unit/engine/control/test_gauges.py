"""Gauges of a sidecar: store, brokers, readiness, and the series of partitions that come and go."""

from __future__ import annotations

import asyncio
import gc
from typing import cast

import pytest

from ackd import __version__
from ackd.api.messages import Reason
from ackd.engine.base.tasks import Tasks
from ackd.engine.control.control import Control
from ackd.engine.control.gauges import LOOK_MS, Gauges
from ackd.engine.control.partition_gauges import END_MS, PartitionGauges
from ackd.engine.control.stable_offset_lag import StableOffsetLag
from ackd.engine.control.subscription_gauges import SubscriptionGauges
from ackd.engine.partition.partition import Policy
from ackd.errors import StoreError
from ackd.ports import Condition
from ackd.store.measured import MeasuredStore
from tests.unit.engine.world import NAME, TOPIC, World


class Scene:
    """One broker and one subscription. `subscriptions`: filled by tests that want its series."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.store = MeasuredStore(world.store, world.metrics)
        self.connected = asyncio.Event()
        self.reasons: list[Reason] = []
        self.unreachable = 0
        self.control = Control(world.state, world.context)
        self.subscriptions: dict[str, SubscriptionGauges] = {}
        lag = StableOffsetLag(world.clock)
        partitions = PartitionGauges(world.state, world.context, world.partitions, lag)
        self.gauges = Gauges(
            world.metrics,
            self.store,
            {"main": world.broker},
            {"main": self.connected},
            self.subscriptions,
            {NAME: partitions},
            {NAME: self.control},
            lambda: self.reasons,
            lambda: self.unreachable,
        )
        self.gauges.attach("pod-1")

    def scrape(self) -> None:
        self.world.metrics.render("")

    def value(self, name: str, **labels: str) -> float | None:
        """A gauge as the next scrape shows it; None: it has no such series."""
        self.scrape()
        return self.world.metrics.registry.get_sample_value(f"ackd_{name}", labels)

    def of_partition(self, name: str, number: int = 0) -> float | None:
        of = {"subscription": NAME, "topic": TOPIC, "partition": str(number)}
        return self.value(name, **of, retry_topic="false")


@pytest.fixture
def scene(world: World) -> Scene:
    return Scene(world)


async def test_a_sidecar_says_who_it_is(scene: Scene) -> None:
    assert scene.value("info", version=__version__, identity="pod-1") == 1


async def test_the_store_is_up_while_it_answers(world: World, scene: Scene) -> None:
    assert scene.value("store_up") == 0, "nobody has asked it"
    await scene.store.get("x")
    assert scene.value("store_up") == 1
    world.store.away = True
    with pytest.raises(StoreError):
        await scene.store.get("x")
    assert scene.value("store_up") == 0


async def test_a_broker_is_up_once_it_is_connected_and_nothing_is_wrong(
    world: World, scene: Scene
) -> None:
    assert scene.value("broker_up", broker="main") == 0
    scene.connected.set()
    assert scene.value("broker_up", broker="main") == 1
    world.broker.open_conditions = [Condition("away", "no answer", away=True)]
    assert scene.value("broker_up", broker="main") == 0


async def test_how_far_the_store_s_clock_is_ahead(world: World, scene: Scene) -> None:
    scene.control.received(b"", world.clock.monotonic_ms() + 2_500)
    assert scene.value("clock_skew_seconds") == 2.5


async def test_readiness_tells_ok_from_not_ok_and_from_ok_with_a_warning(scene: Scene) -> None:
    scene.reasons = [
        Reason("store", ok=True, detail=""),
        Reason("peers", ok=True, detail="no link to pod-2"),
        Reason("broker:main", ok=False, detail="no leader"),
    ]
    for name, ready, warns in (("store", 1, 0), ("peers", 1, 1), ("broker:main", 0, 0)):
        assert scene.value("readiness", reason=name) == ready
        assert scene.value("readiness_warnings", reason=name) == warns


async def test_a_part_that_comes_and_goes_leaves_no_series(scene: Scene) -> None:
    scene.reasons = [Reason("draining", ok=False, detail="stops"), Reason("store", ok=True)]
    assert scene.value("readiness", reason="draining") == 0
    scene.reasons = [Reason("store", ok=True)]
    assert scene.value("readiness", reason="draining") is None
    assert scene.value("readiness_warnings", reason="draining") is None
    assert scene.value("readiness", reason="store") == 1


class Counted:
    """Stands for `SubscriptionGauges`: how often it was filled."""

    times = 0

    def fill(self) -> None:
        self.times += 1


async def test_counters_that_alerts_watch_begin_with_their_subscription(scene: Scene) -> None:
    assert scene.value("late_acks_total", subscription=NAME) is None
    counted = Counted()
    scene.subscriptions[NAME] = cast("SubscriptionGauges", counted)
    assert scene.value("late_acks_total", subscription=NAME) == 0
    scene.world.metrics.late_acks.at(NAME).inc()
    assert scene.value("late_acks_total", subscription=NAME) == 1, "begun once, not at each scrape"
    assert counted.times == 2


async def test_series_of_a_partition_that_another_sidecar_owns_by_now_are_dropped(
    world: World, scene: Scene
) -> None:
    """Two sidecars that both show a watermark would make one of them stand still for ever."""
    partition = await world.owns(0, range(3))
    await world.owns(1, range(3))
    partition.end = 9
    names = ("watermark_offset", "lag_messages", "oldest_unfinished_age_seconds")
    for name in (*names, "transaction_held_seconds"):
        assert scene.of_partition(name) is not None, name
    assert scene.of_partition("lag_messages") == 9
    world.partitions.remove(partition)
    for name in (*names, "transaction_held_seconds"):
        assert scene.of_partition(name) is None, name
    assert scene.of_partition("watermark_offset", 1) == 0, "the other one stays"


async def test_the_retry_topic_s_partitions_are_told_from_the_topics_own(
    world: World, scene: Scene
) -> None:
    """Copies wait there for hours on purpose: an alert on progress must be able to leave it out."""
    copies = await world.owns(0, range(3), policy=Policy(None, 0, retry_copies=True))
    copies.end = 9
    of = {"subscription": NAME, "topic": TOPIC, "partition": "0"}
    names = ("watermark_offset", "lag_messages", "oldest_unfinished_age_seconds")
    for name in (*names, "transaction_held_seconds"):
        assert scene.value(name, **of, retry_topic="true") is not None, name
        assert scene.value(name, **of, retry_topic="false") is None, name


async def test_ends_of_logs_are_asked_for_again_and_again(world: World, scene: Scene) -> None:
    """A backlog is not fetched yet, so only the broker knows how long it is."""
    partition = await world.owns(0)
    world.consumer.logs[partition.tp] = (0, 100)
    tasks = Tasks("gauges")
    tasks.start(scene.gauges.run(), "gauges")
    await asyncio.sleep(0.001)
    assert scene.of_partition("lag_messages") == 100
    world.consumer.logs[partition.tp] = (0, 250)
    await asyncio.sleep((END_MS + LOOK_MS) / 1_000)
    assert scene.of_partition("lag_messages") == 250
    await tasks.stop()


async def test_a_sidecar_that_is_gone_is_filled_no_more(world: World, scene: Scene) -> None:
    """Tests and a restart in place build another one on the same metrics."""
    scene.connected.set()
    assert scene.value("broker_up", broker="main") == 1
    scene.connected.clear()
    del scene.gauges
    gc.collect()
    world.metrics.render("")
    found = world.metrics.registry.get_sample_value("ackd_broker_up", {"broker": "main"})
    assert found == 1, "nobody has set it"


async def test_sidecars_that_are_needed_and_not_reached_are_counted(scene: Scene) -> None:
    assert scene.value("peers_unreachable") == 0
    scene.unreachable = 2
    assert scene.value("peers_unreachable") == 2
