"""What an ordered ledger does with keys that are blocked, and with copies in line (R19, I6)."""

from __future__ import annotations

from dataclasses import dataclass

from ackd.core.ledger.claims import BLOCKED_AGAIN_MS, IN_QUEUE_MS
from ackd.core.ledger.effects import Claim, LeaveKeyQueue, SendBack
from ackd.core.ledger.ledger import Ledger
from ackd.core.ledger.order import PARTITION, OrderPosition, key_hash
from ackd.core.ledger.send_back import FOLLOWERS_MAX, Rules, Stuck, Why
from ackd.core.record.protocol import CallStatus, OpResult, SlotView, Snapshot
from ackd.core.record.transitions import Outcome, State

T0_MS = 1_700_000_000_000
RULES = Rules(stuck_after_ms=1_000, min_age_ms=500, span_max=2_000)
A, B = key_hash(b"a"), key_hash(b"b")


@dataclass(frozen=True)
class Body:
    """A message of a key, or a copy in line: then `rank` is its origin's offset."""

    offset: int
    key: int = A
    rank: int = -1

    def size(self) -> int:
        """Its bytes."""
        return 10


def position_of(body: Body) -> OrderPosition:
    """By its key; a copy says at its end whose copy it was."""
    if body.rank < 0:
        return OrderPosition(body.key, body.offset)
    return OrderPosition(body.key, body.rank, origin_record=f"origin record of {body.rank}")


def opened(*slots: SlotView, blocked: tuple[int, ...] = (), copies: bool = False) -> Ledger[Body]:
    """A ledger that keeps the order."""
    ledger: Ledger[Body] = Ledger(None if copies else RULES, copies=copies, position_of=position_of)
    snapshot = Snapshot(CallStatus.OK, now_ms=T0_MS, slots=list(slots), blocked=list(blocked))
    ledger.opened(snapshot, T0_MS)
    ledger.intake.fetching(1, 0)
    return ledger


def result(
    outcome: Outcome, state: State = State.READY, fence: int = 9, when_ms: int = 0
) -> OpResult:
    """An answer of the store."""
    return OpResult(outcome, state, 1, fence, when_ms, T0_MS // 1000, late=False)


def lease(ledger: Ledger[Body], *offsets: int) -> None:
    """Hand these out, and nothing else."""
    assert ledger.grants.take(9, 999) == list(offsets)
    for offset in offsets:
        granted = result(Outcome.GRANTED, State.LEASED, when_ms=T0_MS + 100)
        ledger.grants.granted(offset, granted, 7, T0_MS, T0_MS)


def blocked_by(ledger: Ledger[Body], offset: int) -> int | None:
    """Which message it waits for."""
    assert ledger.order is not None
    return ledger.order.blocked_by(offset)


def answer(ledger: Ledger[Body], offset: int, outcome: Outcome) -> None:
    """What MOVE_TO_RETRY came to."""
    state = State.MOVING if outcome is Outcome.SENT else State.READY
    ledger.send_back.sent(offset, result(outcome, state, 50 + offset), 7, T0_MS, T0_MS)


def test_a_key_follows_its_first_message_as_a_whole_and_in_order() -> None:
    ledger = opened()
    ledger.intake.fetched(1, [Body(0), Body(1, B), Body(2), Body(3)])
    lease(ledger, 0, 1)
    assert blocked_by(ledger, 2) == 0
    assert ledger.send_back.stuck(T0_MS + 3_000)[0] == Stuck(0, Why.AGE, A)
    answer(ledger, 0, Outcome.SENT)
    assert [s for s in ledger.send_back.stuck(T0_MS) if s.key == A] == [
        Stuck(2, Why.KEY, A),
        Stuck(3, Why.KEY, A),
    ]
    assert [
        s for s in ledger.send_back.stuck(T0_MS) if s.key == A
    ] == []  # until these were answered
    answer(ledger, 2, Outcome.SENT)
    answer(ledger, 3, Outcome.SENT)
    ledger.drain()
    for offset in (0, 2, 3):
        ledger.send_back.sent_back(offset)
    ledger.intake.fetched(1, [Body(4)])
    assert (ledger.ready, ledger.grants.take(9, 999), blocked_by(ledger, 4)) == (0, [], 4)
    assert Stuck(4, Why.KEY, A) in ledger.send_back.stuck(T0_MS)


def test_a_key_that_the_store_says_is_free_goes_on_in_the_window() -> None:
    ledger = opened(blocked=(A,))
    ledger.intake.fetched(1, [Body(0), Body(1)])
    assert ledger.grants.take(9, 999) == []
    assert [s.offset for s in ledger.send_back.stuck(T0_MS)] == [0, 1]
    answer(ledger, 0, Outcome.LOST)
    answer(ledger, 1, Outcome.LOST)
    assert not ledger.send_back.blocked
    lease(ledger, 0)
    other = opened(blocked=(A, B))
    other.intake.fetched(1, [Body(0), Body(1, B)])
    other.send_back.key_free(B)
    assert list(other.send_back.blocked) == [A]
    lease(other, 1)


def test_what_was_not_decided_is_asked_again_in_order() -> None:
    ledger = opened(blocked=(A,))
    ledger.intake.fetched(1, [Body(0), Body(1)])
    assert [s.offset for s in ledger.send_back.stuck(T0_MS)] == [0, 1]
    ledger.send_back.not_sent([0, 1])
    assert [s.offset for s in ledger.send_back.stuck(T0_MS)] == [0, 1]
    answer(ledger, 0, Outcome.HELD)
    answer(ledger, 1, Outcome.HELD)
    assert [s.offset for s in ledger.send_back.stuck(T0_MS)] == [0, 1]


def test_followers_go_in_lots() -> None:
    ledger = opened(blocked=(A,))
    ledger.intake.fetched(1, [Body(offset) for offset in range(FOLLOWERS_MAX + 5)])
    first = [s.offset for s in ledger.send_back.stuck(T0_MS)]
    assert first == list(range(FOLLOWERS_MAX))
    assert ledger.send_back.stuck(T0_MS) == []
    for offset in first:
        answer(ledger, offset, Outcome.SENT)
    assert [s.offset for s in ledger.send_back.stuck(T0_MS)] == list(
        range(FOLLOWERS_MAX, FOLLOWERS_MAX + 5)
    )


def test_a_lease_of_an_earlier_owner_is_not_sent_before_its_key_is_known() -> None:
    """It would leave without its key, and later ones would pass it."""
    old = SlotView(0, State.WAITING, 1, 0, 9, 7, T0_MS + 60_000, T0_MS // 1000 - 60)
    ledger = opened(old)
    assert ledger.send_back.stuck(T0_MS) == []
    ledger.intake.fetched(1, [Body(0)])
    assert ledger.send_back.stuck(T0_MS) == [Stuck(0, Why.DELAY, A)]


def test_a_partition_is_one_line_and_nothing_of_it_has_a_key_to_block() -> None:
    ledger: Ledger[Body] = Ledger(
        None, position_of=lambda body: OrderPosition(PARTITION, body.offset)
    )
    ledger.opened(Snapshot(CallStatus.OK, now_ms=T0_MS), T0_MS)
    ledger.intake.fetching(1, 0)
    ledger.intake.fetched(1, [Body(0), Body(1, B)])
    lease(ledger, 0)
    assert ledger.send_back.stuck(T0_MS + 3_600_000) == []
    ledger.settled(0, Outcome.ACKED, 9, 0, T0_MS, T0_MS)
    lease(ledger, 1)
    assert PARTITION not in (A, B)


# --- copies


def claimed(ledger: Ledger[Body], offset: int, outcome: Outcome, state: State) -> None:
    """What the origin record said, or PLACE_COPY."""
    ledger.claimed(offset, result(outcome, state), 7, T0_MS, T0_MS)


def test_only_the_first_copy_of_a_line_asks_and_the_next_when_it_is_over() -> None:
    ledger = opened(copies=True)
    ledger.intake.fetched(1, [Body(0, rank=5), Body(1, rank=6), Body(2, B, rank=7)])
    assert ledger.drain() == [Claim(0), Claim(2)]
    claimed(ledger, 0, Outcome.DONE, State.WAITING)
    assert ledger.drain() == []  # its origin record stays in line as long as it is not over
    lease(ledger, 0)
    ledger.settled(0, Outcome.ACKED, 9, 0, T0_MS, T0_MS)
    assert ledger.drain() == [LeaveKeyQueue(0, "origin record of 5"), Claim(1)]
    assert ledger.over(0)


def test_a_copy_that_was_not_the_one_frees_nobody() -> None:
    """Of two copies of a message the other one has claimed: its end says nothing of the line."""
    ledger = opened(copies=True)
    ledger.intake.fetched(1, [Body(0, rank=5), Body(1, rank=5), Body(2, rank=6)])
    ledger.drain()
    claimed(ledger, 0, Outcome.REFUSED, State.READY)
    assert LeaveKeyQueue(0, "origin record of 5") not in (effects := ledger.drain())
    assert Claim(1) in effects


def test_a_copy_that_is_acked_was_claimed_whatever_was_forgotten() -> None:
    """R19, R10: its line hears of it, at once or when the copy is fetched."""
    ledger = opened(copies=True)
    ledger.intake.fetched(1, [Body(0, rank=5)])
    assert ledger.drain() == [Claim(0)]
    ledger.acked([0, 2])
    assert ledger.drain() == [LeaveKeyQueue(0, "origin record of 5")]
    ledger.intake.fetched(1, [Body(1, rank=6), Body(2, rank=7)])
    assert ledger.drain() == [Claim(1), LeaveKeyQueue(2, "origin record of 7")]


def test_copies_that_a_commit_says_to_be_over_are_read_over() -> None:
    """R19: also below the watermark; what lies behind them is as it was."""
    ledger = opened(copies=True)
    ledger.acked([0, 1, 2])
    ledger.drain()
    assert ledger.claims is not None
    ledger.claims.read_over(1, 2)
    ledger.intake.fetched(1, [Body(0, rank=4), Body(1, rank=5), Body(2, rank=6), Body(3, rank=7)])
    assert ledger.drain() == [LeaveKeyQueue(1, "origin record of 5"), Claim(3)]


def test_who_is_behind_a_copy_that_is_elsewhere_asks_again_soon_and_others_late() -> None:
    ledger = opened(copies=True)
    ledger.tick(T0_MS)
    ledger.intake.fetched(1, [Body(0, rank=6), Body(1, rank=7)])
    assert ledger.drain() == [Claim(0)]
    claimed(ledger, 0, Outcome.BLOCKED, State.MOVING)
    assert ledger.tick(T0_MS + BLOCKED_AGAIN_MS) == 1
    assert ledger.drain() == [Claim(0)]
    assert ledger.tick(T0_MS + IN_QUEUE_MS) == 1
    assert ledger.drain() == [Claim(1)]


def test_copies_in_line_do_not_stop_the_fetching_of_their_first() -> None:
    """I8 bounds what is ready; who waits for a copy that is not fetched yet does not count."""
    ledger = opened(copies=True)
    ledger.intake.fetched(1, [Body(0, rank=6), Body(1, rank=7), Body(2, rank=8)])
    assert ledger.buffered == 0
    ledger.intake.fetched(1, [Body(3, rank=5)])
    assert Claim(3) in ledger.drain()


def test_a_line_in_another_order_than_its_copies_comes_to_its_end() -> None:
    """R10: after a rollback the line in its origin record may be another one. Its word counts."""
    ledger = opened(copies=True)
    ledger.tick(T0_MS)
    ledger.intake.fetched(1, [Body(0, rank=5), Body(1, rank=7)])
    claimed(ledger, 0, Outcome.BLOCKED, State.MOVING)
    ledger.tick(T0_MS + IN_QUEUE_MS)
    assert Claim(1) in ledger.drain()
    claimed(ledger, 1, Outcome.DONE, State.WAITING)
    lease(ledger, 1)
    ledger.settled(1, Outcome.ACKED, 9, 0, T0_MS, T0_MS)
    assert ledger.drain() == [LeaveKeyQueue(1, "origin record of 7")]
    claimed(ledger, 0, Outcome.BLOCKED, State.MOVING)
    ledger.tick(T0_MS + IN_QUEUE_MS + BLOCKED_AGAIN_MS)
    assert ledger.drain() == [Claim(0)]


def test_a_ledger_without_an_order_knows_nothing_of_it() -> None:
    ledger: Ledger[Body] = Ledger(RULES)
    ledger.opened(Snapshot(CallStatus.OK, now_ms=T0_MS, blocked=[A]), T0_MS)
    ledger.intake.fetching(1, 0)
    ledger.intake.fetched(1, [Body(0), Body(1)])
    assert ledger.order is None
    assert (list(ledger.send_back.blocked), ledger.send_back.key(0)) == ([], 0)
    lease(ledger, 0, 1)
    found = ledger.send_back.stuck(T0_MS + 3_000)
    assert found == [Stuck(0, Why.AGE, 0), Stuck(1, Why.AGE, 0)]
    answer(ledger, 0, Outcome.SENT)
    assert ledger.drain() == [SendBack(0, 50, 1)]
