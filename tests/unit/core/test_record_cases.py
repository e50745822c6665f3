"""Cases of the record that only show when time passes or data goes (R14, R17)."""

import pytest

from ackd.core.ids import LedgerKey
from ackd.core.record import copies, decide
from ackd.core.record.operations import (
    Advance,
    Drop,
    FinishOrigin,
    Gap,
    Grant,
    LookUp,
    MoveToRetry,
    Op,
    PlaceCopy,
    RemakeChunk,
    Reset,
    Settle,
)
from ackd.core.record.protocol import CallStatus, Finish, Open, RecordCall, RecordReply
from ackd.core.record.state import BrokenRecordError
from ackd.core.record.transitions import Outcome, State, Verb
from tests.unit.core.test_ledger_effort import calls_of

KEY = LedgerKey("c", "s", bytes(16), 0)
NOW_US = 1_800_000_000_000_000
CHUNK = 1 << 15
SLOT_CHUNK = 1 << 8


class Driver:
    """A record with a clock and an owner."""

    def __init__(self) -> None:
        self.now_us = NOW_US
        request = Open(KEY, "me#1", rollback_epoch=7, incarnation=9, grace_ms=0, create_at=0)
        self.record = decide.create(request, 0, "run")
        snapshot = decide.open_record(self.record, request, self.now_us, "run", created=True)
        self.term, self.seq = snapshot.term, snapshot.seq

    def move(self, offset: int, key: int = 0) -> int:
        """Move a message with an expired lease to the retry topic. Returns its generation."""
        self.call(Grant.of(offset, 1_000, 1))
        self.now_us += 2_000_000
        return self.call(MoveToRetry(offset, 1, key)).results[0].fence

    def call(self, *ops: Op) -> RecordReply:
        """Apply as the owner."""
        self.seq += 1
        return decide.apply(
            self.record, RecordCall(KEY, list(ops), self.term, self.seq), self.now_us, "run"
        )


def test_a_message_that_waited_is_granted_when_it_is_due_and_not_before() -> None:
    driver = Driver()
    granted = driver.call(Grant.of(1, 1000, 1)).results[0]
    retry = Settle(Verb.RETRY, 1, granted.fence, 7, 1, for_ms=500)
    assert driver.call(retry).results[0].outcome is Outcome.RETRYING
    driver.now_us += 499_000
    assert driver.call(Grant.of(1, 1000, 1)).results[0].outcome is Outcome.HELD
    driver.now_us += 1_000
    again = driver.call(Grant.of(1, 1000, 1)).results[0]
    assert (again.outcome, again.state, again.attempt) == (Outcome.GRANTED, State.LEASED, 2)
    assert driver.call(retry).results[0].outcome is Outcome.LOST


def test_r14_a_gap_across_a_lost_chunk_does_not_hide_the_loss() -> None:
    driver = Driver()
    driver.call(Gap(CHUNK, CHUNK + 10))
    del driver.record.finished.chunks[1]
    assert driver.call(Gap(5, 3 * CHUNK)).verdict is CallStatus.CHUNK_LOST
    assert driver.call(RemakeChunk(1)).verdict is CallStatus.OK
    assert driver.call(Gap(5, 3 * CHUNK)).verdict is CallStatus.OK


def test_a_wide_gap_frees_slots_without_looking_for_each_offset() -> None:
    """Counted in calls: the record decides while nothing else runs."""
    driver = Driver()
    acked, open_ = 5, 70 * CHUNK
    granted = driver.call(Grant.of(acked, 1000, 1), Grant.of(open_, 1000, 1)).results[0]
    driver.call(Settle(Verb.ACK, acked, granted.fence, 7, 1))
    end = 80 * CHUNK
    assert calls_of(lambda: driver.call(Gap(0, end))) < 20 * end // SLOT_CHUNK
    assert set(driver.record.slots) == {open_}


def test_r14_a_lost_chunk_below_the_watermark_is_no_longer_missed_once_dropped() -> None:
    driver = Driver()
    driver.call(Gap(0, CHUNK))
    driver.call(Advance(CHUNK + 5))
    del driver.record.finished.chunks[0]
    assert driver.call(LookUp(3)).verdict is CallStatus.CHUNK_LOST
    assert driver.call(Drop(CHUNK + 5)).verdict is CallStatus.OK
    assert driver.call(LookUp(3)).verdict is CallStatus.OK


def test_a_record_that_breaks_a_rule_of_its_own_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """R9: a fence that goes down, or a watermark that goes back within an epoch, is a bug."""
    driver = Driver()
    driver.call(Grant.of(1, 1000, 1))
    driver.call(Advance(5))
    driver.call(Reset(2))  # a new epoch may
    monkeypatch.setattr(copies, "prune", lambda record, _: setattr(record, "watermark", 1))
    with pytest.raises(BrokenRecordError, match="watermark"):
        driver.call(Advance(6))
    monkeypatch.setattr(copies, "prune", lambda record, _: setattr(record, "fence", 0))
    with pytest.raises(BrokenRecordError, match="fence"):
        driver.call(Advance(7))


def test_a_reset_forward_frees_the_key_of_a_message_on_its_way_to_the_retry_topic() -> None:
    """Nobody writes its copy any more, and its origin record blocked its key for good."""
    driver = Driver()
    driver.move(3, key=77)
    driver.move(9, key=77)
    assert driver.record.blocked == {77: [3, 9]}
    driver.call(Reset(5))
    assert driver.record.blocked == {}
    assert not driver.record.origins


def test_a_reset_forward_keeps_the_origin_record_of_a_copy_that_was_written() -> None:
    driver = Driver()
    driver.call(FinishOrigin(3, driver.move(3, key=77), 7, Finish.SENT))
    driver.call(Reset(5))
    assert driver.record.blocked == {77: [3]}


def test_a_message_that_a_seek_skips_by_itself_is_never_called_acked() -> None:
    """The reset dropped the slot of its lease, whose holder may still settle it (I7)."""
    driver = Driver()
    driver.move(7)
    driver.call(Reset(4))
    driver.call(Gap(7, 8, Finish.SKIPPED))
    late = Settle(Verb.ACK, 7, 1, 7, 1)
    assert driver.call(late).results[0].outcome is Outcome.LOST


@pytest.mark.parametrize("due_ms", [0, NOW_US // 1000 + 5_000])
def test_i6_a_message_that_only_another_client_tried_moves_behind_its_blocked_key_alone(
    due_ms: int,
) -> None:
    """Its key was freed while it was asked to follow. It moved before an earlier one of its key,
    which had no slot and stayed, and was delivered before that.
    """
    driver = Driver()
    driver.call(PlaceCopy(4, attempt=2, due_ms=due_ms))
    driver.now_us += 5_000_000
    asked = driver.call(MoveToRetry(3, 1, key=77), MoveToRetry(4, 2, key=77)).results
    assert [(each.outcome, each.state) for each in asked] == [
        (Outcome.LOST, State.READY),
        (Outcome.LOST, State.WAITING),
    ]
    driver.move(2, key=77)
    asked = driver.call(MoveToRetry(3, 1, key=77), MoveToRetry(4, 2, key=77)).results
    assert [each.outcome for each in asked] == [Outcome.SENT, Outcome.SENT]
    assert driver.record.blocked == {77: [2, 3, 4]}


@pytest.mark.parametrize(("due_in_ms", "key"), [(5_000, 77), (5_000, 0), (0, 0)])
def test_i5_a_delay_and_what_has_no_key_leave_the_window_undelivered(
    due_in_ms: int, key: int
) -> None:
    """A delay is of a time without an order: with one the order counts, and nothing waits."""
    driver = Driver()
    driver.call(PlaceCopy(4, attempt=2, due_ms=NOW_US // 1000 + due_in_ms))
    assert driver.call(MoveToRetry(4, 1, key)).results[0].outcome is Outcome.SENT
