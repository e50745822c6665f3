"""Open leases get the lease time that an operator set (R30), also after a change of owner."""

import pytest

from ackd.core.record.transitions import Verb
from ackd.engine.base.live import Live, OpenLeaseChange
from ackd.engine.control.lease_change import HANDOVER_MS, LeaseTimeChange
from ackd.engine.partition.partition import Partition
from tests.unit.engine.world import LEASE_MS, World

LONG_MS, SHORT_MS = 4 * LEASE_MS, LEASE_MS // 2


@pytest.fixture
def changes(world: World) -> LeaseTimeChange:
    return LeaseTimeChange(
        world.state,
        world.context,
        world.partitions,
        world.clock.wall_ms,
        lambda *_: None,
    )


def told(world: World, lease_ms: int, *, version: int = 2, force: bool = False) -> Live:
    """A live value that changes open leases now."""
    change = OpenLeaseChange(version, world.clock.wall_ms(), lease_ms, force)
    world.state.live = Live(version, open_leases=change)
    return world.state.live


async def leased(world: World) -> Partition:
    """A message under lease, an extended one, and one that nobody has."""
    partition = await world.owns(0, [0, 1, 2])
    await world.leases(partition, 2)
    return partition


async def deadline_ms(world: World, partition: Partition, offset: int = 0) -> int:
    """From now, as the store has it."""
    await world.flusher.submit(partition.handle, [])
    entry = partition.ledger.entry(offset)
    assert entry is not None
    return entry.when_ms - world.clock.wall_ms()


async def test_r30_open_leases_are_lengthened_from_now(
    world: World, changes: LeaseTimeChange
) -> None:
    partition = await leased(world)
    world.clock.pass_ms(1_000)
    changes.changed(Live(1), told(world, LONG_MS))
    assert await deadline_ms(world, partition) == LONG_MS
    (call,) = [c for c in world.store.asked if any(op.verb is Verb.EXTEND for op in c.ops)]
    assert [op.offset for op in call.ops] == [0, 1]


@pytest.mark.parametrize(("force", "left_ms"), [(False, LEASE_MS), (True, SHORT_MS)])
async def test_they_are_shortened_only_by_force(
    world: World, changes: LeaseTimeChange, *, force: bool, left_ms: int
) -> None:
    partition = await leased(world)
    changes.changed(Live(1), told(world, SHORT_MS, force=force))
    assert await deadline_ms(world, partition) == left_ms


async def test_a_version_counts_once(world: World, changes: LeaseTimeChange) -> None:
    partition = await leased(world)
    live = told(world, LONG_MS, version=2)
    changes.changed(Live(2), live)
    changes.changed(Live(1), Live(3))
    assert await deadline_ms(world, partition) == LEASE_MS


@pytest.mark.parametrize(
    ("after_ms", "left_ms"), [(HANDOVER_MS - 1, LONG_MS), (HANDOVER_MS, LEASE_MS - HANDOVER_MS)]
)
async def test_a_new_owner_does_what_the_last_one_may_have_left(
    world: World, changes: LeaseTimeChange, after_ms: int, left_ms: int
) -> None:
    partition = await leased(world)
    told(world, LONG_MS)
    world.clock.pass_ms(after_ms)
    changes.opened(partition)
    assert await deadline_ms(world, partition) == left_ms


async def test_a_lease_in_an_origin_record_is_moved_if_it_ends_too_early(
    world: World, changes: LeaseTimeChange
) -> None:
    now_ms = world.clock.wall_ms()
    assert not changes.wanted(now_ms)  # nobody has changed anything
    told(world, LONG_MS)
    assert changes.wanted(now_ms + LONG_MS - 1)
    assert not changes.wanted(now_ms + LONG_MS)
    assert not changes.wanted(now_ms + 2 * LONG_MS)
    told(world, SHORT_MS, force=True)
    assert changes.wanted(now_ms + SHORT_MS + HANDOVER_MS + 1)
    assert not changes.wanted(now_ms + SHORT_MS + HANDOVER_MS)
    world.clock.pass_ms(HANDOVER_MS)
    assert not changes.wanted(now_ms)


async def test_the_deadline_in_an_origin_record_is_read_and_moved(
    world: World, changes: LeaseTimeChange
) -> None:
    partition = await leased(world)
    told(world, LONG_MS)
    await changes.forwarded(world.handle(), [0, 2])  # 2 has no lease
    assert await deadline_ms(world, partition) == LONG_MS
    world.store.away = True
    await changes.forwarded(world.handle(), [0])  # the next claim tries again
