"""What the parts of a subscription share: signals, what readiness reports, settings in force."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ackd.engine.base.live import Live
from ackd.engine.base.subscription_state import Health, Signal
from ackd.ports import Condition
from tests.unit.engine.world import NAME, World


def test_a_signal_tells_all_in_the_order_in_which_they_were_connected() -> None:
    heard: list[int] = []
    signal = Signal()
    signal()
    signal.connect(lambda: heard.append(1), lambda: heard.append(2))
    signal.connect(lambda: heard.append(3))
    signal()
    assert heard == [1, 2, 3]


def test_what_fails_is_said_until_it_works() -> None:
    health = Health()
    health.fails("no topic")
    assert health.detail == "no topic"
    health.works()
    assert health.detail == ""


@pytest.mark.parametrize("failed_before", [False, True])
def test_the_store_that_answers_is_well_whatever_it_said_before(*, failed_before: bool) -> None:
    health = Health()
    if failed_before:
        health.store_answered()
        health.store_failed("timed out")
        assert (health.store_ok, health.detail) == (False, "timed out")
    health.store_answered()
    assert health.store_ok


def test_an_identity_is_taken_until_the_other_process_stops() -> None:
    health = Health()
    seen = []
    for taken in (True, False):
        health.identity_taken(taken=taken)
        seen.append(health.superseded)
    assert seen == [True, False]


async def test_settings_in_force_are_those_of_the_file_until_operators_change_them(
    world: World,
) -> None:
    state = world.state
    assert state.settings is state.configured
    live = Live(version=1, settings={"lease_ms": 5})
    changed = replace(state.configured, lease_ms=5)
    state.go_by(live, changed)
    assert (state.live, state.settings) == (live, changed)
    assert state.configured.lease_ms != 5


async def test_a_condition_is_new_once_and_its_latest_words_count(world: World) -> None:
    state = world.state
    assert state.report(Condition("commit", "refused"))
    assert not state.report(Condition("commit", "refused again"))
    assert state.report(Condition("retry-topic", "missing"))
    assert {code: each.detail for code, each in state.conditions.items()} == {
        "commit": "refused again",
        "retry-topic": "missing",
    }


async def test_a_condition_is_cleared_once_and_alone(world: World) -> None:
    state = world.state
    state.report(Condition("commit", "refused"))
    state.report(Condition("retry-topic", "missing"))
    assert state.clear("commit")
    assert not state.clear("commit")
    assert [*state.conditions] == ["retry-topic"]
    assert state.report(Condition("commit", "refused"))


async def test_each_subscription_has_signals_of_its_own(world: World) -> None:
    heard = world.listens("deliver")
    other = World(world.clock).state
    assert (other.name, world.state.name) == (NAME, NAME)
    other.signals.deliver()
    assert heard == []
    world.state.signals.beat()
    assert heard == []
    world.state.signals.deliver()
    assert heard == ["deliver"]
