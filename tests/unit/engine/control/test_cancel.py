"""An operator ends one message, whoever holds its lease; the worker learns of it later."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from ackd.api.control import CancelTo
from ackd.api.messages import Delivery
from ackd.engine.control.cancel import KEPT_MAX, WAIT_MS, Cancels
from ackd.engine.control.control import Control
from ackd.engine.partition.partition import Partition
from ackd.errors import NotInFlightError
from ackd.ports import TopicInfo
from tests.unit.engine.copies import copies
from tests.unit.engine.world import NAME, World


@dataclass
class Scene:
    """A partition with a message under lease and one that nobody was given."""

    world: World
    cancels: Cancels
    partition: Partition
    lease: Delivery


@pytest.fixture
async def scene(world: World) -> AsyncIterator[Scene]:
    control = Control(world.state, world.context)
    bodies, claims = copies(world)
    cancels = Cancels(
        world.state, world.context, control, world.partitions, bodies, claims, world.topics
    )
    control.connect(cancels.changed)
    partition = await world.owns(0, [0, 1])
    (lease,) = await world.leases(partition)
    yield Scene(world, cancels, partition, lease)
    await cancels.stop()


@pytest.mark.parametrize(("then", "done"), [("dead", "dead"), ("ack", "acked")])
async def test_a_message_under_lease_ends_at_once(scene: Scene, then: CancelTo, done: str) -> None:
    began_ms = scene.world.clock.monotonic_ms()
    found = await scene.cancels.cancel("orders/0/0", then, "wrong file")
    assert (found.done, found.reason) == (done, "wrong file")
    assert scene.world.clock.monotonic_ms() - began_ms < 100
    assert scene.partition.ledger.leased == 0
    assert scene.world.count("ackd_cancels_total", subscription=NAME, outcome=done) == 1


async def test_r1_a_message_of_the_topic_before_is_not_one_of_this_one(scene: Scene) -> None:
    """Somebody asks for the end of a message, and the topic is made again meanwhile."""
    world = scene.world
    world.topics.known["orders"] = TopicInfo("orders", b"the topic before", 4)
    with pytest.raises(NotInFlightError):
        await scene.cancels.cancel("orders/0/0", "ack", "")
    assert scene.partition.ledger.leased == 1


@pytest.mark.parametrize("then", ["dead", "ack"])
@pytest.mark.parametrize("message", ["orders/0/1", "orders/0/9", "orders/3/0", "others/0/0"])
async def test_what_nobody_works_on_is_waited_for_and_then_refused(
    scene: Scene, message: str, then: CancelTo
) -> None:
    began_ms = scene.world.clock.monotonic_ms()
    with pytest.raises(NotInFlightError):
        await scene.cancels.cancel(message, then, "")
    assert 0 <= scene.world.clock.monotonic_ms() - began_ms - WAIT_MS < 50
    assert scene.world.state.live.cancels == []
    assert scene.partition.ledger.leased == 1


async def test_a_late_settle_is_told_but_not_one_of_a_later_lease(scene: Scene) -> None:
    token = scene.world.context.keys.open(scene.lease.lease)
    assert scene.cancels.of(token) is None
    found = await scene.cancels.cancel("orders/0/0", "dead", "wrong file")
    assert scene.cancels.of(token) == found
    assert scene.cancels.of(token._replace(offset=1)) is None
    later_ms = found.at_ms + WAIT_MS
    assert scene.cancels.of(token._replace(fence=later_ms * 1000 - 1)) == found
    assert scene.cancels.of(token._replace(fence=later_ms * 1000)) is None


async def test_while_the_store_is_away_it_is_tried_again(scene: Scene) -> None:
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(scene.cancels.cancel("orders/0/0", "dead", ""))
        await asyncio.sleep(0)
        scene.world.store.away = True
        await asyncio.sleep(1)
        assert not asked.done()
        scene.world.store.away = False
    assert asked.result().done == "dead"


async def test_i8_the_newest_are_kept(scene: Scene) -> None:
    first = await scene.cancels.cancel("orders/0/0", "dead", "")
    partition = await scene.world.owns(1, range(KEPT_MAX))
    await scene.world.leases(partition, KEPT_MAX)
    for offset in range(KEPT_MAX):
        await scene.cancels.cancel(f"orders/1/{offset}", "ack", "")
    kept = scene.world.state.live.cancels
    assert (len(kept), first in kept) == (KEPT_MAX, False)
