"""Turn the store's decision about a lease into the answer to the caller."""

from __future__ import annotations

from collections.abc import Mapping

from ackd.api.messages import LeaseView, SettleResult, Status
from ackd.core.ledger.message_limits import ttl_end_ms
from ackd.core.record.protocol import OpResult
from ackd.core.record.settles import OF_OUTCOME, Due
from ackd.core.record.transitions import Outcome, State
from ackd.errors import LeaseLostError, StoreError

STATUSES: Mapping[Outcome, Status] = {
    **{outcome: rule.status for outcome, rule in OF_OUTCOME.items()},
    Outcome.ALREADY_ACKED: Status.ALREADY_ACKED,
}
_DUE = {outcome: rule.due for outcome, rule in OF_OUTCOME.items()}
_AGAIN = frozenset({Outcome.RETRYING, Outcome.RELEASED})
_STATE_NAMES: Mapping[State, str] = {
    State.READY: "ready",
    State.LEASED: "leased",
    State.WAITING: "retrying",
    State.RELEASED: "ready",
    State.DEAD: "dead",
    State.MOVING: "moving",
    State.FINISHED: "finished",
}
_LOOKS: Mapping[Outcome, str] = {
    Outcome.ALREADY_ACKED: "acked",
    Outcome.HELD: "leased",
    Outcome.RETRYING: "retrying",
    Outcome.DEAD: "dead",
}


def settle_result(result: OpResult) -> SettleResult:
    """Make the result of a settle."""
    status = STATUSES.get(result.outcome)
    if status is None:
        return lost(_STATE_NAMES[result.state], result.attempt or None)
    due = _DUE.get(result.outcome)
    return SettleResult(
        status,
        late=result.late,
        deadline_ms=result.when_ms if due is Due.LEASE else None,
        due_ms=result.when_ms if due is Due.DELAY else None,
    )


def dead_lettered(result: OpResult, now_ms: int, deliveries_max: int, message_ttl_ms: int) -> bool:
    """Whether the message is not delivered again after this settle: its owner dead-letters it at
    once, by the rules of `LedgerLimits`. `now_ms`: on the store's clock.
    """
    if result.outcome not in _AGAIN:
        return False
    out_of_time = (
        message_ttl_ms > 0
        and result.first_s > 0
        and ttl_end_ms(result.first_s, message_ttl_ms) <= now_ms
    )
    return out_of_time or 0 < deliveries_max <= result.attempt


def found_at(state: State, attempt: int) -> SettleResult:
    """Make the result of a settle that came too late, of a message that is somewhere else now."""
    return lost(_STATE_NAMES[state], attempt or None)


def lost(state: str, attempt: int | None = None) -> SettleResult:
    """Make the result of a settle that came too late: the lease is gone, the message is in
    `state`.
    """
    error = LeaseLostError()
    return SettleResult(Status.LOST, now_state=state, now_attempt=attempt, error=error)


def left_its_record(result: OpResult) -> bool:
    """Whether another record may know more of where the message of a lost lease is."""
    return result.outcome is Outcome.LOST and result.state in (State.FINISHED, State.MOVING)


def unavailable(error: StoreError) -> SettleResult:
    """Make the result of a settle that is not known to be durable (I7)."""
    return SettleResult(Status.UNAVAILABLE, error=error)


def view_of(result: OpResult) -> LeaseView:
    """Make the view of a lease that was looked up."""
    state = _LOOKS.get(result.outcome, "lost")
    return LeaseView(
        state,
        result.attempt,
        deadline_ms=result.when_ms if state == "leased" else None,
        due_ms=result.when_ms if state == "retrying" else None,
        late=result.late,
    )


def view_at(result: OpResult, state: State, attempt: int) -> LeaseView:
    """Make the view of a lease whose message is somewhere else now: dead, maybe."""
    return LeaseView("dead", attempt) if state is State.DEAD else view_of(result)
