"""What holds deliveries back, one sentence for each: `explain` shows them all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import pytest

from ackd.core.ids import TopicPartition
from ackd.engine.control.control import Control
from ackd.engine.control.delivery_limits import DeliveryLimits
from ackd.engine.ownership.partition_increase import PartitionIncrease
from ackd.ports import Condition
from tests.unit.engine.world import NAME, TOPIC, World


class Growth:
    """Partitions that wait for the older ones of their topic: what it was asked about."""

    def words(self, assigned: Iterable[TopicPartition]) -> str:
        return ", ".join(f"{each.partition} waits" for each in assigned)


class Scene:
    """All who may hold deliveries back, and none of them does."""

    def __init__(self, world: World) -> None:
        self.control = Control(world.state, world.context)
        self._limits = DeliveryLimits(
            world.state,
            world.context,
            world.partitions,
            self.control,
            cast("PartitionIncrease", Growth()),
            world.dispatcher(pauses=self.control.pauses),
        )

    def words(self) -> list[str]:
        return self._limits.words()


@pytest.fixture
async def scene(world: World) -> Scene:
    """One partition with a message that nobody has asked for."""
    await world.owns(0, [0])
    return Scene(world)


async def test_nothing_limits(scene: Scene) -> None:
    assert scene.words() == []


async def test_another_process_of_its_name(world: World, scene: Scene) -> None:
    world.state.health.superseded = True
    assert scene.words() == ["another process runs under this sidecar's name"]


async def test_a_store_that_is_away_is_named_with_its_error(world: World, scene: Scene) -> None:
    world.state.health.store_ok = False
    world.state.health.detail = "refused"
    assert "store away: refused" in scene.words()


async def test_conditions_of_a_subscription(world: World, scene: Scene) -> None:
    world.state.conditions["x"] = Condition("no-rights", "may not read orders")
    assert scene.words() == ["no-rights: may not read orders"]


async def test_a_pause_says_whose_it_is_how_long_it_lasts_and_why(
    world: World, scene: Scene
) -> None:
    await scene.control.pause("pod", "", None)
    assert "paused (pod) until resumed: no reason given" in scene.words()
    await scene.control.pause("group", "deploy", 5_000)
    until_ms = world.clock.wall_ms() + 5_000
    assert f"paused (group) until {until_ms} (Unix ms): deploy" in scene.words()


async def test_partitions_that_wait_for_older_ones(world: World, scene: Scene) -> None:
    world.partitions.assigned[TopicPartition(TOPIC, 3)] = None
    assert scene.words() == ["3 waits"]


async def test_the_dispatcher_s_own_reason(world: World, scene: Scene) -> None:
    world.partitions.remove(world.partitions.all()[0])
    assert scene.words() == ["no-partitions"]


async def test_whoever_gets_the_leases_says_why_it_takes_none(world: World, scene: Scene) -> None:
    world.context.lease_events.hold_back(NAME, "push", "the application answers 503")
    assert scene.words() == ["push: the application answers 503"]
    world.context.lease_events.hold_back(NAME, "push", None)
    assert scene.words() == []


async def test_all_of_them_are_named_at_once(world: World, scene: Scene) -> None:
    world.state.health.superseded = True
    world.state.conditions["x"] = Condition("no-rights", "may not read")
    await scene.control.pause("pod", "deploy", None)
    world.context.lease_events.hold_back(NAME, "push", "503")
    found = scene.words()
    for start in ("another process", "no-rights", "paused (pod)", "push: 503"):
        assert sum(each.startswith(start) for each in found) == 1, start
