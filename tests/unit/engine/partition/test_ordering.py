"""What orders a message, and a copy by its origin (I6, R19)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ackd.config.subscription import Ordering
from ackd.core.ids import LedgerKey
from ackd.core.ledger.order import PARTITION, OrderPosition, key_hash
from ackd.core.origin import Origin
from ackd.engine.partition.copy_headers import RetryCopy, retry_copy_headers
from ackd.engine.partition.ordering import OriginRecordRef, position_of
from ackd.ports import Record
from tests.unit.engine.world import NAME, TOPIC_ID


def message(offset: int, key: bytes | None) -> Record:
    return Record(offset, key, b"v", (), 1)


def test_a_key_orders_its_messages_and_no_others() -> None:
    position = position_of("key", NAME, retry_copies=False)
    assert position is not None
    one, two = position(message(3, b"k")), position(message(9, b"k"))
    assert one == OrderPosition(key_hash(b"k"), 3)
    assert two is not None
    assert two.key == one.key
    assert position(message(4, None)) is None
    other = position(message(4, b"K"))
    assert other is not None
    assert other.key != one.key
    assert position(message(4, b"")) is not None  # an empty key is one


def test_a_partition_orders_all_of_its_messages() -> None:
    position = position_of("partition", NAME, retry_copies=False)
    assert position is not None
    assert position(message(3, None)) == OrderPosition(PARTITION, 3)


def test_without_an_order_there_is_no_position() -> None:
    assert position_of("none", NAME, retry_copies=False) is None


ORIGIN = Origin("cluster", TOPIC_ID, "orders", 3, 40)
QUEUED = RetryCopy(ORIGIN, NAME, 9, 7, 5, 4, 0, 0, 800, "age", order_key=6)


def copy(offset: int, retry_copy: RetryCopy) -> Record:
    """As it is in the retry topic at this offset."""
    return Record(offset, b"k", b"v", retry_copy_headers(retry_copy, ()), 1)


@pytest.mark.parametrize("ordering", ["none", "key", "partition"])
def test_a_copy_has_the_position_of_its_message(ordering: Ordering) -> None:
    """However copies lie in the retry topic, and whatever is set now: a blocked key keeps its
    queue, and the copy says which origin record leaves it.
    """
    position = position_of(ordering, NAME, retry_copies=True)
    assert position is not None
    later = replace(QUEUED, origin=replace(ORIGIN, offset=41))
    first, second = position(copy(17, QUEUED)), position(copy(3, later))
    assert first is not None
    assert second is not None
    assert (first.rank, second.rank) == (40, 41)
    assert first.key == second.key
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
    position = position_of("key", NAME, retry_copies=True)
    assert position is not None
    mine, theirs = position(copy(1, QUEUED)), position(copy(2, other))
    assert mine is not None
    assert theirs is not None
    assert mine.key != theirs.key


@pytest.mark.parametrize(
    "record",
    [
        message(3, b"k"),
        copy(1, replace(QUEUED, order_key=0)),
        copy(1, replace(QUEUED, redriven=Origin("cluster", bytes(16), "dead", 0, 4))),
        copy(1, replace(QUEUED, subscription="another")),
    ],
)
def test_what_is_in_no_queue_has_no_position(record: Record) -> None:
    position = position_of("key", NAME, retry_copies=True)
    assert position is not None
    assert position(record) is None
