"""Acks of leases from before a rollback, which may have forgotten an origin record (R2, R10)."""

from __future__ import annotations

import pytest

from ackd.core.ids import LedgerKey
from ackd.core.record import copies, decide
from ackd.core.record.decide import REPAIR_WAIT_MS
from ackd.core.record.operations import (
    Advance,
    ClaimOrigin,
    CopyRef,
    EndRepair,
    Grant,
    Op,
    ReplayFinished,
    RestoreClaimed,
    RestoreMoved,
    Settle,
)
from ackd.core.record.protocol import CallStatus, Open, OpResult, RecordCall
from ackd.core.record.transitions import Outcome, Verb

KEY = LedgerKey("cluster", "orders", b"\1" * 16, 0)
START_US = 1_700_000_000_000_000
REPLAYED = ReplayFinished(1)


class _Store:
    """A record that was rolled back to the moment before message 1 was sent back."""

    def __init__(self) -> None:
        self.now_us, self.run, self.seq = START_US, "run-1", 0
        request = Open(KEY, "a#1", rollback_epoch=1, incarnation=1, grace_ms=0, create_at=0)
        self.record = decide.create(request, 0, self.run)
        self.open(1, created=True)
        self.lease = self.one(Grant.of(1, 60_000, 1))
        self.generation = self.now_us + 5
        self.run = "run-2"
        self.open(2)

    def open(self, rollback_epoch: int, *, created: bool = False) -> None:
        request = Open(KEY, "a#1", rollback_epoch, incarnation=1, grace_ms=0, create_at=0)
        assert decide.open_record(self.record, request, self.now_us, self.run, created=created).term

    def one(self, op: Op) -> OpResult:
        self.now_us += 1_000
        reply = decide.apply(self.record, RecordCall(KEY, [op]), self.now_us, self.run)
        assert reply.verdict is CallStatus.OK
        return reply.results[0]

    def ack(self) -> OpResult:
        return self.one(Settle(Verb.ACK, 1, self.lease.fence, 1, 1))

    def restore(self, *, stored: bool, released: bool) -> None:
        """By who moved the message."""
        self.one(RestoreMoved(1, self.generation, 1, 1, 0, stored, released))

    def asks(self) -> ClaimOrigin:
        return ClaimOrigin(1, self.generation, 1, CopyRef(2, 70), attempt=1)

    def claim(self) -> Outcome:
        while (found := self.one(self.asks())).outcome is Outcome.HELD:
            self.now_us = max(self.now_us, found.when_ms * 1_000)
        return found.outcome


@pytest.mark.parametrize(("stored", "released"), [(False, False), (True, False), (True, True)])
def test_i2_an_ack_between_rollback_and_repair_counts_for_the_copy(
    *, stored: bool, released: bool
) -> None:
    """Whoever restores the origin record, its owner or who was that before."""
    store = _Store()
    acked = store.ack()
    assert acked.outcome is Outcome.ACKED
    assert (
        acked.fence > store.lease.fence
    )  # the server of the ack repeats it as one of an origin record
    store.restore(stored=stored, released=released)
    assert store.claim() is Outcome.FINISHED
    assert store.ack().outcome is Outcome.ALREADY_ACKED


def test_i2_such_an_ack_counts_for_the_copy_even_if_nobody_restores_the_origin_record() -> None:
    store = _Store()
    store.ack()
    assert store.claim() is Outcome.FINISHED


@pytest.mark.parametrize(("stored", "released"), [(False, False), (True, False), (True, True)])
def test_i1_a_finish_that_is_merely_repeated_hides_no_copy(*, stored: bool, released: bool) -> None:
    """Also if who moved the message has got its term back, and another had owned the partition."""
    store = _Store()
    store.now_us += 61_000_000  # the record knows no lease that lives
    store.one(ReplayFinished(1))
    store.restore(stored=stored, released=released)
    assert store.claim() is Outcome.CLAIMED


def test_i2_a_late_ack_waits_for_who_claimed_an_origin_record_that_is_made_again() -> None:
    """The record has forgotten the lease with it, so only its owner knows that a copy was first."""
    store = _Store()
    store.now_us += 61_000_000
    store.run = "run-3"
    store.open(3)
    store.restore(stored=True, released=False)
    assert store.ack().outcome is Outcome.UNREPAIRED
    store.one(RestoreClaimed(1, store.generation, 1, 1, CopyRef(2, 70)))
    assert store.ack().outcome is Outcome.LOST


@pytest.mark.parametrize("last", [False, True])
def test_i3_a_lease_that_was_extended_before_its_origin_record_is_made_again_moves_there(
    *, last: bool
) -> None:
    store = _Store()
    extended = store.one(Settle(Verb.EXTEND, 1, store.lease.fence, 1, 1, for_ms=90_000))
    store.restore(stored=last, released=last)
    store.now_us += REPAIR_WAIT_MS * 1_000
    claim = store.one(ClaimOrigin(1, store.generation, 1, CopyRef(2, 70)))
    assert (claim.outcome, claim.when_ms) == (Outcome.HELD, extended.when_ms)
    assert store.ack().outcome is Outcome.ACKED
    assert store.claim() is Outcome.FINISHED


@pytest.mark.parametrize("verb", [Verb.EXTEND, Verb.RETRY, Verb.DEAD, Verb.RELEASE])
def test_i7_who_comes_between_a_commit_and_its_origin_record_is_not_lost(verb: Verb) -> None:
    """A commit has passed the message; its origin record, which has the lease, is not restored
    yet.
    """
    store = _Store()
    store.one(Advance(2))
    settle = Settle(verb, 1, store.lease.fence, 1, 1, 90_000)
    assert store.one(settle).outcome is Outcome.UNREPAIRED
    store.restore(stored=True, released=True)
    store.one(Settle(Verb.EXTEND, 1, store.lease.fence, 1, 1, 50_000, counted=False))
    assert store.one(settle).outcome not in (Outcome.UNREPAIRED, Outcome.LOST)


def test_a_settle_of_what_is_over_is_lost_once_the_repair_is() -> None:
    store = _Store()
    store.one(Advance(2))
    assert store.ack().outcome is Outcome.ALREADY_ACKED
    extend = Settle(Verb.EXTEND, 1, store.lease.fence, 1, 1, for_ms=90_000)
    store.one(EndRepair())
    assert store.one(extend).outcome is Outcome.LOST


def test_i8_acks_leave_nothing_once_the_repair_is_over() -> None:
    store = _Store()
    store.one(EndRepair())
    assert store.ack().fence == store.lease.fence
    assert not store.record.origins
    store = _Store()
    store.now_us += (REPAIR_WAIT_MS + 7_000) * 1_000
    store.ack()
    assert not store.record.origins


@pytest.mark.parametrize("claimed", [False, True])
def test_i2_an_ack_of_a_forgotten_lease_waits_for_who_may_have_claimed_its_copy(
    *, claimed: bool
) -> None:
    """The rollback forgot grant, move and claim; the origin record is made again before the claim
    is, and what is acked in between must not be the copy's, too.
    """
    store = _Store()
    store.one(Settle(Verb.RELEASE, 1, store.lease.fence, 1, 1))
    store.lease = store.lease._replace(fence=store.lease.fence + 1)
    store.restore(stored=True, released=False)
    assert store.ack().outcome is Outcome.UNREPAIRED
    if claimed:
        store.one(RestoreClaimed(1, store.generation, 1, 1, CopyRef(2, 70)))
        assert store.ack().outcome is Outcome.LOST
        return
    store.one(EndRepair())
    assert store.ack().outcome is Outcome.ACKED
    assert store.claim() is Outcome.FINISHED


@pytest.mark.parametrize("passed", [Advance(5, repair=True), REPLAYED])
def test_i7_nobody_is_told_already_acked_of_what_a_repair_has_passed(passed: Op) -> None:
    """The message was sent back under a lease that the rollback forgot, too."""
    store = _Store()
    store.one(Settle(Verb.RELEASE, 1, store.lease.fence, 1, 1))
    store.lease = store.lease._replace(fence=store.lease.fence + 1)
    store.one(passed)
    assert store.ack().outcome is Outcome.UNREPAIRED
    store.one(EndRepair())
    assert store.ack().outcome is Outcome.ACKED
    assert store.ack().outcome is Outcome.ALREADY_ACKED
    assert store.claim() is Outcome.FINISHED, "I2: its copy does not come after the ack"


@pytest.mark.parametrize("passed", [Advance(5, repair=True), REPLAYED])
def test_i7_who_comes_after_the_copy_is_told_lost(passed: Op) -> None:
    store = _Store()
    store.one(Settle(Verb.RELEASE, 1, store.lease.fence, 1, 1))
    store.lease = store.lease._replace(fence=store.lease.fence + 1)
    store.one(passed)
    assert store.claim() is Outcome.LOST, "the copy is all there is: it is delivered"
    assert store.claim() is Outcome.CLAIMED, "a repeat is told the same by its origin record"
    assert store.ack().outcome is Outcome.LOST


def test_i3_a_lease_that_lives_in_the_record_holds_the_copy_of_what_a_repair_has_passed() -> None:
    store = _Store()
    store.one(REPLAYED)
    store.one(Advance(5, repair=True))
    store.one(EndRepair())
    asked = store.one(store.asks())
    assert (asked.outcome, asked.when_ms) == (Outcome.HELD, store.lease.when_ms)
    store.now_us += copies.ORIGIN_KEEP_MS * 500
    extend = Settle(Verb.EXTEND, 1, store.lease.fence, 1, 1, 2 * copies.ORIGIN_KEEP_MS)
    longer = store.one(extend)
    assert (longer.outcome, longer.late) == (Outcome.EXTENDED, True)
    store.now_us += copies.ORIGIN_KEEP_MS * 1_000
    store.one(Advance(6))
    assert store.one(store.asks()).when_ms == longer.when_ms, "kept for as long as the lease"
    assert store.ack().outcome is Outcome.ACKED
    assert store.claim() is Outcome.FINISHED


def test_a_plain_restart_leaves_already_acked_as_it_was() -> None:
    store = _Store()
    assert store.ack().outcome is Outcome.ACKED
    assert store.ack().outcome is Outcome.ALREADY_ACKED
    store.one(Advance(5))
    store.run = "run-3"
    store.open(3)
    assert store.ack().outcome is Outcome.ALREADY_ACKED
