"""What the judge excuses where origin records are forgotten, and what it does not (R2, R10, I3)."""

from __future__ import annotations

from typing import Any

import pytest

from ackd.core.ids import LedgerKey
from ackd.core.record.protocol import Open
from tests.simulation.book import Book, Coordinate, Holding
from tests.simulation.faults import TOPIC, Nemesis
from tests.simulation.origin_records import apart, unknown, without_origin
from tests.simulation.plan import Story
from tests.simulation.run import NAME, Run

ORIGIN, COPY = Coordinate(b"o" * 16, 0, 7), Coordinate(b"r" * 16, 0, 0)
BY: Any = None
"""Nobody is asked."""


def holding(at: Coordinate) -> Holding:
    """A lease of the message, or of its copy."""
    return Holding(5, 5, BY, granted_us=20, granted_ms=0, until_ms=60_000, at=at)


def moved_by(*gone_us: int) -> Book:
    """A message was sent back at 10 us, and its record was forgotten then."""
    book = Book()
    book.message(ORIGIN).moved_by.append((BY, 10))
    book.ledger(ORIGIN.place).gone_us += gone_us
    return book


def test_a_record_is_lost_from_when_it_is_forgotten_not_from_when_it_is_made_anew() -> None:
    assert not unknown(moved_by(), ORIGIN)
    assert unknown(moved_by(15), ORIGIN)
    assert without_origin(moved_by(15), ORIGIN, 20)
    assert not without_origin(moved_by(5), ORIGIN, 20)  # before there was an origin record


@pytest.mark.parametrize(("gone_us", "excused"), [((), False), ((5,), False), ((15,), True)])
def test_r17_two_leases_are_apart_only_without_the_origin_record(
    gone_us: tuple[int, ...], *, excused: bool
) -> None:
    book = moved_by(*gone_us)
    assert apart(book, ORIGIN, holding(COPY), holding(ORIGIN), 30) is excused
    for at in (ORIGIN, COPY):
        assert not apart(book, ORIGIN, holding(at), holding(at), 30)


@pytest.mark.parametrize(("lost", "gone"), [(0, 0), (1, 1)])
def test_only_a_rollback_that_takes_the_record_counts(lost: int, gone: int) -> None:
    run = Run(1, Story(settings=(("partitions", 1),)))
    topic_id = run.cluster.topics[TOPIC].topic_id
    key = LedgerKey(run.cluster.name, NAME, topic_id, 0)
    request = Open(key, "a#1", rollback_epoch=1, incarnation=1, grace_ms=0, create_at=0)
    run.server.execute(lambda store: store.open(request))
    for _ in range(2):
        Nemesis(run)._roll_back(lost, silent=False)
    assert len(run.checker.book.ledger(ORIGIN._replace(topic_id=topic_id).place).gone_us) == gone
    run.clean_up()
