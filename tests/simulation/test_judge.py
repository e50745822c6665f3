"""What the judge excuses of seeks, cancels and shortened leases, and what it still finds."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from ackd.core.ids import LedgerKey
from ackd.engine.operations.seek_document import SeekDocument, SeekTarget
from tests.simulation.book import Book, Coordinate, Holding, Lease, Place, Rollback
from tests.simulation.draw import draw
from tests.simulation.excuses import Excuses
from tests.simulation.peers import Wires
from tests.simulation.plan import GENERAL
from tests.simulation.process import Process
from tests.simulation.returns import BACK_US, SETTLED_US, Returns
from tests.simulation.seeks import Seeks
from tests.simulation.shares import SOON_US, Shares
from tests.simulation.world import START_US, S, Violation, World

AT, COPY = Coordinate(b"o" * 16, 0, 7), Coordinate(b"r" * 16, 0, 0)
SOUGHT = 3
BY: Any = None
"""Nobody is asked."""


# --- I1: a seek and the copies that are under lease meanwhile


def seek(*, ends_before: bool, position: int = SOUGHT) -> Book:
    """A seek that keeps a copy, whose ack counts either before it began or while it ran."""
    book, failed = Book(), list[str]()
    seeks = Seeks(book, {COPY: AT}, lambda _: None, failed.append)
    message = book.message(AT)
    message.claimed_by, message.sent = COPY, True
    if ends_before:
        message.acked_us = 10
    target = SeekTarget("orders", AT.topic_id.hex(), AT.partition, SOUGHT)
    document = SeekDocument(
        kind="seek", id="1", subscription="orders", to="positions",
        increase_only=False, targets=[target], created_ms=0,
    )  # fmt: skip
    seeks.written("operation:1", document.text())
    book.ledger(Place(AT.topic_id, AT.partition)).resets.append(position)
    if not ends_before:
        message.acked_us = 20
    seeks.reset(LedgerKey("c", "orders", AT.topic_id, AT.partition), position, 1)
    assert not message.done  # it would come again, if the seek did not keep its copy
    seeks.skipped(AT)
    assert failed == []
    return book


def test_i1_an_ack_of_a_kept_copy_counts_while_the_seek_runs() -> None:
    assert seek(ends_before=False).message(AT).done


def test_i1_a_seek_that_skips_what_was_acked_before_it_began_is_found() -> None:
    """That message was asked for again, and no copy has it any more."""
    message = seek(ends_before=True).message(AT)
    assert message.sent
    assert not message.done  # `Run._judge`: no copy of it was kept


def test_i1_of_a_foreign_reset_no_earlier_ack_counts() -> None:
    """Its copies are looked for after the reset, not before."""
    assert not seek(ends_before=False, position=SOUGHT + 1).message(AT).done


def test_i7_a_seek_ends_leases_also_of_a_topic_that_was_deleted_while_it_ran() -> None:
    """Of what it passes, and of nothing else."""
    book, failed = Book(), list[str]()
    seeks = Seeks(book, {}, lambda _: None, failed.append)
    passed, kept = book.message(AT._replace(offset=SOUGHT - 1)), book.message(AT)
    book.ledger(AT.place).resets.append(SOUGHT)
    seeks.reset(LedgerKey("c", "orders", AT.topic_id, AT.partition), SOUGHT, 1)
    assert (passed.skipped, kept.skipped, failed) == (True, False, [])


# --- I3: a lease of a message that an operator ended


@pytest.mark.parametrize(("lost_us", "held"), [(0, False), (30, True)])
def test_i3_a_cancelled_lease_is_over_unless_the_store_forgets_the_cancel(
    lost_us: int, *, held: bool
) -> None:
    world = World(1)
    seen, process = Excuses(world), Process(world, "s0")
    lease = Holding(5, 5, process, granted_us=10, granted_ms=0, until_ms=60_000, at=AT)
    lease.told_ms, lease.told_us = 60_000, world.now_us + 60 * S
    lease.changed_us, lease.told_by = 10, process
    assert seen.still_held(lease, 1_000)
    lease.cancelled_us = 40
    if lost_us:
        seen.book.rollbacks.append(Rollback(lost_us, 50, silent=False))
    assert seen.still_held(lease, 1_000) is held


# --- I4: a lease that was made shorter


def late(*, lost: bool, after_s: int, deleted: bytes = b"") -> str:
    """What is said so long after the end of a lease of 60 s that was made one of 2 s."""
    world = World(1)
    seen, process = Excuses(world), Process(world, "s0")
    plan = draw(World(1), GENERAL)
    plan.rate = plan.in_flight = plan.breaker = plan.grace_ms = 0
    plan.acts.clear()
    returns = Returns(seen, plan)
    lease = Holding(5, 5, process, granted_us=START_US, granted_ms=0, until_ms=0, at=AT)
    lease.until(60_000, 0, START_US, process)
    lease.until(2_000, 1_000, START_US + S, process)
    message = seen.book.message(AT)
    message.holdings[5, 5] = message.newest = lease
    if lost:
        seen.book.rollbacks.append(Rollback(START_US + S, START_US + 2 * S, silent=False))
    seen.book.retired = {deleted}
    world.now_us = START_US + after_s * S
    returns.late(START_US - SETTLED_US)
    return str(world.failure or "")


@pytest.mark.parametrize(
    ("lost", "after_s", "found"),
    [(False, 5, False), (False, 30, True), (True, 30, False), (True, 90, True)],
)
def test_i4_only_a_store_that_forgot_the_shorter_lease_may_wait_for_the_longer_one(
    after_s: int, *, lost: bool, found: bool
) -> None:
    assert BACK_US < 28 * S
    assert late(lost=lost, after_s=after_s).startswith("I4") is found


@pytest.mark.parametrize(("deleted", "found"), [(AT.topic_id, False), (b"x" * 16, True)])
def test_i4_only_a_message_of_the_topic_that_was_deleted_does_not_come_again(
    deleted: bytes, *, found: bool
) -> None:
    """Those of the topic that was made again are waited for in the same run."""
    assert late(lost=False, after_s=30, deleted=deleted).startswith("I4") is found


@pytest.mark.parametrize(("fence", "found"), [(5, False), (6, True)])
def test_r21_a_call_has_the_lease_that_it_brings_and_no_other(fence: int, *, found: bool) -> None:
    world, book = World(1), Book()
    shares, process = Shares(world, book, Wires(world)), Process(world, "s0")
    shares.strict = True
    lease = Holding(5, 5, process, granted_us=START_US, granted_ms=0, until_ms=0, at=AT)
    lease.until(60_000, 0, START_US, process)
    book.message(AT).holdings[5, 5] = book.message(AT).newest = lease
    world.now_us = START_US + 10 * S
    shares.granted(AT, lease)
    shares.took(Lease(AT, fence, 5, 1))
    with suppress(Violation):
        world.run(world.now_us + 2 * SOON_US)
    assert str(world.failure or "").startswith("R21") is found
