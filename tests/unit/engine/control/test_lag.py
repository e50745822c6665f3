"""Progress of partitions: those here in numbers, those of other sidecars by their owners' names."""

from __future__ import annotations

import pytest

from ackd.api.messages import PartitionLag, SettleItem, SettleVerb
from ackd.core.ids import LedgerKey, TopicPartition
from ackd.engine.control.lag import Lag
from ackd.engine.settlement.settle import Settler
from ackd.ports import Member, Members, Record
from tests.unit.engine.world import ME, NAME, TOPIC, TOPIC_ID, World

TP = TopicPartition(TOPIC, 0)


@pytest.fixture
async def lag(world: World) -> Lag:
    return Lag(world.state, world.context, world.partitions, world.topics, world.membership)


def others(world: World, **owned: list[str]) -> None:
    """These sidecars are there, with these records."""
    members = tuple(Member(name, 1, 0, "", tuple(keys), "") for name, keys in owned.items())
    found = Members(world.clock.wall_ms(), members, superseded=False)
    world.membership.view.update(found, [], beating_ms=60_000)


def key(number: int, topic_id: bytes = TOPIC_ID) -> str:
    return LedgerKey("cluster", NAME, topic_id, number).text()


async def one(lag: Lag) -> PartitionLag:
    (row,) = await lag.rows()
    return row


async def test_each_state_of_a_message_has_its_number(world: World, lag: Lag) -> None:
    partition = await world.owns(0, range(10))
    world.consumer.logs[TP] = (0, 12)
    leases = await world.leases(partition, 5)
    verbs = [SettleVerb.ACK, SettleVerb.ACK, SettleVerb.RETRY]
    items = [SettleItem(lease.lease, verb) for lease, verb in zip(leases[2:], verbs, strict=True)]
    await Settler({NAME: world.settles}, world.context).settle(items)
    row = await one(lag)
    assert (row.topic, row.partition, row.owner) == (TOPIC, 0, ME)
    assert (row.end, row.committed, row.watermark) == (12, partition.committed, 0)
    assert (row.leased, row.ready, row.retrying, row.done_above) == (2, 5, 1, 2)


async def test_the_age_is_that_of_the_message_that_holds_the_watermark(
    world: World, lag: Lag
) -> None:
    partition = await world.owns(0)
    assert (await one(lag)).oldest_age_ms is None
    world.fetches(partition, range(2))  # published at 1,000
    row = await one(lag)
    assert row.oldest_age_ms == world.clock.wall_ms() - 1_000
    world.clock.pass_ms(500)
    assert (await one(lag)).oldest_age_ms == row.oldest_age_ms + 500


async def test_a_clock_behind_that_of_the_producer_shows_no_negative_age(
    world: World, lag: Lag
) -> None:
    partition = await world.owns(0)
    intake, ahead_ms = partition.ledger.intake, world.clock.wall_ms() + 5_000
    intake.fetched(intake.session, [Record(0, b"k", b"v", (), ahead_ms)])
    assert (await one(lag)).oldest_age_ms == 0


async def test_while_the_broker_is_away_the_last_known_end_is_shown(world: World, lag: Lag) -> None:
    await world.owns(0)
    world.consumer.logs[TP] = (0, 70)
    assert (await one(lag)).end == 70
    world.consumer.away = True
    assert (await one(lag)).end == 70


async def test_partitions_of_others_have_their_owners_names_only(world: World, lag: Lag) -> None:
    await world.owns(1)
    await world.topics.read()
    others(world, **{"pod-2": [key(2)], "pod-3": [key(0), key(10)]})
    rows = await lag.rows()
    assert [(row.topic, row.partition, row.owner) for row in rows] == [
        (TOPIC, 0, "pod-3"),
        (TOPIC, 1, ME),
        (TOPIC, 2, "pod-2"),
        (TOPIC, 10, "pod-3"),
    ]
    assert rows[0] == PartitionLag(TOPIC, 0, "pod-3", -1, -1, -1, 0, 0, 0, 0, None)


async def test_a_topic_that_is_not_known_here_is_shown_by_its_identity(
    world: World, lag: Lag
) -> None:
    other = bytes(range(64, 80))
    others(world, **{"pod-2": [key(2, other)]})
    assert (await one(lag)).topic == other.hex()
