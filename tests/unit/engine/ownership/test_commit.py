"""Commits to the broker: what the store has confirmed, of whom the group asks (R8, R16)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ackd.core.commit_metadata import decode
from ackd.core.record.operations import Drop, Settle
from ackd.core.record.transitions import Verb
from ackd.engine.ownership.commit import CONDITION, Committer
from ackd.engine.partition.partition import Partition
from ackd.errors import BrokerError
from tests.unit.engine.world import World


async def acked(world: World, number: int, count: int, *more: int) -> Partition:
    """A partition that the group assigned, with ten messages; so many are acked, and some above."""
    partition = await world.owns(number, range(10))
    world.partitions.assigned[partition.tp] = None
    leased = {each.record.offset: each for each in await world.leases(partition, 10)}
    ops = []
    for offset in (*range(count), *more):
        token = world.context.keys.open(leased[offset].lease)
        ops.append(
            Settle(Verb.ACK, offset, token.fence, token.rollback_epoch, attempt=token.attempt)
        )
    await world.flusher.submit(partition.handle, ops)
    await world.flusher.submit(partition.handle, partition.upkeep())
    return partition


def committer(world: World) -> Committer:
    return Committer(world.state, world.context, world.partitions, lambda *_: None)


async def test_the_confirmed_position_goes_with_the_ranges_above_it(world: World) -> None:
    partition = await acked(world, 0, 3, 5, 6, 8)
    await committer(world).commit([partition])
    found = world.consumer.positions[partition.tp]
    assert found.offset == partition.committed == 3
    read = decode(found.metadata)
    assert read is not None
    assert read.ranges == ((5, 7), (8, 9))
    await world.flusher.idle()
    assert Drop(3) in world.store.asked[-1].ops  # the store needs what is below no more
    assert world.count("ackd_commits_total", subscription="work", outcome="done") == 1


async def test_what_has_not_moved_is_not_committed_again(world: World) -> None:
    partition = await acked(world, 0, 3)
    commits = committer(world)
    await commits.commit([partition])
    world.consumer.positions.clear()
    await commits.commit([partition])
    assert world.consumer.positions == {}
    await commits.commit([partition], always=True)
    assert world.consumer.positions[partition.tp].offset == 3


async def test_only_what_the_group_assigned_is_committed(world: World) -> None:
    """The broker would refuse it for another member's partition, and the store has it anyway."""
    mine, other = await acked(world, 0, 3), await acked(world, 1, 4)
    del world.partitions.assigned[other.tp]
    await committer(world).commit([mine, other], always=True)
    assert list(world.consumer.positions) == [mine.tp]
    assert other.committed < 4


async def test_before_a_partition_is_given_away_its_ranges_are_committed_too(world: World) -> None:
    partition = await acked(world, 0, 3)
    commits = committer(world)
    await commits.commit([partition])
    before = world.consumer.positions[partition.tp]
    partition.version += 1
    await commits.commit([partition])
    assert world.consumer.positions[partition.tp] == before
    await commits.commit([partition], last=True)
    after = world.consumer.positions[partition.tp]
    assert after.offset == before.offset
    assert after != before


async def test_a_commit_that_failed_is_as_if_it_had_not_been(world: World) -> None:
    partition = await acked(world, 0, 3)
    commits = committer(world)
    world.consumer.away = True
    with pytest.raises(BrokerError):
        await commits.commit([partition])
    assert partition.committed < 3
    assert world.count("ackd_commits_total", subscription="work", outcome="failed") == 1
    world.consumer.away = False
    await commits.commit([partition])
    assert partition.committed == 3


async def test_a_broker_with_little_room_gets_what_fits(world: World) -> None:
    """I2 is served by the store; the position itself is always committed."""
    partition = await acked(world, 0, 1, 3, 5, 7, 9)
    await committer(world).commit([partition])
    whole = world.consumer.positions[partition.tp]
    chars = len(whole.metadata) - 1
    world.broker.capabilities = replace(world.broker.capabilities, commit_metadata_chars=chars)
    await committer(world).commit([partition], always=True)
    found = world.consumer.positions[partition.tp]
    assert found.offset == 1
    assert len(found.metadata) < len(whole.metadata)
    assert CONDITION not in world.state.conditions
