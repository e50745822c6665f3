"""The note of a worker comes with the next attempt, and costs nothing where there is none."""

import pytest

from ackd.api.messages import SettleItem, SettleVerb, Status
from ackd.engine.settlement.settle import Settler
from ackd.errors import StoreError
from tests.unit.engine.world import NAME, World


async def extends(world: World, lease: str, note: str) -> None:
    item = SettleItem(lease, SettleVerb.EXTEND, note=note)
    (found,) = await Settler({NAME: world.settles}, world.context).settle([item])
    assert found.status is Status.EXTENDED


async def test_a_note_is_attached_to_its_message_only(world: World) -> None:
    await world.owns(0, [0, 1])
    got = await world.leases(world.partitions.all()[0], 2)
    await extends(world, got[1].lease, "frame 40")
    await world.notes.attach(got)
    assert [each.note for each in got] == [None, "frame 40"]
    await extends(world, got[1].lease, "")
    got[1].note = None
    await world.notes.attach(got)
    assert got[1].note is None


async def test_a_record_without_notes_is_not_asked(world: World) -> None:
    partition = await world.owns(0, [0])
    got = await world.leases(partition)
    world.store.away = True
    await world.notes.attach(got)
    world.partitions.remove(partition)  # whether it has some is not known any more
    with pytest.raises(StoreError):
        await world.notes.attach(got)
