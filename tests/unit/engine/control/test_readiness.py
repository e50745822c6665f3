"""Readiness: one line for each part, with the reason why it is not ready."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from ackd.api.messages import Reason
from ackd.core.ids import TopicPartition
from ackd.engine.control.control import Control
from ackd.engine.control.readiness import GROUP_MS, SubscriptionReadiness, readiness
from ackd.engine.ownership.partition_increase import PartitionIncrease
from ackd.engine.retry.own_topic import RetryTopic
from ackd.ports import Condition, Member
from tests.unit.engine.world import NAME, TOPIC, World


@dataclass
class Growth:
    """Partitions that wait for the older ones of their topic."""

    waiting: set[TopicPartition] = field(default_factory=set)

    def words(self, assigned: Iterable[TopicPartition]) -> str:
        found = [each for each in assigned if each in self.waiting]
        return f"{len(found)} partitions wait" if found else ""


@dataclass
class Parts:
    """What readiness reads of a subscription; it stands for `Control` and `RetryTopic` too."""

    state: Any
    clock: Any
    partitions: Any
    membership: Any
    increase: Growth = field(default_factory=Growth)
    halted_for: str = ""
    warning: str = ""

    def reading(self) -> SubscriptionReadiness:
        membership, increase = self.membership, cast("PartitionIncrease", self.increase)
        control, topic = cast("Control", self), cast("RetryTopic", self)
        return SubscriptionReadiness(
            self.state,
            self.clock,
            self.partitions,
            membership,
            membership.drift,
            control,
            increase,
            topic,
        )


@pytest.fixture
async def parts(world: World) -> Parts:
    """A subscription that works, with one partition."""
    parts = Parts(world.state, world.clock, world.partitions, world.membership)
    world.membership.registered(1, [])
    world.state.health.joined = True
    world.partitions.assigned[(await world.owns(0)).tp] = None
    return parts


def reasons(world: World, parts: Parts, **more: Any) -> dict[str, Reason]:
    found = readiness(
        world.store,
        {"main": world.broker},
        more.pop("broker_errors", {}),
        {NAME: parts.reading()},
        **{"draining": False, **more},
    )
    return {each.name: each for each in found}


def of(world: World, parts: Parts) -> tuple[bool, str]:
    found = reasons(world, parts)[f"subscription:{NAME}"]
    return found.ok, found.detail


async def test_all_is_well(world: World, parts: Parts) -> None:
    found = reasons(world, parts)
    assert list(found) == ["store", "broker:main", f"subscription:{NAME}"]
    assert all(each.ok and not each.detail for each in found.values())


async def test_a_sidecar_that_stops_or_lacks_a_task_says_so(world: World, parts: Parts) -> None:
    found = reasons(world, parts, draining=True, failure="x has ended")
    assert (found["draining"].ok, found["tasks"].ok) == (False, False)
    assert found["tasks"].detail == "x has ended"


async def test_sidecars_without_a_link_are_a_warning(world: World, parts: Parts) -> None:
    assert "peers" not in reasons(world, parts)
    found = reasons(world, parts, unreachable={})["peers"]
    assert (found.ok, found.detail) == (True, "")
    away = {f"pod-{number}": "refused" for number in range(9)}
    found = reasons(world, parts, unreachable=away)["peers"]
    assert (found.ok, found.detail) == (
        True,
        "no link to 9 other sidecars: pod-0: refused; pod-1: refused; pod-2: refused",
    )
    found = reasons(world, parts, unreachable={"pod-1": "refused"}, unheard="no port")["peers"]
    assert (found.ok, found.detail[:20]) == (True, "no port; no link to ")


@pytest.mark.parametrize(
    ("run", "away", "ok"), [("r", False, True), ("r", True, False), ("", False, False)]
)
async def test_the_store(world: World, parts: Parts, *, run: str, away: bool, ok: bool) -> None:
    world.store.runs_as = run
    world.store.open_conditions = [Condition("x", "evicts keys", away=away)]
    found = reasons(world, parts)["store"]
    assert (found.ok, found.detail) == (ok, "evicts keys")


async def test_a_broker(world: World, parts: Parts) -> None:
    world.broker.open_conditions = [Condition("down", "no leader")]
    found = reasons(world, parts, broker_errors={"main": "no name"})["broker:main"]
    assert (found.ok, found.detail) == (False, "down: no leader; no name")


async def test_a_subscription_that_has_not_begun(world: World, parts: Parts) -> None:
    health = world.state.health
    health.joined, health.detail = False, "no such topic"
    assert of(world, parts) == (False, "not joined yet; no such topic")
    health.joined = True
    partition = world.partitions.all()[0]
    world.partitions.remove(partition)
    world.partitions.unassign(partition.tp)
    assert of(world, parts) == (False, "no answer from the group yet; no such topic")


@pytest.mark.parametrize("how", ["assigned", "stands by"])
async def test_without_a_partition_it_may_be_ready_all_the_same(
    world: World, parts: Parts, how: str
) -> None:
    partition = world.partitions.all()[0]
    world.partitions.remove(partition)
    world.partitions.unassign(partition.tp)
    if how == "assigned":
        world.state.health.assigned_once = True
    else:
        other = Member("pod-2", 1, 0, "", ("a",), "")
        world.membership.view.alive = [other]
        reading = parts.reading()
        found = reading.reason()
        assert found.ok, "its application gets messages of the others and settles them"
        assert found.detail == (
            "waiting for the group: it has assigned no partition to this sidecar yet"
        )
        world.clock.pass_ms(GROUP_MS)
        assert reading.reason().detail == "", "there are fewer partitions than sidecars"
        world.state.health.assigned_once = True
    assert of(world, parts) == (True, "")


async def test_partitions_that_the_group_has_not_assigned_yet(world: World, parts: Parts) -> None:
    """After a kill, Kafka keeps the dead member's partitions for 45 s; successors serve at once."""
    partition = await world.owns(1)
    ok, said = of(world, parts)
    assert ok
    assert said == (
        "waiting for the group: it has not assigned 1 of the 2 partitions owned here yet; "
        "their progress is in the store and is committed then"
    )
    world.partitions.assigned[partition.tp] = None
    assert of(world, parts) == (True, "")


async def test_partitions_that_are_being_opened(world: World, parts: Parts) -> None:
    new = TopicPartition(TOPIC, 1)
    world.partitions.assigned[new] = None
    assert of(world, parts) == (False, "1 partitions are being opened")
    parts.halted_for = "op"
    assert of(world, parts) == (True, "")
    parts.halted_for = ""
    parts.increase.waiting = {new}
    assert of(world, parts) == (True, "1 partitions wait")


async def test_a_record_that_is_read_again(world: World, parts: Parts) -> None:
    world.partitions.all()[0].reload()
    assert of(world, parts) == (False, "a record is being read again")


async def test_another_process_of_its_name(world: World, parts: Parts) -> None:
    world.state.health.superseded = True
    assert of(world, parts) == (False, "another process runs under this sidecar's name")


async def test_warnings_do_not_make_it_not_ready(world: World, parts: Parts) -> None:
    conditions = state_conditions(world)
    conditions["a"] = Condition("a", "short retention", warning=True)
    parts.warning = "no retry topic"
    world.store.runs_as = "run-2"
    ok, detail = of(world, parts)
    assert ok
    assert detail == (
        "short retention; no retry topic; acks are being repeated to another run of the store"
    )
    conditions["b"] = Condition("b", "no rights")
    ok, detail = of(world, parts)
    assert (ok, detail.startswith("b: no rights; short retention")) == (False, True)


def state_conditions(world: World) -> dict[str, Condition]:
    return world.state.conditions
