"""Stories about what is lost or unknown: answers, rollbacks, outages, chunks (R9-R12, R14, R23)."""

from __future__ import annotations

from ackd.core.bitmap import CHUNK_OFFSETS
from ackd.core.ledger.repair import Repair
from ackd.core.record import decide
from ackd.core.record.maintenance import EXCEPTIONS_KEEP_MS
from ackd.core.record.operations import Advance, Drop, Gap, Grant, RemakeChunk, ReplayAck, Reset
from ackd.core.record.protocol import CallStatus, Open, RecordCall
from ackd.core.record.transitions import Verb
from tests.unit.core.playbook import (
    KEY,
    LEASE_MS,
    Play,
    acks,
    brings,
    fetches,
    finishes_dead,
    forgets,
    leases,
    opens,
    passes,
    promotes,
    repairs,
    replicates,
    settles,
    watermark,
    writes,
)

NOTHING = Repair([], 0, [], [])


def test_the_lease_of_a_lost_answer_is_an_orphan() -> None:
    """R12: nobody got the token, so the lease is given back, uncounted, and not waited for."""
    assert (
        Play()
        >> brings(0, 1)
        >> leases(1, heard=False) << []
        >> opens("a", again=True)
        >> repairs() << ["released"]
        >> leases(2) << [0, 1]
    )  # fmt: skip


def test_a_grant_that_never_arrived_leaves_no_orphan() -> None:
    """R12: the call was lost before the store: reading again makes the message ready."""
    play = Play() >> brings(0) >> replicates() >> leases(1, heard=False)
    play.record = play.copy
    assert play >> opens("a", again=True) << NOTHING >> leases() << [0]


def test_a_call_that_arrives_after_the_reread_is_stale() -> None:
    """R12: a late grant can't slip in behind the owner's back."""
    play = Play() >> brings(0)
    late = RecordCall(KEY, [Grant.of(0, LEASE_MS, 1)])
    owner = play.owner
    owner.seq += 1
    late.term, late.seq, late.incarnation = owner.term, owner.seq, owner.incarnation
    assert play >> opens("a", again=True) << NOTHING
    assert decide.apply(play.record, late, play.now_ms * 1000, play.run).verdict is CallStatus.STALE
    assert play >> leases() << [0]


def test_after_a_failover_the_confirmed_acks_are_replayed() -> None:
    """R10, I2: the replica missed two acks and the watermark; the owner's memory has them."""
    assert (
        Play()
        >> brings(0, 1, 2, 3)
        >> leases(4)
        >> replicates()
        >> acks(0, 2) << "acked"
        >> writes() << 1
        >> promotes()
        >> leases() << CallStatus.MOVED
        >> acks(3) << "moved"
        >> opens("a", again=True)
        >> repairs() << ["done"] * 3  # replay 0 and 2, watermark 1
        >> acks(0) << "already_acked"
        >> acks(2) << "already_acked"
        >> acks(1, 3) << "acked"
        >> writes() << 4
    )  # fmt: skip


def test_a_repair_that_was_not_written_is_made_again() -> None:
    """R10, I7: with the watermark; without it messages below would be passed as if acked."""
    play = Play() >> brings(0, 1, 2, 3) >> leases(4) >> replicates()
    play >> acks(0, 1, 3) << "acked" >> writes() << 2 >> promotes()
    lost = Repair([0, 1, 3], 2, [], [])
    assert play >> opens("a", again=True) << lost >> opens("a", again=True) << lost
    assert play >> repairs() << ["done"] * 4 >> writes() << 2 >> opens("a", again=True) << NOTHING


def test_the_owner_hears_of_what_others_replay() -> None:
    """R10, R16: the rollback took an ack that another sidecar served, and its journal entry."""
    play = Play() >> brings(0, 1) >> leases(2) << [0, 1] >> replicates()
    play >> acks(0, elsewhere=True) << "acked" >> promotes() >> opens("a", again=True)
    play.call(ReplayAck(0), owner=None)
    assert play >> repairs() >> watermark() << 1 >> writes() << 1 >> acks(1) >> writes() << 2


def test_after_a_failover_a_forgotten_grant_is_kept() -> None:
    """R9, I3: the replica never saw the grant; its holder is the newest, so it keeps the lease."""
    assert (
        Play()
        >> brings(0)
        >> replicates()
        >> leases() << [0]
        >> promotes()
        >> opens("a", again=True)
        >> repairs() << ["extended"]
        >> leases() << []
        >> acks(0) << "acked"
    )  # fmt: skip


def test_a_forgotten_grant_settles_even_when_the_sidecar_died_too() -> None:
    """R9: the token itself is the witness: fence larger than the slot's."""
    assert (
        Play()
        >> brings(0)
        >> replicates()
        >> leases() << [0]
        >> promotes() >> forgets("a") >> opens("b")
        >> acks(0) << "acked"
    )  # fmt: skip


def test_before_the_repair_a_forgotten_lease_is_not_called_lost() -> None:
    """R10, I7: the record has forgotten the grant; its holder's wish waits for the repair."""
    for verb, said in (
        (Verb.RETRY, "retrying"), (Verb.DEAD, "dead"), (Verb.RELEASE, "released")
    ):  # fmt: skip
        assert (
            Play()
            >> brings(0)
            >> replicates()
            >> leases() << [0]
            >> promotes()
            >> opens("a", again=True)
            >> settles(verb, 0, elsewhere=True) << "unrepaired"
            >> opens("a", again=True)
            >> repairs() << ["extended"]
            >> settles(verb, 0, elsewhere=True) << said
        )  # fmt: skip


def test_i3_a_lease_that_ran_out_before_what_a_failover_forgets_is_not_extended() -> None:
    """R10: the replica shows it as it was, so its late holder waits for the repair."""
    play = Play() >> brings(0) >> leases() << [0] >> replicates() >> passes(LEASE_MS + 1)
    play >> leases() >> promotes() >> opens("a", again=True)
    assert play >> settles(Verb.EXTEND, 0, nth=0, arg=LEASE_MS, elsewhere=True) << "unrepaired"
    assert play >> opens("a", again=True) >> repairs() << ["extended"]
    assert play >> settles(Verb.EXTEND, 0, nth=0, arg=LEASE_MS, elsewhere=True) << "lost"


def test_a_lease_that_ran_out_before_a_failover_may_be_extended_beside_another() -> None:
    """Not kept, as docs/guarantees.md says: to a record that has forgotten who got the message
    since, its late holder looks like the newest. If this is mended, that page is to follow.
    """
    play = Play() >> brings(0) >> replicates() >> leases() << [0] >> passes(LEASE_MS + 1)
    play >> leases() >> promotes() >> opens("a", again=True)
    assert play >> settles(Verb.EXTEND, 0, nth=0, arg=LEASE_MS, elsewhere=True) << "extended"
    assert play >> opens("a", again=True) >> repairs() << ["extended"]
    assert play >> acks(0, nth=0) << "lost" >> acks(0, nth=1) << "acked"


def test_after_the_wait_for_repairs_a_forgotten_lease_is_what_it_was() -> None:
    """R10, R17: who could have told is dead; then only an ack or an extension counts."""
    play = Play() >> brings(0) >> replicates() >> leases() << [0]
    play >> promotes() >> forgets("a") >> opens("b")
    assert play >> settles(Verb.RETRY, 0) << "unrepaired" >> passes(3_000)
    assert play >> settles(Verb.RETRY, 0) << "lost" >> acks(0) << "acked late"


def test_a_fence_is_not_given_again_after_a_rollback() -> None:
    """R9: clock and term of the rollback keep the tokens apart; the old holder settles nothing."""
    play = Play() >> brings(0) >> replicates() >> leases() << [0]
    assert (
        play
        >> promotes() >> forgets("a") >> opens("b") >> fetches() >> brings(0)
        >> leases() << []  # everybody may replay first
        >> passes(3_000)
        >> leases() << [0]
        >> acks(0, nth=0) << "lost"
        >> acks(0, nth=1) << "acked"
    )  # fmt: skip
    (fence, rollback_epoch, _), (other, other_rollback_epoch, _) = play.tokens[0]
    assert other > fence
    assert other_rollback_epoch != rollback_epoch


def test_after_an_outage_expiry_waits_for_the_grace() -> None:
    """R23: who was answered 503 may settle first."""
    assert (
        Play()
        >> brings(0)
        >> leases()
        >> passes(LEASE_MS)
        >> replicates() >> promotes()
        >> opens("a", grace_ms=10_000, again=True)
        >> repairs()
        >> leases() << []
        >> acks(0) << "acked late"
    )  # fmt: skip


def test_the_clock_of_a_new_primary_ends_no_lease_early() -> None:
    """R23, I4: a clock that is 40 s ahead is measured and taken out."""
    play = Play() >> brings(0) >> leases()
    before = play.record.clock_ms
    request = Open(KEY, "a", rollback_epoch=9, incarnation=9, grace_ms=0, jump_ms=40_000)
    snapshot = decide.open_record(
        play.record, request, (before + 40_005) * 1000, "run-2", created=False
    )
    assert snapshot.now_ms == before + 5
    reply = decide.apply(play.record, RecordCall(KEY, []), (before + 60_000) * 1000, "run-2")
    assert reply.now_ms == before + 20_000  # it goes on from there
    # The same run again: its clock did not jump a second time.
    again = decide.open_record(
        play.record, request, (before + 70_000) * 1000, "run-2", created=False
    )
    assert again.now_ms == before + 30_000


def test_clocks_of_several_primaries_add_up_and_take_each_other_back() -> None:
    """R23: ahead by 40 s, by another 10 s, and back to the first one."""
    play = Play() >> brings(0) >> leases()
    before = play.record.clock_ms
    for run, jump_ms, ahead_ms in (("2", 40_000, 40_000), ("3", 10_000, 50_000), ("1", -50_000, 0)):
        request = Open(KEY, "a", rollback_epoch=9, incarnation=9, grace_ms=0, jump_ms=jump_ms)
        snapshot = decide.open_record(
            play.record, request, (before + ahead_ms + 5) * 1000, run, created=False
        )
        assert snapshot.now_ms == before + 5
    assert play.record.shift_ms == 0


def test_the_clock_never_goes_back() -> None:
    """R23: a clock that is behind stands until it has caught up."""
    play = Play() >> brings(0) >> leases()
    early = decide.apply(play.record, RecordCall(KEY, []), (play.now_ms - 5_000) * 1000, play.run)
    assert early.now_ms == play.now_ms


def test_a_lost_chunk_is_noticed_and_made_again() -> None:
    """R14: eviction of one chunk is not a silent loss of 32,768 acks."""
    play = Play() >> brings(0, 1, 2) >> leases(3) >> acks(1) << "acked"
    del play.record.finished.chunks[0]
    assert play >> acks(2) << "chunk_lost" >> opens("a", again=True)
    assert play.last == Repair([1], 0, [], [])
    made = play.call(RemakeChunk(0), ReplayAck(1), owner=play.owner)
    assert made.verdict is CallStatus.OK
    assert play >> acks(1) << "already_acked" >> acks(2) << "acked"


def test_lost_data_is_absent_and_not_empty() -> None:
    """R14, I7: a record made anew has another incarnation; nothing of the old is settled in it."""
    play = Play() >> brings(0) >> leases()
    request = Open(KEY, "", rollback_epoch=3, incarnation=1234, grace_ms=0, create_at=0)
    play.record = decide.create(request, 0, play.run)
    assert play >> acks(0) << "absent"


def test_a_reset_opens_everything_again_but_live_leases_stay() -> None:
    """R8, I3: a new epoch forgets what was finished; who works on a message keeps it."""
    play = Play() >> brings(0, 1, 2, 3) >> leases(4) >> acks(0, 1) >> writes() << 2
    play.as_owner(Reset(0))
    play >> opens("a", again=True) << NOTHING
    play.perform()
    assert play.fetches == [0]  # bodies of what was finished are gone
    assert (
        play
        >> fetches() << 0
        >> brings(0, 1, 2, 3)
        >> leases(9) << [0, 1]
        >> acks(2) << "acked"
        >> acks(0, nth=0) << "lost"  # a lease of the old epoch
        >> acks(0, 1, 3) << "acked"
        >> watermark() << 4
    )  # fmt: skip


def test_what_is_freed_is_below_the_committed_position_only() -> None:
    """R16: chunks and slots go after the broker's commit, whole chunks at a time."""
    play = Play()
    finished = CHUNK_OFFSETS + 300
    play.as_owner(Gap(0, finished), Advance(finished))
    play.as_owner(Drop(CHUNK_OFFSETS - 1))
    assert sorted(play.record.finished.chunks) == [0, 1]
    play.as_owner(Drop(finished + 999_999))
    assert sorted(play.record.finished.chunks) == [1]
    assert play.record.listed == {1}


def test_how_a_message_ended_is_forgotten_after_its_time() -> None:
    """R15, I8: the exceptions below the watermark are bounded by time."""
    play = Play() >> brings(0) >> leases() >> settles(Verb.DEAD, 0)
    assert play >> writes() << 0 >> finishes_dead(0) << "done" >> writes() << 1 >> acks(0) << "lost"
    play.now_ms += EXCEPTIONS_KEEP_MS + 1
    assert play >> writes() << 1
    assert play.record.exceptions == {}


def test_a_grant_that_was_sent_after_the_reread_counts() -> None:
    """I3, R12: it waited in a queue meanwhile; its holder has it, so it is no orphan later."""
    play = Play() >> brings(0, 1)
    owner = play.owner
    (offset,) = owner.ledger.grants.take(1, 1 << 30)
    play >> opens("a", again=True)
    reply = play.as_owner(Grant.of(offset, LEASE_MS, 1))
    owner.ledger.grants.granted(
        offset, reply.results[0], reply.rollback_epoch, reply.now_ms, play.now_ms
    )
    assert play >> leases(2) << [1] >> opens("a", again=True) << NOTHING
