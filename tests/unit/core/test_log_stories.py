"""Stories about the log: holes, compaction, finished stretches, old sessions (R7, I1)."""

from __future__ import annotations

from ackd.core.ledger.intake import SKIP_MIN_OFFSETS
from tests.unit.core.playbook import (
    LEASE_MS,
    Play,
    acks,
    brings,
    end_at,
    fetches,
    forgets,
    leases,
    opens,
    passes,
    watermark,
    writes,
)


def test_a_gap_within_a_session_counts_as_finished() -> None:
    """R7: between two records of one session nothing else exists."""
    assert (
        Play()
        >> brings(0, 5)
        >> leases(2) << [0, 5]
        >> acks(0, 5)
        >> watermark() << 6
        >> writes() << 6
    )  # fmt: skip


def test_what_lies_before_the_first_record_counts_as_finished_too() -> None:
    """A session starts with the first existing record at or after the offset asked for."""
    assert Play(start=10) >> brings(14) >> leases() >> acks(14) >> watermark() << 15


def test_across_sessions_a_gap_is_not_finished() -> None:
    """R7: after a seek the skipped offsets are unread, not gone."""
    assert (
        Play()
        >> brings(0, 1)
        >> fetches(50)
        >> brings(50)
        >> leases(3) << [0, 1, 50]
        >> acks(0, 1, 50)
        >> watermark() << 2
    )  # fmt: skip


def test_records_of_an_old_session_do_not_count() -> None:
    """R7: a buffer that was filled before a seek is dropped."""
    assert (
        Play()
        >> brings(0)
        >> fetches(10)
        >> brings(30, session=1)
        >> leases(9) << [0]
        >> brings(10, session=2)
        >> leases(9) << [10]
        >> watermark() << 0
    )  # fmt: skip


def test_the_end_of_the_log_may_be_a_marker() -> None:
    """R7: without `end_reached` there would be lag 1 for ever behind a transaction's marker."""
    assert (
        Play()
        >> brings(0, 1)
        >> leases(2) >> acks(0, 1)
        >> watermark() << 2
        >> end_at(3) << 3
        >> writes() << 3
        >> brings(3) >> leases() << [3]
    )  # fmt: skip


def test_a_successor_needs_no_gap_explained_twice() -> None:
    """R7: holes are in the record, so a new owner passes over them."""
    assert (
        Play()
        >> brings(0, 4)
        >> leases(2) >> acks(4)
        >> forgets("a") >> opens("b") >> fetches() << 0
        >> brings(0)
        >> passes(LEASE_MS)
        >> leases() << [0]
        >> acks(0)
        >> watermark() << 5
    )  # fmt: skip


def test_a_leased_message_that_compaction_removed_keeps_its_lease() -> None:
    """R7: the slot stays while the lease lives; it settles as any other."""
    assert (
        Play()
        >> brings(0, 1, 2)
        >> leases(2) << [0, 1]
        >> forgets("a") >> opens("b") >> fetches()
        >> brings(2)
        >> watermark() << 0
        >> acks(0) << "acked"
        >> watermark() << 1
        >> passes(LEASE_MS)  # 1 has nobody left to be handed to: vanished
        >> watermark() << 2
        >> leases(9) << [2]
        >> acks(1) << "lost"
    )  # fmt: skip


def test_a_long_finished_stretch_is_skipped() -> None:
    """A restart does not fetch again what is finished above a stuck head."""
    last = SKIP_MIN_OFFSETS + 2
    assert (
        Play()
        >> brings(*range(last))
        >> leases(last) >> acks(*range(1, last))
        >> forgets("a") >> opens("b") >> fetches() << 0
        >> brings(0) << last
        >> fetches(last)
        >> brings(last) << None
        >> passes(LEASE_MS)
        >> leases(9) << [0, last]
        >> acks(0, last)
        >> watermark() << last + 1
    )  # fmt: skip


def test_a_short_finished_stretch_is_read_over() -> None:
    """A seek costs more than some finished records."""
    assert (
        Play()
        >> brings(0, 1, 2)
        >> leases(3) >> acks(1, 2)
        >> forgets("a") >> opens("b") >> fetches()
        >> brings(0, 1, 2) << None
        >> leases(9) << []
    )  # fmt: skip
