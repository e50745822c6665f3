"""What this sidecar owns, and the topics that the broker described."""

from __future__ import annotations

import pytest

from ackd.core.ids import TopicPartition
from ackd.engine.partition.partition import Partition
from ackd.errors import BrokerError
from ackd.ports import TopicInfo
from tests.unit.engine.world import ME, TOPIC, TOPIC_ID, World

OTHER_ID = bytes(range(64, 80))


# --- partitions


async def test_a_partition_is_found_by_its_place_and_by_its_record(world: World) -> None:
    one, two = await world.owns(0), await world.owns(1)
    partitions = world.partitions
    assert partitions.all() == [one, two]
    assert partitions.owned[TopicPartition(TOPIC, 1)] is two
    assert partitions.by_ledger[TOPIC_ID, 1] is two
    assert partitions.keys() == [one.key.text(), two.key.text()]


async def test_a_partition_that_was_taken_anew_is_not_lost_with_the_old_one(world: World) -> None:
    """The loss of the old one may be heard of late."""
    old = await world.owns(0)
    new = await world.owns(0)
    partitions = world.partitions
    assert not partitions.remove(old)
    assert (partitions.all(), partitions.by_ledger[TOPIC_ID, 0]) == ([new], new)
    assert partitions.remove(new)
    assert not partitions.remove(new)
    assert (partitions.all(), partitions.by_ledger) == ([], {})


async def test_partitions_may_go_while_somebody_goes_through_them(world: World) -> None:
    for number in range(3):
        await world.owns(number)
    seen: list[Partition] = []
    for each in world.partitions.all():
        world.partitions.remove(each)
        seen.append(each)
    assert [each.tp.partition for each in seen] == [0, 1, 2]


async def test_messages_of_all_partitions_are_counted(world: World) -> None:
    one = await world.owns(0, range(4), size=100)
    await world.owns(1, range(2), size=50)
    await world.leases(one, 3)
    partitions = world.partitions
    assert (partitions.leased(), partitions.waiting()) == (3, 0)
    ready, size = partitions.held()
    assert ready == 3
    assert size == 4 * 100 + 2 * 50
    partitions.remove(one)
    assert (partitions.leased(), partitions.held()) == (0, (2, 100))


async def test_what_was_set_aside_is_taken_back_once(world: World) -> None:
    one = await world.owns(0)
    partitions = world.partitions
    partitions.set_all_aside()
    partitions.remove(one)
    assert partitions.set_aside == {one.tp: one.key.text()}
    assert partitions.take_back() == {one.tp: one.key.text()}
    assert partitions.take_back() == {}


async def test_a_boot_number_makes_another_owner_of_the_same_name(world: World) -> None:
    before = world.partitions.me
    world.partitions.registered(7)
    assert (world.partitions.me.name, world.partitions.me.boot) == (ME, 7)
    assert world.partitions.me != before


async def test_what_the_group_assigned_is_apart_from_what_is_owned(world: World) -> None:
    tp = TopicPartition(TOPIC, 3)
    world.partitions.assign(tp)
    assert (list(world.partitions.assigned), world.partitions.all()) == ([tp], [])
    world.partitions.unassign(tp)
    world.partitions.unassign(tp)
    assert not world.partitions.assigned


# --- topics


async def test_a_known_topic_is_not_asked_for_again_until_it_is_forgotten(world: World) -> None:
    topics = world.topics
    assert topics.id_of(TOPIC) is None
    assert (await topics.of(TOPIC)).topic_id == TOPIC_ID
    world.consumer.known = [TopicInfo(TOPIC, OTHER_ID, 4)]  # made again
    assert (await topics.of(TOPIC)).topic_id == TOPIC_ID
    topics.forget(TOPIC)
    assert topics.id_of(TOPIC) is None
    assert (await topics.of(TOPIC)).topic_id == OTHER_ID
    assert topics.id_of(TOPIC) == OTHER_ID


async def test_a_topic_that_the_broker_does_not_have_is_an_error(world: World) -> None:
    with pytest.raises(BrokerError, match="'payments'"):
        await world.topics.of("payments")
    assert TOPIC in world.topics.known  # it asked


@pytest.mark.parametrize(
    ("known", "away", "gone"),
    [
        ([TopicInfo(TOPIC, OTHER_ID, 4)], False, True),
        ([TopicInfo(TOPIC, TOPIC_ID, 4)], False, False),
        ([TopicInfo("renamed", TOPIC_ID, 4)], False, False),
        ([], False, False),
        ([TopicInfo(TOPIC, OTHER_ID, 4)], True, False),
    ],
    ids=["made again", "there", "same identity", "broker says nothing", "broker away"],
)
async def test_a_topic_is_gone_only_if_the_broker_says_so(
    world: World, known: list[TopicInfo], *, away: bool, gone: bool
) -> None:
    """Who believes it gives the progress of its records up."""
    world.consumer.known, world.consumer.away = known, away
    assert await world.topics.is_gone(TOPIC_ID) is gone
