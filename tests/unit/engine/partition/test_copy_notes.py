"""What people read of a copy: names, why a message moved, what its application reported."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ackd.core.ledger.entry import Entry, EntryStatus
from ackd.core.ledger.send_back import Stuck, Why
from ackd.core.origin import Origin
from ackd.core.record.operations import MarkDead, PlaceCopy
from ackd.engine.base.spill_file import Held, Stub
from ackd.engine.partition import copy_notes
from ackd.engine.partition.copy_headers import RetryCopy, retry_copy_headers
from ackd.engine.partition.copy_notes import Copies
from ackd.engine.partition.partition import Partition, Policy
from ackd.ports import Record
from tests.unit.engine.retry_stage import RETRY_ID, RETRY_TOPIC
from tests.unit.engine.world import NAME, TOPIC, TOPIC_ID, World

ORIGIN = Origin("cluster", TOPIC_ID, TOPIC, 3, 40)
RETRY_COPY = RetryCopy(ORIGIN, NAME, *(9, 7, 5, 4, 0, 900, 800))
OTHER_ID = bytes(16)


async def of_copies(world: World) -> Partition:
    """A partition of the retry topic, in which topics are known by their present identities."""
    policy = Policy(None, 0, retry_copies=True)
    partition = await world.owns(0, policy=policy, topic=(RETRY_TOPIC, RETRY_ID))
    partition.copies.find_topics({TOPIC: TOPIC_ID}.get)
    return partition


def arrives(partition: Partition, at: int, retry_copy: RetryCopy | None) -> Entry[Held]:
    headers = () if retry_copy is None else retry_copy_headers(retry_copy, ())
    intake = partition.ledger.intake
    intake.fetched(intake.session, [Record(at, b"k", b"v", headers, 1)])
    found = partition.ledger.entry(at)
    assert found is not None
    return found


# --- names


async def test_a_message_has_the_name_of_its_place_and_a_copy_that_of_its_origin(
    world: World,
) -> None:
    plain = await world.owns(0, [5])
    assert plain.copies.name_of(5) == plain.copies.name_of(5) == "orders/0/5"
    assert plain.copies.origin(5) == Origin("cluster", TOPIC_ID, TOPIC, 0, 5)
    copies = await of_copies(world)
    arrives(copies, 7, RETRY_COPY)
    arrives(copies, 8, None)
    assert copies.copies.name_of(7) == "orders/3/40"
    assert copies.copies.name_of(8) == "ackd.retry.work/0/8"
    assert copies.copies.name_of(9) == "ackd.retry.work/0/9"


async def test_r25_headers_of_a_copy_in_a_plain_topic_name_nothing(world: World) -> None:
    """Anybody may write them there."""
    plain = await world.owns(0)
    arrives(plain, 0, RETRY_COPY)
    assert plain.copies.name_of(0) == "orders/0/0"


@pytest.mark.parametrize(
    ("origin", "named"),
    [
        (ORIGIN, True),
        (replace(ORIGIN, topic="unknown"), True),
        (replace(ORIGIN, cluster="far"), False),
        (replace(ORIGIN, topic_id=OTHER_ID), False),
    ],
)
async def test_r1_a_copy_has_no_name_that_belongs_to_another_message(
    world: World, origin: Origin, *, named: bool
) -> None:
    """Its topic may have been deleted and made again, or be that of another cluster."""
    copies = await of_copies(world)
    arrives(copies, 7, replace(RETRY_COPY, origin=origin))
    assert (copies.copies.name_of(7) == origin.id) is named


async def test_a_body_on_the_disk_keeps_the_name_that_it_was_given(world: World) -> None:
    copies = await of_copies(world)
    entry = arrives(copies, 7, RETRY_COPY)
    assert isinstance(entry.body, Record)
    stub = Stub(entry.body)
    entry.body = stub
    assert copies.copies.name_of(7) == "ackd.retry.work/0/7"
    stub.name = "orders/3/40"
    assert copies.copies.name_of(7) == "orders/3/40"


def test_what_is_dead_in_its_origin_is_placed_and_dead_at_once() -> None:
    """Of the two answers only the second counts for the owner."""
    assert Copies.place_dead(7, 9, 4, 1) == [
        PlaceCopy(7, 9, attempt=4, first_s=1, then_dead=True),
        MarkDead(7, 9, claimed=True),
    ]
    assert Copies.place(7, 9, 4, 60, 1) == PlaceCopy(7, 9, attempt=4, due_ms=60, first_s=1)


# --- errors


async def test_the_first_and_the_last_reason_are_kept(world: World) -> None:
    copies = (await world.owns(0, [0])).copies
    assert copies.errors(0) == ("", "")
    for error in ("one", "two", "three"):
        copies.failed_with(0, error)
    assert copies.errors(0) == ("one", "three")
    copies.failed_so(0, "stored first", "stored last")
    assert copies.errors(0) == ("stored first", "stored last")
    copies.forget(0)
    assert copies.errors(0) == ("", "")


async def test_reasons_under_the_lease_of_the_original_go_on_in_its_copy(world: World) -> None:
    origin, copies = (await world.owns(0)).copies, (await of_copies(world)).copies
    origin.failed_with(4, "early")
    origin.failed_with(4, "late")
    copies.take_errors(7, origin, 4)
    assert (copies.errors(7), origin.errors(4)) == (("early", "late"), ("", ""))
    origin.failed_with(4, "later")
    copies.take_errors(7, origin, 4)
    assert copies.errors(7) == ("early", "later")
    copies.take_errors(7, origin, 4)
    assert copies.errors(7) == ("early", "later")


# --- why it leaves


async def test_why_a_message_moved_is_known_to_who_moved_it(world: World) -> None:
    copies = (await world.owns(0, [0])).copies
    copies.going([Stuck(0, Why.SPAN), Stuck(1, Why.KEY)])
    assert [copies.why(offset) for offset in range(3)] == ["span", "key", ""]
    assert copies.reason(0) == "span"
    copies.forget(0)
    assert copies.reason(0) == ""


async def test_why_a_message_is_dead(world: World) -> None:
    """What its application said, else the limit that it reached."""
    policy = Policy(None, 4, retry_copies=False, message_ttl_ms=90_000)
    partition = await world.owns(0, range(4), policy=policy)
    copies, ledger = partition.copies, partition.ledger
    for offset, attempt in enumerate((4, 4, 1, 3)):
        entry = ledger.entry(offset)
        assert entry is not None
        entry.status, entry.attempt = EntryStatus.DEAD, attempt
    copies.failed_with(1, "no such customer")
    copies.out_of_time(2)
    assert copies.reason(0) == "no attempt left after 4 deliveries"
    assert copies.reason(1) == "no such customer"
    assert copies.reason(2) == "older than message_ttl_ms: 90 s after its first delivery"
    assert copies.reason(3) == ""
    entry = ledger.entry(3)
    assert entry is not None
    entry.first_s = 1
    ledger.deadlines.tick(world.clock.monotonic_ms())
    assert copies.reason(3).startswith("older than message_ttl_ms")


async def test_without_a_bound_on_deliveries_no_number_of_them_is_a_reason(world: World) -> None:
    partition = await world.owns(0, [0])
    entry = partition.ledger.entry(0)
    assert entry is not None
    entry.status, entry.attempt = EntryStatus.DEAD, 9
    assert partition.copies.reason(0) == ""


async def test_i8_the_oldest_notes_are_dropped_first(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy_notes, "NOTES_MAX", 3)
    copies = (await world.owns(0, range(5))).copies
    for offset in range(5):
        copies.failed_with(offset, "e")
        copies.going([Stuck(offset, Why.AGE)])
    assert [copies.errors(offset)[1] for offset in range(5)] == ["", "", "e", "e", "e"]
    assert [copies.why(offset) for offset in range(5)] == ["", "", "age", "age", "age"]
