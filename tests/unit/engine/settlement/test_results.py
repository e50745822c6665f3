"""The store's decision in the caller's words."""

import pytest

from ackd.api.messages import LeaseView, Status
from ackd.core.record.protocol import OpResult
from ackd.core.record.transitions import Outcome, State
from ackd.engine.settlement.results import (
    dead_lettered,
    lost,
    settle_result,
    unavailable,
    view_at,
    view_of,
)
from ackd.errors import LeaseLostError, StoreError

WHEN_MS = 77


def decided(outcome: Outcome, state: State = State.LEASED, *, attempt: int = 3) -> OpResult:
    return OpResult(outcome, state, attempt, 9, WHEN_MS, 1, late=False)


@pytest.mark.parametrize(
    ("outcome", "status", "deadline_ms", "due_ms"),
    [
        (Outcome.ACKED, Status.ACKED, None, None),
        (Outcome.ALREADY_ACKED, Status.ALREADY_ACKED, None, None),
        (Outcome.RETRYING, Status.RETRYING, None, WHEN_MS),
        (Outcome.EXTENDED, Status.EXTENDED, WHEN_MS, None),
        (Outcome.DEAD, Status.DEAD, None, None),
        (Outcome.RELEASED, Status.RELEASED, None, None),
    ],
)
def test_a_settle_that_counted(
    outcome: Outcome, status: Status, deadline_ms: int | None, due_ms: int | None
) -> None:
    found = settle_result(decided(outcome))
    assert (found.status, found.deadline_ms, found.due_ms) == (status, deadline_ms, due_ms)
    assert found.error is None


@pytest.mark.parametrize(
    ("state", "word"),
    [
        (State.READY, "ready"),
        (State.RELEASED, "ready"),
        (State.LEASED, "leased"),
        (State.WAITING, "retrying"),
        (State.DEAD, "dead"),
        (State.MOVING, "moving"),
        (State.FINISHED, "finished"),
    ],
)
def test_a_lost_lease_says_where_the_message_is(state: State, word: str) -> None:
    found = settle_result(decided(Outcome.LOST, state))
    assert (found.status, found.now_state, found.now_attempt) == (Status.LOST, word, 3)
    assert isinstance(found.error, LeaseLostError)
    assert settle_result(decided(Outcome.LOST, state, attempt=0)).now_attempt is None


RULES = {"deliveries_max": 3, "message_ttl_ms": 10_000}
OVER_MS = 10_999
"""A first delivery in second 0 is too long ago then (`first_s` 0 = unknown, so tests use 1)."""


@pytest.mark.parametrize("outcome", [Outcome.RETRYING, Outcome.RELEASED])
def test_a_message_without_attempts_or_time_left_is_dead(outcome: Outcome) -> None:
    def dead(attempt: int, now_ms: int, **rules: int) -> bool:
        return dead_lettered(decided(outcome, attempt=attempt), now_ms, **RULES | rules)

    assert dead(3, 2_000)
    assert dead(4, 2_000)
    assert not dead(2, 2_000)
    assert not dead(4, 2_000, deliveries_max=0)
    assert dead(1, 1_000 + OVER_MS)
    assert not dead(1, 1_000 + OVER_MS - 1)
    assert not dead(1, 1_000 + OVER_MS, message_ttl_ms=0)


@pytest.mark.parametrize("outcome", [Outcome.EXTENDED, Outcome.ACKED, Outcome.LOST])
def test_other_settles_give_nothing_up(outcome: Outcome) -> None:
    assert not dead_lettered(decided(outcome), 1_000 + OVER_MS, **RULES)


def test_i7_what_is_not_known_is_neither_yes_nor_no() -> None:
    error = StoreError("away")
    assert unavailable(error).status is Status.UNAVAILABLE
    assert unavailable(error).error is error
    assert lost("deleted").now_attempt is None


@pytest.mark.parametrize(
    ("outcome", "view"),
    [
        (Outcome.HELD, LeaseView("leased", 3, deadline_ms=WHEN_MS)),
        (Outcome.RETRYING, LeaseView("retrying", 3, due_ms=WHEN_MS)),
        (Outcome.ALREADY_ACKED, LeaseView("acked", 3)),
        (Outcome.DEAD, LeaseView("dead", 3)),
        (Outcome.LOST, LeaseView("lost", 3)),
        (Outcome.REFUSED, LeaseView("lost", 3)),
    ],
)
def test_a_look(outcome: Outcome, view: LeaseView) -> None:
    assert view_of(decided(outcome)) == view


def test_a_lease_whose_message_is_a_dead_letter_is_dead() -> None:
    """Also under a token of before (`GET /v1/leases`); of no other message more is said."""
    gone = decided(Outcome.LOST, State.FINISHED)
    assert view_at(gone, State.DEAD, 5) == LeaseView("dead", 5)
    assert view_at(gone, State.LEASED, 5) == view_of(gone)
