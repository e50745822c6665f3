"""What others' clients delayed before it came: written down first, then handed out in time."""

from __future__ import annotations

import pytest

from ackd.core.ledger.effects import Exhausted, StoreForeignDelays
from ackd.core.ledger.order import OrderPosition
from ackd.core.ledger.send_back import Rules, Stuck, Why
from ackd.core.record.operations import MarkDead, MoveToRetry, PlaceCopy, ReplayAck
from ackd.core.record.transitions import Outcome, Verb
from tests.unit.core.playbook import (
    T0_MS,
    Event,
    Letter,
    Play,
    acks,
    brings,
    fetches,
    forgets,
    leases,
    opens,
    passes,
    promotes,
    replicates,
    settles,
    waits_ready,
    watermark,
)

DUE_MS = T0_MS + 5_000


def tells(*rows: tuple[int, int, int]) -> Event:
    """The adapter says (offset, due time, deliveries elsewhere). Answers what goes to the store."""

    def event(play: Play) -> list[tuple[int, int, int]]:
        owner = play.owner
        owner.ledger.intake.foreign_delays(owner.session, rows)
        play.perform()
        return [
            row
            for each in play.asked
            if isinstance(each, StoreForeignDelays)
            for row in each.messages
        ]

    return event


def writes_down() -> Event:
    """The store is told, as the engine does it. Answers the outcomes."""

    def event(play: Play) -> list[str]:
        asked = [each for each in play.asked if isinstance(each, StoreForeignDelays)]
        play.asked = [each for each in play.asked if not isinstance(each, StoreForeignDelays)]
        ops = [
            PlaceCopy(offset, attempt=attempt, due_ms=due_ms, first_s=due_ms // 1000)
            for each in asked
            for offset, attempt, due_ms in each.messages
        ]
        reply = play.as_owner(*ops)
        for op, result in zip(ops, reply.results, strict=True):
            now = (reply.rollback_epoch, reply.now_ms, play.now_ms)
            play.owner.ledger.claimed(op.offset, result, *now)
        play.perform()
        return [result.outcome.name.lower() for result in reply.results]

    return event


def attempt(offset: int) -> Event:
    return lambda play: play.owner.ledger.entries[offset].attempt


def test_i1_it_waits_for_its_time_and_counts_on() -> None:
    told = Play() >> tells((1, DUE_MS, 3)) << [(1, 3, DUE_MS)]
    assert told >> brings(0, 1, 2) >> leases(9) << [0, 2]
    # Nobody has it before the store knows.
    assert told >> writes_down() << ["done"] >> waits_ready() << []
    assert told >> passes(4_999) >> leases(9) << []
    assert told >> passes(1) >> leases(9) << [1] >> attempt(1) << 4
    assert told >> acks(0, 1, 2) >> watermark() << 3


@pytest.mark.parametrize("known", ["", "written"])
def test_r12_a_restart_tells_it_again_and_the_record_counts(known: str) -> None:
    told = Play() >> tells((0, DUE_MS, 3)) >> brings(0)
    if known:
        told >> writes_down()
    told.asked.clear()
    again = told >> forgets("a") >> opens("a") >> fetches(0) >> tells((0, DUE_MS, 3))
    assert again << ([] if known else [(0, 3, DUE_MS)])
    assert told >> brings(0) >> writes_down() << ([] if known else ["done"])
    assert told >> passes(4_999) >> leases() << [] >> passes(1) >> leases() << [0]
    assert told >> attempt(0) << 4
    # Neither is it delayed again after that.
    assert told >> forgets("a") >> opens("a") >> fetches(0) >> tells((0, DUE_MS + 9_000, 3)) << []


@pytest.mark.parametrize("known", ["", "written"])
def test_r9_read_again_it_is_written_again_unless_it_is_there(known: str) -> None:
    """The answer was lost, or the store went back to before it."""
    told = Play() >> replicates() >> tells((0, DUE_MS, 3)) >> brings(0)
    if known:
        told >> writes_down() >> promotes()
    told.asked.clear()
    assert told >> opens("a", again=True) >> leases() << []
    assert told >> writes_down() << ["done"]
    told >> opens("a", again=True)
    assert told.asked == []
    assert told >> passes(60_000) >> leases() << [0] >> attempt(0) << 4


def test_r9_what_was_due_still_counts_on_when_the_store_has_forgotten_it() -> None:
    told = Play() >> replicates() >> tells((0, DUE_MS, 3)) >> brings(0) >> writes_down()
    assert told >> passes(5_000) >> waits_ready() << [0]
    assert (
        told >> promotes() >> opens("a", again=True) >> leases() << [] >> writes_down() << ["done"]
    )
    assert told >> passes(60_000) >> leases() << [0] >> attempt(0) << 4


def test_what_is_due_already_only_counts_and_nothing_told_is_nothing_done() -> None:
    told = Play() >> tells((0, T0_MS - 3_600_000, 2), (1, T0_MS - 1, 0)) << [(0, 2, 0)]
    assert told >> brings(0, 1) >> writes_down() << ["done"] >> leases(9) << [0, 1]
    assert told >> attempt(0) << 3 >> attempt(1) << 1
    # As if it were handed out first now: what is judged by age begins here.
    assert told.owner.ledger.entries[0].first_s == T0_MS // 1000


def test_what_was_finished_or_belongs_to_an_old_session_is_left_alone() -> None:
    told = Play() >> brings(0, 1) >> leases(2) >> acks(1) >> fetches(0)
    assert told >> tells((1, DUE_MS, 1)) << []
    told.owner.ledger.intake.foreign_delays(told.owner.session - 1, [(2, DUE_MS, 1)])
    assert told.owner.ledger.drain() == []


def test_it_may_be_acked_while_the_store_is_asked() -> None:
    """An operator's cancel."""
    told = Play() >> tells((0, DUE_MS, 0)) >> brings(0, 1)
    told.as_owner(ReplayAck(0))
    assert told >> writes_down() << ["finished"] >> watermark() << 1


def test_its_budget_may_be_used_up_when_it_comes() -> None:
    told = Play()
    told.owner.ledger.limits.deliveries_max = 3
    told >> tells((0, DUE_MS, 3), (1, DUE_MS, 2)) >> brings(0, 1) >> writes_down()
    assert [each for each in told.asked if isinstance(each, Exhausted)] == [Exhausted(0, 0)]
    reply = told.as_owner(MarkDead(0, deliveries_max=3))
    told.owner.ledger.marked_dead(
        0, reply.results[0], reply.rollback_epoch, reply.now_ms, told.now_ms
    )
    told.perform()
    assert told.dead == [0]


def test_i5_a_long_delay_leaves_the_window_and_a_short_one_holds_it_up_until_it_is_old() -> None:
    told = Play()
    ledger = told.owner.ledger
    ledger.send_back.rules = Rules(stuck_after_ms=60_000, min_age_ms=30_000, span_max=2_000)
    told >> tells((0, T0_MS + 59_000, 0), (1, T0_MS + 60_000, 0)) >> brings(0, 1) >> writes_down()
    assert ledger.send_back.stuck(told.now_ms) == [Stuck(1, Why.DELAY)]
    assert told >> passes(59_000) >> leases(lease_ms=3_600_000) << [0]
    assert ledger.send_back.stuck(told.now_ms + 59_000) == []
    assert ledger.send_back.stuck(told.now_ms + 61_000) == [Stuck(0, Why.AGE)]


def test_given_up_by_age_only_after_it_was_due() -> None:
    told = Play()
    told.owner.ledger.limits.message_ttl_ms = 1_000
    assert told >> tells((0, DUE_MS, 0)) >> brings(0) >> writes_down() << ["done"]
    assert told >> passes(5_000) >> leases() << [0]


def test_i6_with_an_order_it_counts_on_and_does_not_wait() -> None:
    told = Play(position_of=_one_key)
    assert told >> tells((0, DUE_MS, 2)) << [(0, 2, 0)] >> brings(0, 1) >> leases(9) << []
    assert told >> writes_down() >> leases(9) << [0] >> attempt(0) << 3
    assert told >> settles(Verb.RETRY, 0, arg=1_000) >> leases(9) << []
    assert told >> passes(1_000) >> leases(9) << [0] >> acks(0) >> leases(9) << [1]


def test_i6_of_a_key_it_is_not_asked_to_leave_before_anybody_had_it() -> None:
    """It holds the window up, and so does whatever of its key is before it: only behind a blocked
    key may it go (R19). Such a question does not make it forget that it wrote the attempts down.
    """
    told = Play(position_of=_one_key)
    ledger = told.owner.ledger
    ledger.send_back.rules = Rules(stuck_after_ms=1_000, min_age_ms=500, span_max=2_000)
    told >> tells((0, 0, 2), (1, 0, 2)) >> brings(0, 1) >> writes_down()
    assert told >> leases(1, lease_ms=100) << [0]
    assert told >> passes(3_000) >> acks(0)
    assert ledger.send_back.stuck(told.now_ms) == []
    asked = told.as_owner(MoveToRetry(1, 1, 7))
    (lost,) = asked.results
    ledger.send_back.sent(1, lost, asked.rollback_epoch, asked.now_ms, told.now_ms)
    assert (lost.outcome, ledger.entries[1].first_s) == (Outcome.LOST, lost.first_s)
    assert lost.first_s
    assert told >> leases(1) << [1] >> attempt(1) << 3


def _one_key(body: Letter) -> OrderPosition:
    return OrderPosition(7, body.offset)
