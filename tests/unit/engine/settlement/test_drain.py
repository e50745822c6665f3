"""A sidecar that stops: nothing new, then settles are waited for, or leases go back."""

from __future__ import annotations

import asyncio
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
from tests.unit.engine.world import NAME, World


class TestDispatcher:
    """Implements what a stop asks of `Dispatcher`."""

    __test__ = False

    def __init__(self) -> None:
        self.stopped = 0

    def stop(self) -> None:
        self.stopped += 1


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
        self.handed = HandedLeases(keep=True)
        self.settler = Settler({NAME: world.settles}, world.context)
        dispatchers: Any = {NAME: self.dispatcher}
        publishing: Any = self.publishing
        self.drain = Drain(
            {NAME: world.partitions}, dispatchers, publishing, self.handed, lambda: self.settler
        )

    async def begin(self) -> None:
        self.partition = await self.world.owns(0, range(3))
        self.leases = await self.world.leases(self.partition, 2)
        gone = await self.world.owns(1, [0])
        await self.world.leases(gone)
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
        assert (scene.dispatcher.stopped, scene.drain.begun) == (1, True)
        await scene.settler.settle([SettleItem(scene.leases[0].lease, SettleVerb.ACK)])
        await asyncio.sleep(1)
        assert not drained.done()
        assert not scene.publishing.done
        await scene.settler.settle([SettleItem(scene.leases[1].lease, SettleVerb.RETRY)])
        await asyncio.sleep(2 * DRAIN_POLL_MS / 1000)
        assert drained.done()
    assert scene.publishing.done


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

    scene.drain = Drain(
        {NAME: scene.world.partitions},
        {},
        scene.publishing,  # type: ignore[arg-type]
        scene.handed,
        away,
    )
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
