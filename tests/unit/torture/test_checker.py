"""The judge must be right: silent about a queue that keeps the rules, and never silent otherwise.

`model.Model` is a queue in virtual time with random latencies. Without a mutant no word may be said
(no false alarm, whatever overlaps); each mutant breaks one promise, and its word must be said.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ackd_torture.checker import BROKEN, Verdict, check, percentile
from ackd_torture.history import Event, EventKind
from tests.unit.torture.model import SUB, WALL_OFFSET_US, Model

MUTANTS = {
    "lost": {"lost"},
    "unexpected": {"unexpected"},
    "corrupt": {"unexpected"},
    "stranded": {"stranded", "lost"},
    "acked_again": {"acked_then_redelivered"},
    "double": {"double_leases"},
    "early": {"double_leases", "ended_early"},
    "early_lost": {"ended_early"},
    "false_yes": {"false_yes", "acked_then_redelivered"},
    "already": {"false_yes"},
}


def broken(verdict: Verdict) -> set[str]:
    return {word for word in BROKEN if verdict.count(word)}


@given(seed=st.integers(0, 2**32), clients=st.integers(1, 8))
@settings(max_examples=150, deadline=None)
def test_a_queue_that_keeps_the_rules_is_never_blamed(seed: int, clients: int) -> None:
    verdict = check(Model(seed, clients=clients).run())
    assert broken(verdict) == set(), verdict.findings
    assert verdict.kept
    assert verdict.delivered >= verdict.confirmed > 0
    assert verdict.clocks_apart_us <= 1_000, "whole milliseconds are told"


@pytest.mark.parametrize("mutant", sorted(MUTANTS))
def test_each_mutant_is_found(mutant: str) -> None:
    """Over 40 seeds: wherever the rule was broken often enough, its word is said, and no other."""
    found = planted = 0
    for seed in range(40):
        model = Model(seed, mutant)
        verdict = check(model.run())
        said = broken(verdict)
        if not model.planted:
            assert said == set(), (seed, verdict.findings)
            continue
        planted += 1
        found += bool(said & MUTANTS[mutant])
        assert not verdict.kept or not said
    assert planted >= 20, "the mutant must have acted for the test to mean anything"
    # A single case can hide behind overlapping requests; many of them can't.
    assert found >= planted * 0.9, (found, planted)


def test_lateness_counts_from_the_deadline() -> None:
    """I4: 30 ms late by design must read as 30 to 36 ms (rounding and latency), not as 0."""
    late = check(Model(7, "late", messages=80).run())
    sane = check(Model(7, "", messages=80).run())
    assert sane.lateness_us
    assert percentile(sane.lateness_us, 0.5) < 6_000
    assert late.lateness_us
    assert 28_000 <= percentile(late.lateness_us, 0.5) < 40_000


class History:
    """Builds a history by hand; times in ms."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def at(self, ms: float, kind: EventKind, **facts: str | float | bool) -> "History":
        """One line."""
        mono_us = int(ms * 1000)
        known = {"sub": SUB, "id": f"{SUB}/0/1", "msg": "m1", "client": "a", **facts}
        line = {"kind": kind, "mono_us": mono_us, "wall_us": mono_us + WALL_OFFSET_US, **known}
        self.events.append(Event(**line))  # type: ignore[arg-type]  # fields by name
        return self

    def published(self) -> "History":
        """The one message, confirmed."""
        return self.at(0, EventKind.PUBLISH).at(1, EventKind.PUBLISHED)

    def delivered(
        self, client: str, asked: float, read: float, attempt: int, deadline: float, lease: str = ""
    ) -> "History":
        """Lease of 100 ms: granted at `deadline` - 100."""
        call = len(self.events)
        self.at(asked, EventKind.ASK, client=client, call=call)
        self.at(
            read,
            EventKind.DELIVERED,
            client=client,
            call=call,
            attempt=attempt,
            lease=lease or f"l{attempt}",
            lease_ms=100,
            deadline_ms=int(deadline + WALL_OFFSET_US // 1000),
        )
        return self.at(read, EventKind.ANSWERED, client=client, call=call, count=1)

    def settled(
        self, sent: float, answered: float, lease: str, status: str, do: str = "ack"
    ) -> "History":
        """One settle by client a."""
        call = len(self.events)
        self.at(sent, EventKind.SETTLE, call=call, lease=lease, do=do)
        return self.at(answered, EventKind.SETTLED, call=call, lease=lease, do=do, status=status)

    def verdict(self) -> Verdict:
        """Judge it as a drained run."""
        self.at(10_000, EventKind.DRAINED)
        return check(sorted(self.events, key=lambda event: event.mono_us))


def test_long_poll_that_waited_during_the_ack_is_judged_by_the_grant() -> None:
    """I2: asked at 0, ack answered at 50, handed out at 80: overlapping, and certainly wrong."""
    run = History().published().delivered("a", 2, 10, 1, 105).settled(40, 50, "l1", "acked")
    assert run.verdict().kept
    run = History().published().delivered("a", 2, 10, 1, 105).settled(40, 50, "l1", "acked")
    run.delivered("b", 3, 90, 1, 180, lease="other")
    assert broken(run.verdict()) == {"acked_then_redelivered"}


def test_clock_that_is_off_makes_the_judge_milder() -> None:
    """A clock of ackd 30 ms behind: a grant seems to be before a release that it truly followed."""
    run = History().published().delivered("a", 200, 210, 1, 278, lease="l1")
    run.settled(220, 222, "l1", "released", do="release")
    run.delivered("b", 150, 230, 1, 298, lease="l2").settled(240, 241, "l2", "acked")
    verdict = run.verdict()
    assert verdict.kept
    assert verdict.clocks_apart_us == 22_000


def test_clock_that_is_ahead_tells_deadlines_that_end_earlier_than_told() -> None:
    """A clock of ackd 30 ms ahead: lost, and handed on, 25 ms before the deadline told."""
    run = History().published().delivered("a", 8, 10, 1, 139).settled(115, 116, "l1", "lost")
    run.delivered("b", 108, 112, 2, 240).settled(120, 121, "l2", "acked")
    verdict = run.verdict()
    assert verdict.kept
    assert verdict.clocks_apart_us == 29_000


def test_clocks_that_are_off_hide_no_more_than_they_must() -> None:
    """A clock of ackd 30 ms behind, known to 2 ms: 20 ms of two holders are seen."""
    run = History().published().delivered("a", 9, 11, 1, 80)
    run.delivered("b", 89, 91, 2, 160, lease="l2").settled(95, 96, "l2", "acked")
    assert broken(run.verdict()) == {"double_leases"}


def test_clock_that_moves_during_the_run_allows_all_between() -> None:
    """The second grant seems to be 40 ms before it was asked for, the first one was in time."""
    run = History().published().delivered("a", 2, 10, 1, 105)
    run.delivered("b", 120, 122, 2, 180, lease="l2").settled(125, 126, "l2", "acked")
    verdict = run.verdict()
    assert verdict.kept
    assert verdict.clocks_apart_us == 40_000


def test_overlap_without_proof_is_not_blamed() -> None:
    """I2: a release makes the next grant carry the same attempt; it may precede the ack."""
    run = History().published().delivered("a", 2, 10, 1, 105)
    run.settled(20, 22, "l1", "released", do="release")
    run.delivered("b", 23, 60, 1, 130, lease="second").settled(61, 70, "second", "acked")
    assert run.verdict().kept


def test_newer_attempt_beside_an_accepted_ack_is_always_wrong() -> None:
    """I2, I7: both requests overlap, times prove nothing, the attempt does."""
    run = History().published().delivered("a", 2, 10, 1, 105)
    run.settled(100, 140, "l1", "acked")
    run.delivered("b", 90, 150, 2, 220)
    assert broken(run.verdict()) == {"acked_then_redelivered"}


def test_ack_accepted_after_its_message_went_on_is_a_false_yes() -> None:
    """I7: the newer holder had its message in hand when the old lease's ack was sent."""
    run = History().published().delivered("a", 2, 10, 1, 105).delivered("b", 90, 112, 2, 210)
    run.settled(130, 140, "l1", "acked")
    assert broken(run.verdict()) == {"false_yes"}


def test_an_ack_that_was_refused_or_of_an_earlier_lease_makes_no_other_one_a_repeat() -> None:
    """I7: `already_acked` is true only if an ack may have finished the message."""
    run = History().published().delivered("a", 2, 10, 1, 105).delivered("b", 108, 112, 2, 210)
    run.settled(120, 125, "l1", "lost").settled(130, 140, "l2", "already_acked")
    assert broken(run.verdict()) == {"false_yes"}
    run = History().published().delivered("a", 2, 10, 1, 105).delivered("b", 108, 112, 2, 210)
    run.at(100, EventKind.SETTLE, call=99, lease="l1", do="ack")
    run.settled(130, 140, "l2", "already_acked")
    assert broken(run.verdict()) == {"false_yes"}


def test_replayed_answer_is_no_second_holder() -> None:
    """R21: the same lease comes again by attempt_id; that is one lease, not two."""
    run = History().published().delivered("a", 2, 10, 1, 105).delivered("a", 2, 30, 1, 105)
    run.settled(40, 50, "l1", "acked")
    verdict = run.verdict()
    assert verdict.kept
    assert verdict.replays == 1


def test_replay_of_a_lease_that_was_acked_is_a_redelivery() -> None:
    """R21: a replay never returns a lease that is no longer live."""
    run = History().published().delivered("a", 2, 10, 1, 105).settled(40, 50, "l1", "acked")
    run.delivered("a", 60, 70, 1, 105, lease="l1")
    assert broken(run.verdict()) == {"acked_then_redelivered"}


def test_ack_before_a_loss_of_the_stores_data_is_excused_and_counted() -> None:
    """I2 holds as long as the store keeps its data; what was lost with it is told apart."""
    run = History().published().delivered("a", 2, 10, 1, 105).settled(40, 50, "l1", "acked")
    run.at(60, EventKind.DATA_LOST, note="flush").at(70, EventKind.HEALED, note="flush")
    run.delivered("b", 80, 90, 1, 185, lease="after").settled(95, 99, "after", "acked")
    verdict = run.verdict()
    assert verdict.kept
    assert verdict.count("excused") == 1


def test_attempts_are_counted_anew_after_a_loss_of_the_stores_data() -> None:
    """The second attempt was before the loss, the first one after it: no contradiction."""
    run = History().published().delivered("a", 2, 10, 1, 105).settled(20, 30, "l1", "retrying")
    run.delivered("a", 35, 40, 2, 135, lease="l2").settled(45, 50, "l2", "retrying")
    run.at(60, EventKind.DATA_LOST, note="roll back").at(70, EventKind.HEALED, note="roll back")
    run.delivered("b", 80, 90, 1, 185, lease="l3").settled(95, 99, "l3", "acked")
    assert run.verdict().kept


def test_ack_without_an_answer_strands_nothing_and_proves_nothing() -> None:
    run = History().published().delivered("a", 2, 10, 1, 105)
    run.at(40, EventKind.SETTLE, call=99, lease="l1", do="ack")
    run.at(50, EventKind.SETTLE_UNKNOWN, call=99, lease="l1", do="ack")
    assert run.verdict().kept


def test_message_that_was_acked_or_perhaps_acked_is_counted_once_as_what_is_known() -> None:
    """A client killed with an ack in the air leaves no answer; a repeat that is answered does."""
    run = History().published().delivered("a", 2, 10, 1, 105)
    run.at(40, EventKind.SETTLE, call=99, lease="l1", do="ack")
    unclear = check(run.at(90, EventKind.DRAINED).events)
    assert (unclear.delivered, unclear.acked, unclear.acks_unclear) == (1, 0, 1)
    assert unclear.kept
    run = History().published().delivered("a", 2, 10, 1, 105)
    run.at(40, EventKind.SETTLE, call=99, lease="l1", do="ack").settled(
        50, 51, "l1", "already_acked"
    )
    clear = run.verdict()
    assert (clear.delivered, clear.acked, clear.acks_unclear) == (1, 1, 0)
    run = History().published().delivered("a", 2, 10, 1, 105)
    run.at(40, EventKind.SETTLE, call=99, lease="l1", do="extend")
    stranded = run.verdict()
    assert (stranded.acked, stranded.acks_unclear, stranded.count("stranded")) == (0, 0, 1)


def test_delivered_and_never_finished_is_stranded() -> None:
    run = History().published().delivered("a", 2, 10, 1, 105)
    assert broken(run.verdict()) == {"stranded"}


def test_one_message_in_two_places_is_duplicated() -> None:
    run = History().published().delivered("a", 2, 10, 1, 105).settled(20, 21, "l1", "acked")
    run.at(30, EventKind.ASK, call=77).at(
        31, EventKind.DELIVERED, call=77, id=f"{SUB}/0/9", lease="x", attempt=1
    )
    run.settled(32, 33, "x", "acked")
    verdict = run.verdict()
    assert verdict.kept
    assert verdict.count("duplicated") == 1


def test_without_a_drain_nothing_is_called_lost_and_nothing_kept() -> None:
    events = History().published().events
    verdict = check(events)
    assert verdict.count("lost") == 0
    assert not verdict.kept


def test_percentiles_are_nearest_rank() -> None:
    assert percentile([], 0.99) == 0
    assert percentile([5], 0.5) == 5
    assert percentile(list(range(1, 101)), 0.99) == 99
    assert percentile(list(range(1, 1001)), 0.5) == 500
