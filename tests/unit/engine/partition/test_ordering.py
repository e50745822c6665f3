"""What orders a message, and a copy by its origin (I6, R19); delays of other clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from ackd.config.subscription import Ordering
from ackd.core.ids import LedgerKey
from ackd.core.ledger.effects import Effect, StoreForeignDelays
from ackd.core.ledger.order import PARTITION, OrderPosition, key_hash
from ackd.core.origin import Origin
from ackd.core.record.operations import PlaceCopy
from ackd.engine.partition import foreign_delays
from ackd.engine.partition.copy_headers import RetryCopy, retry_copy_headers
from ackd.engine.partition.ordering import OriginRecordRef, place_of
from ackd.engine.partition.partition import EffectHandler
from ackd.ports import Delay, Record
from tests.unit.engine.world import NAME, TOPIC_ID, World


def message(offset: int, key: bytes | None) -> Record:
    return Record(offset, key, b"v", (), 1)


def test_a_key_orders_its_messages_and_no_others() -> None:
    place = place_of("key", NAME, retry_copies=False)
    assert place is not None
    one, two = place(message(3, b"k")), place(message(9, b"k"))
    assert one == OrderPosition(key_hash(b"k"), 3)
    assert two is not None
    assert two.chain == one.chain
    assert place(message(4, None)) is None
    other = place(message(4, b"K"))
    assert other is not None
    assert other.chain != one.chain
    assert place(message(4, b"")) is not None  # an empty key is one


def test_a_partition_orders_all_of_its_messages() -> None:
    place = place_of("partition", NAME, retry_copies=False)
    assert place is not None
    assert place(message(3, None)) == OrderPosition(PARTITION, 3)


def test_without_an_order_there_is_no_place() -> None:
    assert place_of("none", NAME, retry_copies=False) is None


ORIGIN = Origin("cluster", TOPIC_ID, "orders", 3, 40)
QUEUED = RetryCopy(ORIGIN, NAME, 9, 7, 5, 4, 0, 0, 800, "age", order_key=6)


def copy(offset: int, retry_copy: RetryCopy) -> Record:
    """As it is in the retry topic at this offset."""
    return Record(offset, b"k", b"v", retry_copy_headers(retry_copy, ()), 1)


@pytest.mark.parametrize("ordering", ["none", "key", "partition"])
def test_a_copy_has_the_place_of_its_message(ordering: Ordering) -> None:
    """However copies lie in the retry topic, and whatever is set now: a blocked key keeps its
    queue, and the copy says which origin record leaves it.
    """
    place = place_of(ordering, NAME, retry_copies=True)
    assert place is not None
    later = replace(QUEUED, origin=replace(ORIGIN, offset=41))
    first, second = place(copy(17, QUEUED)), place(copy(3, later))
    assert first is not None
    assert second is not None
    assert (first.rank, second.rank) == (40, 41)
    assert first.chain == second.chain
    key = LedgerKey("cluster", NAME, TOPIC_ID, 3)
    assert first.origin_record == OriginRecordRef(key, 7, 40, 9)


@pytest.mark.parametrize(
    "other",
    [
        replace(QUEUED, order_key=5),
        replace(QUEUED, incarnation=8),
        replace(QUEUED, origin=replace(ORIGIN, partition=4)),
    ],
)
def test_copies_of_other_queues_are_not_in_order_with_it(other: RetryCopy) -> None:
    place = place_of("key", NAME, retry_copies=True)
    assert place is not None
    mine, theirs = place(copy(1, QUEUED)), place(copy(2, other))
    assert mine is not None
    assert theirs is not None
    assert mine.chain != theirs.chain


@pytest.mark.parametrize(
    "record",
    [
        message(3, b"k"),
        copy(1, replace(QUEUED, order_key=0)),
        copy(1, replace(QUEUED, redriven=Origin("cluster", bytes(16), "dead", 0, 4))),
        copy(1, replace(QUEUED, subscription="another")),
    ],
)
def test_what_is_in_no_queue_has_no_place(record: Record) -> None:
    place = place_of("key", NAME, retry_copies=True)
    assert place is not None
    assert place(record) is None


# --- delays of other clients ------------------------------------------------------------------


async def delayed(world: World, delays: Mapping[int, Delay]) -> list[tuple[int, int, int, int]]:
    """What is written into the record: offset, attempt, due time, first delivery in seconds."""
    effects: dict[type[Effect], EffectHandler] = {StoreForeignDelays: foreign_delays.write}
    partition = await world.owns(0, wiring=replace(world.events.wiring(), effects=effects))
    foreign_delays.reported(partition, partition.ledger.intake.session, delays)
    world.fetches(partition, range(3))
    await world.flusher.idle()
    ops = [op for call in world.store.asked for op in call.ops if isinstance(op, PlaceCopy)]
    return [(op.offset, op.attempt, op.due_ms, op.first_s) for op in ops]


async def test_a_delay_of_another_client_is_in_the_record(world: World) -> None:
    """With the attempts that it had elsewhere. Its age counts from when it is due, so that no
    message TTL ends it before.
    """
    due_ms = world.clock.wall_ms() + 60_000
    assert await delayed(world, {1: Delay(due_ms, 4)}) == [(1, 4, due_ms, due_ms // 1_000)]
    partition = world.partitions.all()[0]
    assert partition.ledger.waiting == 1
    assert partition.ledger.ready == 2


async def test_numbers_of_other_clients_are_cut_to_what_the_record_has_room_for(
    world: World,
) -> None:
    most_ms = foreign_delays.DUE_MS_MAX
    found = await delayed(world, {0: Delay(1 << 60, 1 << 40), 1: Delay(1, -1)})
    assert found == [(0, (1 << 16) - 1, most_ms, most_ms // 1_000)]  # the other is over
