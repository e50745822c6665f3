"""Commits to the broker: what the store has confirmed, of whom the group asks (R8, R16)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pytest

from ackd.api.messages import Delivery
from ackd.core.commit_metadata import decode
from ackd.core.ids import TopicPartition
from ackd.core.record.operations import Drop, Settle
from ackd.core.record.transitions import Verb
from ackd.engine.ownership.commit import CONDITION, EARLY, TICKS, Committer
from ackd.engine.partition.partition import Partition
from ackd.errors import BrokerError
from ackd.ports import Committed
from tests.unit.engine.world import World


async def all_leased(
    world: World, count: int = 10, number: int = 0
) -> tuple[Partition, list[Delivery]]:
    """A partition that the group assigned, with so many messages under lease."""
    partition = await world.owns(number, range(count))
    world.partitions.assigned[partition.tp] = None
    return partition, await world.leases(partition, count)


async def settle(world: World, partition: Partition, leased: Iterable[Delivery]) -> None:
    """Ack these, and let the store confirm the watermark."""
    ops = []
    for each in leased:
        token = world.context.keys.open(each.lease)
        offset = each.record.offset
        ops.append(
            Settle(Verb.ACK, offset, token.fence, token.rollback_epoch, attempt=token.attempt)
        )
    await world.flusher.submit(partition.handle, ops)
    await world.flusher.submit(partition.handle, partition.upkeep())


async def acked(world: World, number: int, count: int, *more: int) -> Partition:
    """A partition that the group assigned, with ten messages; so many are acked, and some above."""
    partition, leased = await all_leased(world, number=number)
    await settle(world, partition, [leased[offset] for offset in (*range(count), *more)])
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


async def test_what_finished_above_a_standing_watermark_is_committed_too(world: World) -> None:
    """I2: with the store's data gone, only the commit knows that these messages are over."""
    partition, leased = await all_leased(world)
    commits = committer(world)
    await settle(world, partition, leased[:1])
    await commits.commit([partition])
    await settle(world, partition, leased[4:6])
    await commits.commit([partition])
    found = world.consumer.positions[partition.tp]
    read = decode(found.metadata)
    assert read is not None
    assert (found.offset, read.ranges) == (1, ((4, 6),))
    world.consumer.positions.clear()
    partition.version += 1  # a lease was extended, say
    await commits.commit([partition])
    assert world.consumer.positions == {}


async def test_acks_that_come_while_a_commit_is_under_way_are_in_the_next(world: World) -> None:
    partition, leased = await all_leased(world)
    commits = committer(world)
    await settle(world, partition, leased[:1])
    send = world.consumer.commit

    async def slow(positions: Mapping[TopicPartition, Committed]) -> None:
        await settle(world, partition, leased[7:8])
        await send(positions)

    world.consumer.commit = slow  # type: ignore[method-assign]
    await commits.commit([partition])
    world.consumer.commit = send  # type: ignore[method-assign]
    assert "|" not in world.consumer.positions[partition.tp].metadata
    await commits.commit([partition])
    read = decode(world.consumer.positions[partition.tp].metadata)
    assert read is not None
    assert read.ranges == ((7, 8),)


@pytest.mark.parametrize(("count", "early"), [(EARLY - 1, False), (EARLY, True)])
async def test_many_messages_are_committed_before_the_interval_is_over(
    world: World, count: int, *, early: bool
) -> None:
    """The more finish in a second, the more would come again."""
    world.sets(commit_interval_ms=1_000)
    partition, leased = await all_leased(world, count + 1)
    commits = committer(world)
    await commits.commit([partition], always=True)
    task = asyncio.get_running_loop().create_task(commits.run())
    await settle(world, partition, leased[1:])  # the first one holds the watermark
    world.consumer.positions.clear()
    await asyncio.sleep(1.5 / TICKS)
    assert bool(world.consumer.positions) is early
    await asyncio.sleep(1)
    assert world.consumer.positions
    task.cancel()


async def test_where_nothing_is_open_it_looks_once_an_interval(world: World) -> None:
    """And at once when messages have come: see the test above."""
    world.sets(commit_interval_ms=1_000)
    partition = await acked(world, 0, 10)
    commits = committer(world)
    looks: list[int] = []
    whole = commits.commit

    async def counted(partitions: Sequence[Partition], **how: bool) -> None:
        looks.append(len(partitions))
        await whole(partitions, **how)

    await commits.commit([partition], always=True)
    commits.commit = counted  # type: ignore[method-assign]
    task = asyncio.get_running_loop().create_task(commits.run())
    await asyncio.sleep(2.5)
    looks.clear()
    await asyncio.sleep(3)
    assert len(looks) == 3
    world.fetches(partition, [10])
    commits.look()
    await asyncio.sleep(0.35)
    assert len(looks) == 6
    task.cancel()


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
