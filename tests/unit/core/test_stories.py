"""Whole stories of one partition: leases, lateness, retries, takeover (I1-I4, R5, R15-R17)."""

from __future__ import annotations

from ackd.core.record.protocol import CallStatus
from ackd.core.record.transitions import Verb
from tests.unit.core.playbook import (
    LEASE_MS,
    Play,
    acks,
    acts,
    brings,
    fetches,
    finishes_dead,
    forgets,
    leases,
    opens,
    passes,
    settles,
    waits_ready,
    watermark,
    writes,
)


def test_2101_stuck_and_the_sidecar_killed() -> None:
    """I2: of 100 delivered messages the 99 acked ones never come back."""
    assert (
        Play(start=2101)
        >> brings(*range(2101, 2201))
        >> leases(100) << list(range(2101, 2201))
        >> acks(*range(2102, 2201)) << "acked"
        >> watermark() << 2101
        >> forgets("a")
        >> opens("b")
        >> fetches() << 2101
        >> brings(*range(2101, 2201))
        >> leases(100) << []  # its lease still runs
        >> passes(LEASE_MS) << 1
        >> leases(100) << [2101]
        >> acks(2101) << "acked"
        >> writes() << 2201
    )  # fmt: skip


def test_a_late_ack_counts_until_the_message_is_handed_on() -> None:
    """R17: past the deadline, not handed on: `acked, late`; handed on: `lost`."""
    assert (
        Play()
        >> brings(0, 1)
        >> leases(2) << [0, 1]
        >> passes(LEASE_MS) << 2
        >> acks(0) << "acked late"
        >> acks(0) << "already_acked"
        >> leases(1) << [1]
        >> acks(1, nth=0) << "lost"
        >> acks(1) << "acked"
        >> watermark() << 2
    )  # fmt: skip


def test_leases_that_end_are_counted_by_their_deadline_and_nothing_else_is() -> None:
    """I4 is measured: a wait that is over is no lease, nor is one within the grace (R23)."""
    story = Play() >> brings(0, 1, 2) >> leases(2, lease_ms=100) << [0, 1]
    start_ms = story.now_ms
    story >> passes(50) >> leases(1, lease_ms=10) << [2]
    story >> settles(Verb.RETRY, 2, arg=40)
    ledger = story.owner.ledger
    assert ledger.waiting == 1
    ledger.deadlines.keep_until(start_ms + 500)
    story >> passes(100) << 1
    assert (ledger.deadlines.take_lapsed(), ledger.waiting) == ({}, 0)
    story >> passes(400) << 2
    assert ledger.deadlines.take_lapsed() == {start_ms + 500: [0, 1]}


def test_a_late_extend_revives_the_lease() -> None:
    """R17: a pause of a heartbeat does not kill a good worker; then it holds again (I3)."""
    assert (
        Play()
        >> brings(0)
        >> leases() << [0]
        >> passes(LEASE_MS + 50) << 1
        >> settles(Verb.EXTEND, 0, arg=LEASE_MS) << "extended late"
        >> leases() << []
        >> passes(LEASE_MS - 1) << 0
        >> leases() << []
        >> passes(1) << 1
        >> leases() << [0]
        >> settles(Verb.EXTEND, 0, nth=0, arg=LEASE_MS) << "lost"
    )  # fmt: skip


def test_an_extend_counts_from_the_call() -> None:
    """I4: the old timer says nothing any more."""
    assert (
        Play()
        >> brings(0)
        >> leases() << [0]
        >> passes(20_000) << 0
        >> settles(Verb.EXTEND, 0, arg=LEASE_MS) << "extended"
        >> passes(10_000) << 0
        >> waits_ready() << []
        >> passes(20_000) << 1
    )  # fmt: skip


def test_a_retry_waits_and_its_repeat_gets_the_same_answer() -> None:
    """R17: the token of a retried message is lost for everything but the same retry."""
    assert (
        Play()
        >> brings(0)
        >> leases() << [0]
        >> settles(Verb.RETRY, 0, arg=5_000) << "retrying"
        >> settles(Verb.RETRY, 0, arg=9_000) << "retrying"
        >> acks(0) << "lost"
        >> settles(Verb.EXTEND, 0, arg=9_000) << "lost"
        >> passes(4_999) << 0
        >> leases() << []
        >> passes(1) << 1
        >> leases() << [0]
        >> settles(Verb.RETRY, 0, nth=0, arg=1) << "lost"
        >> acks(0) << "acked"
    )  # fmt: skip


def test_a_released_message_is_there_at_once() -> None:
    """A give-back is not counted; its repeat gets the same answer until it is handed on."""
    play = Play() >> brings(0) >> leases() >> settles(Verb.RELEASE, 0) << "released"
    assert (
        play
        >> settles(Verb.RELEASE, 0) << "released"
        >> leases() << [0]
        >> settles(Verb.RELEASE, 0, nth=0) << "lost"
    )  # fmt: skip
    assert play.tokens[0][0][2] == play.tokens[0][1][2] == 1  # both were the first attempt


def test_attempts_survive_expiry_and_takeover() -> None:
    """The count is the store's: it goes on at another sidecar."""
    play = (
        Play()
        >> brings(0)
        >> leases() >> passes(LEASE_MS)
        >> leases() >> passes(LEASE_MS)
        >> forgets("a") >> opens("b") >> fetches() << 0
        >> brings(0)
        >> passes(0) << 1
        >> leases() << [0]
    )  # fmt: skip
    assert [token[2] for token in play.tokens[0]] == [1, 2, 3]
    fences = [token[0] for token in play.tokens[0]]
    assert fences == sorted(set(fences))


def test_a_dead_message_is_finished_after_its_copy_only() -> None:
    """R2, I1: `dead` is the commit point: no ack counts any more, and nothing is finished yet."""
    play = Play() >> brings(0, 1) >> leases(2)
    assert (
        play
        >> settles(Verb.DEAD, 0) << "dead"
        >> acks(0) << "lost"
        >> settles(Verb.DEAD, 0) << "dead"
        >> acks(1) << "acked"
        >> watermark() << 0
        >> passes(10 * LEASE_MS) << 0
        >> leases() << []
        >> finishes_dead(0) << "done"
        >> watermark() << 2
        >> acks(0) << "lost"
        >> settles(Verb.DEAD, 0) << "lost"
    )  # fmt: skip
    assert play.dead == [0]


def test_a_pending_dead_letter_is_sent_by_the_successor() -> None:
    """I1, R2: the owner dies between `dead` and the copy; the next one has to fetch it first."""
    play = Play() >> brings(0, 1) >> leases(2) >> settles(Verb.DEAD, 0) << "dead"
    play.dead.clear()
    assert play >> forgets("a") >> opens("b") >> fetches() << 0
    assert play.dead == []
    assert play >> brings(0, 1)
    assert play.dead == [0]


def test_below_the_watermark_the_answer_is_remembered() -> None:
    """R15: below the watermark an ack is `already_acked`, unless it ended in another way."""
    assert (
        Play()
        >> brings(0, 1)
        >> leases(2)
        >> settles(Verb.DEAD, 0) >> finishes_dead(0)
        >> acks(1)
        >> writes() << 2
        >> acks(0) << "lost"
        >> acks(1) << "already_acked"
    )  # fmt: skip


def test_settled_elsewhere_the_owner_hears_of_it() -> None:
    """R16: any sidecar settles; the owner reads it at its next call and moves on."""
    assert (
        Play()
        >> brings(0, 1, 2)
        >> leases(3)
        >> acks(0, 1, elsewhere=True) << "acked"
        >> settles(Verb.RELEASE, 2, elsewhere=True) << "released"
        >> watermark() << 0
        >> writes() << 0  # this call brought the journal
        >> watermark() << 2
        >> leases() << [2]
    )  # fmt: skip


def test_a_zombie_is_refused_and_its_holder_is_not() -> None:
    """R5, I3: the store's term decides, not memory; the lease that it gave still settles."""
    assert (
        Play()
        >> brings(0, 1)
        >> leases() << [0]
        >> opens("b") >> fetches() >> brings(0, 1)
        >> acts("a")
        >> leases() << CallStatus.FENCED
        >> writes() << 0
        >> acks(0, elsewhere=True) << "acked"
        >> acts("b")
        >> leases(2) << [1]
        >> watermark() << 1
    )  # fmt: skip


def test_the_bytes_of_a_receive_are_bounded_but_the_first_is_given() -> None:
    """I8: `bytes_max` ends a batch; one huge message never blocks the partition."""
    assert (
        Play()
        >> brings(0, 1, 2, 3, size=100)
        >> leases(4, bytes_max=250) << [0, 1]
        >> leases(4, bytes_max=1) << [2]
        >> leases(4, bytes_max=100) << [3]
    )  # fmt: skip


def test_messages_are_delivered_smallest_offset_first() -> None:
    """What comes back goes before what is new."""
    assert (
        Play()
        >> brings(0, 1, 2)
        >> leases(2) << [0, 1]
        >> settles(Verb.RELEASE, 1, 0) << "released"
        >> leases(3) << [0, 1, 2]
    )  # fmt: skip
