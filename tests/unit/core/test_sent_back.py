"""What an owner remembers of what it sent back, while it may be needed (R2, R10)."""

from __future__ import annotations

from ackd.core.ledger.sent_back import (
    KEEP_MS,
    REPORTED_MS,
    SENT_MAX,
    MovedMessages,
    SentBack,
    restored,
)
from ackd.core.record.copies import ORIGIN_KEEP_MS
from ackd.core.record.operations import ReplayAck
from ackd.core.record.transitions import Outcome, Verb

GENERATION = 50
LEASE = 40, 1, 2, 900_000
TWO_MINUTES_MS = 120_000


def _sent(count: int = 1, *, due_ms: int = 0) -> SentBack:
    lease = (*LEASE[:3], due_ms) if due_ms else None
    each = {at: MovedMessages(GENERATION, 1, 2, 0, 0, lease, stored=True) for at in range(count)}
    return SentBack(each)


def test_i7_a_store_that_was_set_back_by_minutes_learns_it_again() -> None:
    """Committed long ago; the store forgot that it was sent back, and would call it acked."""
    sent = _sent()
    sent.drop(10, TWO_MINUTES_MS)
    assert list(sent.young(TWO_MINUTES_MS)) == [0]


def test_a_origin_record_that_was_dropped_in_good_order_is_not_made_again() -> None:
    assert KEEP_MS < ORIGIN_KEEP_MS
    sent = _sent()
    assert not sent.young(KEEP_MS + 1)
    sent.drop(10, KEEP_MS + 1)
    assert not sent


def test_i3_what_is_under_a_live_lease_is_remembered_for_as_long() -> None:
    """Its origin record can't have been claimed, so it is there."""
    sent = _sent(due_ms=KEEP_MS * 2)
    sent.drop(10, KEEP_MS + 1)
    assert list(sent.young(KEEP_MS + 1)) == [0]
    sent.ended([0])
    assert not sent.young(KEEP_MS + 1)


def test_i8_no_more_than_a_bound_is_remembered_below_the_committed_position() -> None:
    sent = _sent(SENT_MAX + 5)
    sent.drop(SENT_MAX + 5, 0)
    assert list(sent) == list(range(5, SENT_MAX + 5))


def test_i2_an_ack_in_the_origin_record_is_told_again_as_one() -> None:
    sent = _sent(due_ms=LEASE[3])
    sent.settled(0, Outcome.ACKED, GENERATION, 0)
    assert restored(0, sent[0], 0) == [ReplayAck(0, GENERATION)]


def test_i1_what_others_repeat_is_no_ack_of_the_origin_record() -> None:
    """A journal's entry of a repeat has no generation: its copy must not be over by that."""
    sent = _sent(due_ms=LEASE[3])
    sent.settled(0, Outcome.ACKED, 0, 0)
    assert [each.verb for each in restored(0, sent[0], 0)] == [Verb.RESTORE, Verb.EXTEND]


def test_i8_forwarded_leases_are_counted_until_they_end() -> None:
    """They are under `in_flight_max`, and an extension at another sidecar is heard of late."""
    sent = _sent(3, due_ms=1_000)
    sent[3] = MovedMessages(GENERATION, 1, 2, 0, 0)  # it waited for its retry
    assert sent.leased(0) == 3
    sent.settled(0, Outcome.RETRYING, LEASE[0], 0)
    sent.ended([1])
    assert sent.leased(0) == 1
    sent.settled(2, Outcome.EXTENDED, LEASE[0], 5_000)
    assert sent.leased(1_000 + REPORTED_MS) == 1
    assert sent.leased(4_999 + REPORTED_MS) == 1
    assert sent.leased(5_000 + REPORTED_MS) == 0
    sent[4] = MovedMessages(GENERATION, 1, 2, 0, 0, (*LEASE[:3], 9_000))
    assert sent.leased(6_000) == 1
    del sent[4]
    assert sent.leased(6_000) == 0
    again = _sent(2, due_ms=9_000)
    again.clear()
    assert again.leased(6_000) == 0
