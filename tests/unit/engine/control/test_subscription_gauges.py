"""Gauges of a subscription: a scrape reads what its parts know at that moment."""

from __future__ import annotations

import asyncio

import pytest

from ackd.api.messages import ReceiveRequest, SettleVerb, Status
from ackd.core.record.operations import Settle
from ackd.core.record.transitions import Verb
from ackd.engine.cluster.settings_drift import SettingsDrift
from ackd.engine.control.subscription_gauges import SubscriptionGauges
from ackd.engine.delivery.window_pressure import WindowPressure
from ackd.engine.partition.partition import Policy
from tests.unit.engine.copies import copies
from tests.unit.engine.retry_stage import RETRY_ID, RETRY_TOPIC
from tests.unit.engine.world import NAME, World

COPIES = Policy(None, 0, retry_copies=True)
ALL = (
    "ready",
    "paused",
    "circuit_breaker_open",
    "window_bytes",
    "window_used_ratio",
    "waiting",
    "in_flight",
    "waiters",
    "copies_in_progress",
    "retry_topic_messages",
    "spilled_bytes",
    "partitions_owned",
    "settings_differ",
)


class Scene:
    """The parts that the gauges read. `copying`: messages whose copies are on their way."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.bodies, _ = copies(world)
        self.drift = SettingsDrift(NAME, {"lease_ms": "a", "group": "b"})
        self.dispatcher = world.dispatcher()
        self.copying: tuple[list[int], list[int]] = ([], [])
        pressure = WindowPressure(
            world.state, world.context, world.partitions, lambda: False, lambda: False
        )
        self._gauges = SubscriptionGauges(
            world.state,
            world.context,
            world.partitions,
            self.drift,
            self.dispatcher,
            world.breaker,
            pressure,
            self.bodies,
            self.copying,
        )

    def shown(self) -> dict[str, float]:
        """Every gauge that is not 0, after a scrape."""
        self._gauges.fill()
        found = {}
        for each in ALL:
            value = self.world.metrics.registry.get_sample_value(
                f"ackd_{each}", {"subscription": NAME}
            )
            assert value is not None, f"{each} has no series"
            if value:
                found[each] = value
        return found


@pytest.fixture
def scene(world: World) -> Scene:
    return Scene(world)


async def test_every_gauge_is_there_from_the_first_scrape_on(scene: Scene) -> None:
    assert scene.shown() == {}


async def test_messages_count_as_what_they_are_now(world: World, scene: Scene) -> None:
    world.sets(window_bytes_max=100)
    partition = await world.owns(0, range(5), size=10)
    await world.leases(partition, 3)
    entry = partition.ledger.entry(0)
    assert entry is not None
    retry = Settle(Verb.RETRY, 0, entry.fence, 1, entry.attempt, 60_000)
    await world.flusher.submit(partition.handle, [retry])
    found = scene.shown()
    assert found == {
        "ready": 2,
        "in_flight": 2,
        "waiting": 1,
        "window_bytes": 50,
        "window_used_ratio": 0.5,
        "partitions_owned": 1,
    }


async def test_all_partitions_are_added_up_and_lost_ones_left_out(
    world: World, scene: Scene
) -> None:
    await world.owns(0, range(2))
    second = await world.owns(1, range(3))
    assert (scene.shown()["ready"], scene.shown()["partitions_owned"]) == (5, 2)
    world.partitions.remove(second)
    assert (scene.shown()["ready"], scene.shown()["partitions_owned"]) == (2, 1)


async def test_only_the_retry_topic_s_messages_count_as_its(world: World, scene: Scene) -> None:
    await world.owns(0, range(2))
    await world.owns(0, range(3), policy=COPIES, topic=(RETRY_TOPIC, RETRY_ID))
    assert scene.shown()["retry_topic_messages"] == 3


async def test_copies_on_their_way_to_either_topic(scene: Scene) -> None:
    scene.copying[0].extend([1, 2])
    scene.copying[1].append(3)
    assert scene.shown() == {"copies_in_progress": 3}


async def test_what_holds_deliveries_back(world: World, scene: Scene) -> None:
    world.state.paused = True
    world.sets(circuit_breaker_failures=1)
    world.breaker.settled(SettleVerb.RETRY, Status.RETRYING, 1)
    assert scene.shown() == {"paused": 1, "circuit_breaker_open": 1}
    world.breaker.stop()


async def test_receives_that_wait(world: World, scene: Scene) -> None:
    await world.owns(0)
    async with asyncio.TaskGroup() as group:
        group.create_task(scene.dispatcher.receive(ReceiveRequest(wait_ms=5_000)))
        await asyncio.sleep(0)
        assert scene.shown()["waiters"] == 1
    assert "waiters" not in scene.shown()


async def test_bodies_on_disk(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scene.bodies._spill, "taken", 4_096)
    assert scene.shown() == {"spilled_bytes": 4_096}


async def test_sidecars_with_other_settings_count_once_each(scene: Scene) -> None:
    other = {"lease_ms": "x", "group": "y"}
    scene.drift.look([("pod-2", other), ("pod-3", other), ("pod-4", {"lease_ms": "a"})])
    assert scene.shown() == {"settings_differ": 2}
