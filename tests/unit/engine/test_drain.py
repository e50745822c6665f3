"""A sidecar that stops: partitions go to others, then settles are waited for, or leases go back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from ackd.api.messages import SettleItem, SettleVerb
from ackd.core.record.operations import Settle
from ackd.core.record.transitions import State, Verb
from ackd.engine import drain as drain_module
from ackd.engine.delivery.handed_leases import HandedLeases
from ackd.engine.drain import DRAIN_POLL_MS, Drain
from ackd.engine.settlement.settle import Settler
from ackd.errors import StoreError
from tests.unit.engine.world import LEASE_MS, NAME, World


class TestDispatcher:
    """Implements what a stop asks of `Dispatcher`."""

    __test__ = False

    def __init__(self) -> None:
        self.stopped = 0

    def stop(self) -> None:
        self.stopped += 1


class TestDeparture:
    """Implements what a stop asks of `Departure`: partitions go to `taker`, once there is one."""

    __test__ = False

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.taker = False
        self.gone = self.serves = False

    async def leave(self) -> None:
        if self.taker and not self.gone:
            self.gone = self.serves = True
            for partition in self.scene.world.partitions.all():
                self.scene.handed.note(partition)
                self.scene.world.partitions.remove(partition)

    async def stop(self) -> None:
        """It has nothing to wait for."""


class TestPublishing:
    """Implements what a stop asks of `Publishing`: `done` once it was drained."""

    __test__ = False

    def __init__(self) -> None:
        self.done = False

    async def drain(self) -> None:
        self.done = True


class Scene:
    """Two leases of one partition, and a lease of a partition that went to another sidecar."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.dispatcher, self.publishing = TestDispatcher(), TestPublishing()
        self.handed = HandedLeases()
        self.departure = TestDeparture(self)
        self.settler = Settler({NAME: world.settles}, world.context)
        self.drain = self.made(lambda: self.settler)

    def made(self, settler: Callable[[], Settler]) -> Drain:
        dispatchers: Any = {NAME: self.dispatcher}
        departures: Any = {NAME: self.departure}
        publishing: Any = self.publishing
        partitions = {NAME: self.world.partitions}
        return Drain(partitions, dispatchers, departures, publishing, self.handed, settler)

    async def settles(self, lease: str, do: SettleVerb) -> None:
        """At this sidecar, as the runtime does it."""
        items = [SettleItem(lease, do)]
        self.handed.settled(items, await self.settler.settle(items))

    async def begin(self) -> None:
        self.partition = await self.world.owns(0, range(3))
        self.leases = await self.world.leases(self.partition, 2)
        gone = await self.world.owns(1, [0])
        (self.other,) = await self.world.leases(gone)
        self.handed.note(gone)
        self.world.partitions.remove(gone)
        self.gone = gone.key

    def slots(self) -> list[tuple[State, int]]:
        """State and attempts of what was leased, as the store has it."""
        records = self.world.data.records
        there, gone = records[self.partition.key].slots, records[self.gone].slots
        return [(slot.state, slot.attempt) for slot in (there[0], there[1], gone[0])]


@pytest.fixture
async def scene(world: World) -> Scene:
    scene = Scene(world)
    await scene.begin()
    return scene


async def test_a_drain_waits_for_the_last_settle_and_delivers_nothing_new(scene: Scene) -> None:
    async with asyncio.TaskGroup() as group:
        drained = group.create_task(scene.drain.drain())
        await asyncio.sleep(5)
        assert not drained.done()
        assert scene.dispatcher.stopped
        assert scene.drain.begun
        await scene.settler.settle([SettleItem(scene.leases[0].lease, SettleVerb.ACK)])
        await asyncio.sleep(1)
        assert not drained.done()
        assert not scene.publishing.done
        await scene.settler.settle([SettleItem(scene.leases[1].lease, SettleVerb.RETRY)])
        await scene.settles(scene.other.lease, SettleVerb.ACK)
        await asyncio.sleep(2 * DRAIN_POLL_MS / 1000)
        assert drained.done()
    assert scene.publishing.done


async def test_partitions_go_at_once_and_the_application_is_served_until_it_has_settled(
    scene: Scene,
) -> None:
    """What was leased at first is waited for, then nothing new is delivered, then for the rest."""
    scene.departure.taker = True
    quiet: list[bool] = []
    async with asyncio.TaskGroup() as group:
        drained = group.create_task(scene.drain.drain(60, lambda: quiet.append(True)))
        await asyncio.sleep(1)
        assert scene.departure.gone
        assert scene.world.partitions.owned == {}
        scene.handed.add(["of a receive meanwhile"])
        for lease in [*scene.leases, scene.other]:
            assert (quiet, scene.dispatcher.stopped) == ([], 0)
            await scene.settles(lease.lease, SettleVerb.ACK)
            await asyncio.sleep(1)
        assert quiet == [True]
        assert not drained.done()
        scene.handed.looked("of a receive meanwhile", over=True)
    assert scene.publishing.done


async def test_a_long_job_keeps_the_others_from_nothing_for_longer_than_that(scene: Scene) -> None:
    scene.departure.taker = True
    quiet: list[bool] = []
    async with asyncio.TaskGroup() as group:
        drained = group.create_task(scene.drain.drain(7, lambda: quiet.append(True)))
        await asyncio.sleep(6)
        assert quiet == []
        await asyncio.sleep(2)
        assert quiet == [True]
        assert not drained.done()
        drained.cancel()


async def test_a_lease_that_was_settled_elsewhere_or_expires_keeps_nobody_waiting(
    scene: Scene,
) -> None:
    """Nobody tells this sidecar: it looks."""
    scene.departure.taker = True
    async with asyncio.TaskGroup() as group:
        drained = group.create_task(scene.drain.drain())
        await scene.settles(scene.leases[0].lease, SettleVerb.ACK)
        await scene.settler.settle([SettleItem(scene.leases[1].lease, SettleVerb.ACK)])
        await asyncio.sleep(LEASE_MS / 1000 - 2)
        assert not drained.done()
        await asyncio.sleep(3)
        assert drained.done()


async def test_somebody_who_comes_while_it_waits_gets_the_partitions(scene: Scene) -> None:
    async with asyncio.TaskGroup() as group:
        drained = group.create_task(scene.drain.drain())
        await asyncio.sleep(1)
        assert scene.world.partitions.owned
        scene.departure.taker = True
        await asyncio.sleep(1)
        assert not scene.world.partitions.owned
        drained.cancel()


async def test_r28_leases_that_go_back_cost_no_attempt(scene: Scene) -> None:
    """Those of partitions that others own by now too."""
    assert await scene.drain.give_back() == 3
    assert scene.slots() == [(State.RELEASED, 0)] * 3
    assert scene.partition.ledger.leased == 0
    assert (scene.dispatcher.stopped, scene.publishing.done) == (1, True)
    assert await scene.drain.give_back() == 0


async def test_leases_of_an_application_that_is_gone_cost_an_attempt(scene: Scene) -> None:
    """A message may be the cause of its end. The sidecar itself goes on."""
    assert await scene.drain.end_held() == 3
    assert [attempt for _, attempt in scene.slots()] == [1, 1, 1]
    assert scene.partition.ledger.leased == 0
    assert (scene.dispatcher.stopped, scene.drain.begun) == (0, False)


async def test_what_another_sidecar_settled_meanwhile_is_not_counted(scene: Scene) -> None:
    slot = scene.world.data.records[scene.partition.key].slots[0]
    ack = Settle(Verb.ACK, 0, slot.fence, slot.rollback_epoch, slot.attempt)
    await scene.world.flusher.submit(scene.world.handle(), [ack])
    assert scene.partition.ledger.leased == 2
    assert await scene.drain.give_back() == 2


async def test_without_the_store_nothing_is_said_to_be_given_back(scene: Scene) -> None:
    def away() -> Settler:
        raise StoreError("not connected")

    scene.drain = scene.made(away)
    with pytest.raises(StoreError):
        await scene.drain.give_back()
    assert scene.slots()[0][0] is State.LEASED


async def test_i8_leases_go_back_in_batches(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain_module, "BATCH", 2)
    sizes: list[int] = []
    settle = scene.settler.settle

    async def counted(items: list[SettleItem]) -> Any:
        sizes.append(len(items))
        return await settle(items)

    monkeypatch.setattr(scene.settler, "settle", counted)
    assert await scene.drain.give_back() == 3
    assert sizes == [2, 1]
