"""New partitions of a topic wait until the older ones are drained, whoever looks (R19, I6)."""

from __future__ import annotations

import pytest

from ackd.core.ids import LedgerKey, TopicPartition
from ackd.core.log_generations import partition_of
from ackd.core.record.operations import Advance
from ackd.engine.ownership.partition_increase import PartitionIncrease
from ackd.errors import StoreError
from ackd.ports import TopicInfo
from tests.unit.engine.world import NAME, TOPIC, TOPIC_ID, World

OWN = "ackd.retry.work"


def tp(number: int, topic: str = TOPIC) -> TopicPartition:
    return TopicPartition(topic, number)


def info(partitions: int) -> TopicInfo:
    return TopicInfo(TOPIC, TOPIC_ID, partitions)


class Growing:
    """One sidecar's view of a topic that grows."""

    def __init__(self, world: World, **settings: object) -> None:
        world.sets(**({"ordering": "key", "on_partition_increase": "drain"} | settings))
        self.world = world
        self.increase = PartitionIncrease(world.state, world.context.store, OWN)

    async def holds(self, number: int, partitions: int, topic: str = TOPIC) -> bool:
        key = LedgerKey("cluster", NAME, TOPIC_ID, number)
        return await self.increase.holds(tp(number, topic), info(partitions), key)


async def finish(world: World, number: int, count: int) -> None:
    """So many messages of a partition, from its beginning."""
    partition = await world.owns(number, range(count))
    await world.flusher.submit(partition.handle, [Advance(count)])
    partition.closed = True
    world.partitions.remove(partition)


async def test_a_new_partition_waits_for_the_ends_of_the_older_ones(world: World) -> None:
    one, two = Growing(world), Growing(world)
    world.consumer.logs = {tp(0): (0, 3), tp(1): (0, 2)}
    assert [await one.holds(each, 2) for each in range(2)] == [False, False]
    assert await one.holds(2, 3)
    assert await two.holds(2, 3)
    assert not await one.holds(0, 3)
    assert one.increase.words([tp(2), tp(0)]).startswith("1 new partitions wait")
    world.consumer.logs[tp(0)] = (0, 300)  # what came after the increase is not waited for
    await finish(world, 0, 3)
    assert await one.holds(2, 3)
    await finish(world, 1, 2)
    assert not await two.holds(2, 3)
    assert not await one.holds(2, 3)
    assert one.increase.words([tp(2)]) == ""


async def test_what_is_not_finished_holds(world: World) -> None:
    one = Growing(world)
    world.consumer.logs = {tp(0): (0, 3)}
    assert not await one.holds(0, 1)
    await world.owns(0, range(3))
    assert await one.holds(1, 2)


async def test_an_empty_older_partition_without_a_record_is_drained(world: World) -> None:
    one = Growing(world)
    world.consumer.logs = {tp(0): (8, 8)}
    assert not await one.holds(0, 1)
    assert not await one.holds(1, 2)
    world.consumer.logs = {tp(0): (8, 9)}
    assert await one.holds(2, 3)


async def test_two_increases_are_waited_for_in_turn(world: World) -> None:
    """The second one's partition waits for what is in the first one's."""
    one = Growing(world)
    world.consumer.logs = {tp(0): (0, 2), tp(1): (0, 4)}
    assert not await one.holds(0, 1)
    assert await one.holds(1, 2)
    assert await one.holds(2, 3)
    assert await one.holds(1, 3)
    await finish(world, 0, 2)
    assert not await one.holds(1, 3)
    assert await one.holds(2, 3)
    await finish(world, 1, 4)
    assert not await one.holds(2, 3)


@pytest.mark.parametrize(
    "settings", [{"on_partition_increase": "ignore"}, {"ordering": "partition"}]
)
async def test_nothing_waits_where_no_key_can_move(
    world: World, settings: dict[str, object]
) -> None:
    one = Growing(world, **settings)
    world.consumer.logs = {tp(0): (0, 3)}
    assert not await one.holds(0, 1)
    assert not await one.holds(1, 2)


async def test_nothing_waits_at_a_broker_with_individual_acks(world: World) -> None:
    """Its partitions are no numbers in a row: there may be two, of 0 and 32768."""
    world.with_broker_side_acks()
    one = Growing(world)
    world.consumer.logs = {tp(0): (0, 3)}
    assert not await one.holds(0, 1)
    assert not await one.holds(partition_of(0, 1), 1)
    assert await world.store.get(f"growth:{NAME}:{TOPIC_ID.hex()}") is None


async def test_the_retry_topic_never_waits(world: World) -> None:
    one = Growing(world)
    world.consumer.logs = {tp(0, OWN): (0, 3)}
    assert not await one.holds(0, 1, OWN)
    assert not await one.holds(1, 2, OWN)


async def test_a_note_that_others_keep_changing_is_tried_again_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Growing(world)
    world.consumer.logs = {tp(0): (0, 3)}
    assert not await one.holds(0, 1)

    async def changed(name: str, expected: bytes | None, value: bytes) -> bytes | None:
        del name, value
        return expected

    monkeypatch.setattr(world.context.store, "swap", changed)
    with pytest.raises(StoreError):
        await one.holds(1, 2)
