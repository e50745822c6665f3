"""A subscription as the API shows it: what is in force, and where each setting comes from."""

from __future__ import annotations

from dataclasses import replace

from ackd.engine.control.control import Control
from ackd.engine.control.describe import describe
from tests.unit.engine.world import NAME, TOPIC, World

SOURCES = {"lease_ms": "file", "max_attempts": "environment"}


async def test_before_it_is_built_its_configuration_is_shown(world: World) -> None:
    view = describe(NAME, world.state.configured, SOURCES, world.broker, None, "starting")
    assert (view.name, view.state, view.topics) == (NAME, "starting", (TOPIC,))
    assert view.settings["lease_ms"] == world.state.configured.lease_ms
    assert (view.sources, view.live_version, view.pauses) == (SOURCES, 0, [])


async def test_the_group_is_named_as_the_subscription_unless_it_has_a_name(world: World) -> None:
    plain = world.state.configured
    assert describe(NAME, plain, {}, world.broker, None, "idle").group == NAME
    named = replace(plain, group="billing", broker="east")
    view = describe(NAME, named, {}, world.broker, None, "idle")
    assert (view.group, view.broker) == ("billing", "east")


async def test_it_says_what_its_adapter_can_do(world: World) -> None:
    view = describe(NAME, world.state.configured, {}, world.broker, None, "idle")
    assert view.adapter == world.broker.capabilities.name
    assert view.capabilities == world.broker.capabilities


async def test_what_changed_live_wins_and_says_so(world: World) -> None:
    control = Control(world.state, world.context)
    await control.configure({"lease_ms": 45_000})
    view = describe(NAME, world.state.configured, SOURCES, world.broker, control, "running")
    assert view.settings["lease_ms"] == 45_000
    assert view.sources == {**SOURCES, "lease_ms": "live"}
    assert view.live_version == 1


async def test_pauses_in_force_are_shown_and_past_ones_are_not(world: World) -> None:
    control = Control(world.state, world.context)
    await control.pause("pod", "deploy", 1_000)

    def shown() -> list[str]:
        settings = world.state.configured
        view = describe(NAME, settings, {}, world.broker, control, "paused")
        return [each.reason for each in view.pauses]

    assert shown() == ["deploy"]
    world.clock.pass_ms(1_001)
    assert shown() == []
