"""The leader epoch is in the store before a message of it is in the ledger (R1)."""

from __future__ import annotations

import pytest

from ackd.core.ids import TopicPartition
from ackd.engine.ownership.leader_epochs import LeaderEpochs
from ackd.engine.partition.partition import Partition
from ackd.errors import StoreError
from ackd.ports import Fetched
from tests.unit.engine.world import TestConsumer, World, record


class SeeingConsumer(TestConsumer):
    """Also implements `ackd.ports.SeesTruncation`."""

    def __init__(self) -> None:
        super().__init__()
        self.expected: list[tuple[int, int]] = []

    def expect(self, partition: TopicPartition, end: int, leader_epoch: int) -> None:
        del partition
        self.expected.append((end, leader_epoch))


class Led:
    """A partition of a log that tells its leader epochs."""

    def __init__(self, world: World) -> None:
        self.world, self.consumer = world, SeeingConsumer()
        world.consumer = self.consumer

    async def opens(self) -> tuple[LeaderEpochs, Partition]:
        """As a sidecar does that takes the partition."""
        epochs = LeaderEpochs(self.consumer, self.world.context.store)
        partition = await self.world.owns(0, range(3))
        await epochs.opened(partition)
        return epochs, partition


def fetched(partition: Partition, epoch: int) -> Fetched:
    session = partition.ledger.intake.session
    return Fetched(partition.tp, session, [record(3)], leader_epoch=epoch)


async def test_a_record_without_an_epoch_has_nothing_to_check(world: World) -> None:
    led = Led(world)
    epochs, partition = await led.opens()
    assert led.consumer.expected == [(0, -1)]
    assert await epochs.fetched(partition, fetched(partition, 4))
    assert epochs.of(partition) == 4


async def test_the_next_owner_checks_what_was_read_before(world: World) -> None:
    """Also what was truncated while no sidecar ran."""
    led = Led(world)
    epochs, partition = await led.opens()
    assert await epochs.fetched(partition, fetched(partition, 4))
    epochs, again = await led.opens()
    assert led.consumer.expected[1:] == [(3, 4)]
    assert epochs.of(again) == 4


async def test_a_new_leader_is_checked_before_its_records_count(world: World) -> None:
    """They are fetched again after the check, and then they do."""
    led = Led(world)
    epochs, partition = await led.opens()
    assert await epochs.fetched(partition, fetched(partition, 4))
    sessions = len(led.consumer.fetched_from)
    assert not await epochs.fetched(partition, fetched(partition, 5))
    assert led.consumer.expected[-1] == (3, 4)
    assert led.consumer.fetched_from[sessions:] == [(partition.tp, 3)]
    assert epochs.of(partition) == 4
    assert await epochs.fetched(partition, fetched(partition, 5))
    assert epochs.of(partition) == 5
    assert not await epochs.fetched(partition, fetched(partition, 6))


async def test_without_the_store_no_record_counts(world: World) -> None:
    led = Led(world)
    epochs, partition = await led.opens()
    world.store.away = True
    with pytest.raises(StoreError):
        await epochs.fetched(partition, fetched(partition, 4))
    assert epochs.of(partition) == -1


async def test_records_of_an_old_session_mean_nothing(world: World) -> None:
    led = Led(world)
    epochs, partition = await led.opens()
    old = fetched(partition, 4)
    partition.start_fetching()
    assert await epochs.fetched(partition, old)
    assert epochs.of(partition) == -1


async def test_another_record_of_the_partition_does_not_know_the_epoch(world: World) -> None:
    """Perhaps nobody has read what is below its position."""
    led = Led(world)
    epochs, partition = await led.opens()
    assert await epochs.fetched(partition, fetched(partition, 4))
    world.data.records.clear()
    again = LeaderEpochs(led.consumer, world.context.store)
    fresh = await world.owns(0)
    fresh.handle.incarnation += 1
    await again.opened(fresh)
    assert led.consumer.expected[-1] == (0, -1)
