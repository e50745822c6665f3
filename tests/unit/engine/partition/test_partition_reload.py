"""What a partition sends while its record must be read again (R10)."""

from __future__ import annotations

from ackd.core.record.operations import Advance, EndRepair
from ackd.core.record.protocol import Open
from ackd.engine.partition.partition import Partition
from tests.unit.engine.world import World


def advances(world: World) -> list[int]:
    """The watermarks that the store was told since the last time; 0 is none."""
    asked, world.store.asked = world.store.asked, []
    ops = [op for call in asked for op in call.ops]
    return [op.offset for op in ops if isinstance(op, Advance) and op.offset]


async def reread(world: World, partition: Partition) -> None:
    term, owner = partition.handle.term, world.partitions.me.text()
    snapshot = await world.flusher.open(
        Open(partition.key, owner, 1, 1, 0, None, term), partition.handle
    )
    await partition.repair(partition.opened(snapshot))


async def test_i7_no_watermark_comes_before_the_repair(world: World) -> None:
    """It would hide that a message below it is on its way to the retry topic: seeds 3291 and 4598
    told `already_acked` to a lease of such a message.
    """
    partition = await world.owns(0, range(4))
    await world.leases(partition, 2)
    partition.ledger.acked([0, 1])
    advances(world)
    partition.tell()
    partition.reload()
    partition.tell(EndRepair())
    await world.flusher.idle()
    assert advances(world) == []
    assert partition.has_upkeep
    await reread(world, partition)
    partition.tell()
    await world.flusher.idle()
    assert advances(world) == [2]
    assert not partition.has_upkeep
