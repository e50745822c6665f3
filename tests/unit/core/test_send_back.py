"""What the ledger sends back, and what it leaves alone (R3, I5); what its attempts end in."""

from __future__ import annotations

import random
from dataclasses import dataclass
from heapq import heappop, heappush

from ackd.core.ledger.effects import Claim, CloseOriginRecord, Exhausted, FinishRange, SendBack
from ackd.core.ledger.ledger import Ledger
from ackd.core.ledger.send_back import ENDS_SOON_MS, Rules, Stuck, Why
from ackd.core.record.protocol import CallStatus, OpResult, SlotView, Snapshot
from ackd.core.record.transitions import Outcome, State

T0_MS = 1_700_000_000_000
RULES = Rules(stuck_after_ms=60_000, min_age_ms=30_000, span_max=2_000)


@dataclass(frozen=True)
class Body:
    """A message."""

    offset: int

    def size(self) -> int:
        """Its bytes."""
        return 10


def opened(
    *slots: SlotView, rules: Rules | None = RULES, most: int = 0, copies: bool = False
) -> Ledger[Body]:
    """A ledger whose own clock shows the store's time."""
    ledger: Ledger[Body] = Ledger(rules, most, copies=copies)
    ledger.opened(Snapshot(CallStatus.OK, now_ms=T0_MS, slots=list(slots)), T0_MS)
    ledger.intake.fetching(1, 0)
    return ledger


def lease(ledger: Ledger[Body], now_ms: int, lease_ms: int = 30_000, attempt: int = 1) -> int:
    """Hand the next message out."""
    (offset,) = ledger.grants.take(1, 1)
    first_s = ledger.entries[offset].first_s or now_ms // 1000
    result = OpResult(
        Outcome.GRANTED, State.LEASED, attempt, now_ms, now_ms + lease_ms, first_s, late=False
    )
    ledger.grants.granted(offset, result, 7, now_ms, now_ms)
    return offset


def sent(fence: int) -> OpResult:
    """The store's answer to MOVE_TO_RETRY."""
    return OpResult(Outcome.SENT, State.MOVING, 1, fence, 0, 0, late=False)


def test_i4_a_message_whose_lease_ends_soon_stays_until_then_but_not_for_long() -> None:
    """Nobody could get it while its copy is on its way. The next one does not wait for it."""
    stuck_ms = T0_MS + 60_999
    ledger = opened()
    ledger.intake.fetched(1, [Body(0), Body(1), Body(2)])
    lease(ledger, T0_MS, lease_ms=60_999 + ENDS_SOON_MS - 1)
    lease(ledger, T0_MS, lease_ms=3_600_000)
    lease(ledger, T0_MS, lease_ms=60_999 + ENDS_SOON_MS)
    assert ledger.send_back.stuck(stuck_ms) == [Stuck(1, Why.AGE), Stuck(2, Why.AGE)]
    again_ms = stuck_ms + ENDS_SOON_MS - 1
    ledger.settled(0, Outcome.EXTENDED, T0_MS, again_ms + 100, again_ms, again_ms)
    assert ledger.send_back.stuck(again_ms) == []
    assert ledger.send_back.stuck(again_ms + 1) == [Stuck(0, Why.AGE)]  # however soon it ends


def test_a_head_that_was_delivered_long_ago_is_sent_back_and_its_copy_asked_for() -> None:
    ledger = opened()
    ledger.intake.fetched(1, [Body(0), Body(1)])
    lease(ledger, T0_MS, lease_ms=3_600_000)
    lease(ledger, T0_MS)
    ledger.settled(1, Outcome.ACKED, T0_MS, 0, T0_MS, T0_MS)
    assert (
        ledger.send_back.stuck(T0_MS + 60_000) == []
    )  # `first_s` is cut to seconds: not one too early
    assert ledger.send_back.stuck(T0_MS + 61_000) == [Stuck(0, Why.AGE)]
    assert ledger.send_back.stuck(T0_MS + 61_000) == []  # asked already
    ledger.drain()
    ledger.send_back.sent(0, sent(T0_MS + 99), 7, T0_MS, T0_MS)
    assert ledger.drain() == [SendBack(0, T0_MS + 99, 1)]
    ledger.settled(0, Outcome.EXTENDED, T0_MS, T0_MS, T0_MS, T0_MS)  # the forwarded lease
    assert ledger.watermark == 0
    ledger.send_back.sent_back(0)
    assert ledger.watermark == 2


def test_i8_a_message_that_is_sent_back_under_its_lease_is_in_flight() -> None:
    """Else others are granted beyond `in_flight_max`, again and again while the work is long."""
    ledger = opened()
    ledger.intake.fetched(1, [Body(0), Body(1)])
    lease(ledger, T0_MS, lease_ms=3_600_000)
    ledger.send_back.stuck(T0_MS + 61_000)
    ledger.send_back.sent(0, sent(T0_MS + 99), 7, T0_MS, T0_MS)
    assert ledger.leased == 1
    ledger.send_back.sent_back(0)
    assert ledger.leased == 1
    ledger.settled(0, Outcome.ACKED, T0_MS + 99, 0, T0_MS, T0_MS)
    assert ledger.leased == 0


def test_what_nobody_has_seen_or_asks_for_is_not_sent_back() -> None:
    """No copy of what never was handed out, nor while the application is away altogether."""
    ledger = opened()
    ledger.intake.fetched(1, [Body(0), Body(1)])
    assert ledger.send_back.stuck(T0_MS + 3_600_000) == []
    lease(ledger, T0_MS)
    ledger.tick(T0_MS + 30_000)
    assert ledger.send_back.stuck(T0_MS + 3_600_000) == []
    lease(ledger, T0_MS + 30_000, attempt=2)
    assert ledger.send_back.stuck(T0_MS + 3_600_000) == [Stuck(0, Why.AGE)]


def test_a_delay_as_long_as_stuck_is_sent_back_at_once_wherever_it_is() -> None:
    ledger = opened()
    ledger.intake.fetched(1, [Body(0), Body(1), Body(2)])
    for _ in range(3):
        lease(ledger, T0_MS)
    for offset, delay_ms in ((1, 59_999), (2, 60_000)):
        due_ms = T0_MS + delay_ms
        ledger.settled(offset, Outcome.RETRYING, T0_MS, due_ms, T0_MS, T0_MS, attempt=1)
    assert ledger.send_back.stuck(T0_MS) == [Stuck(2, Why.DELAY)]
    ledger.send_back.not_sent([2])
    assert ledger.send_back.stuck(T0_MS) == [Stuck(2, Why.DELAY)]


def test_nothing_is_sent_back_without_rules_or_while_the_record_is_unknown() -> None:
    for rules, dirty in ((None, False), (RULES, True)):
        ledger = opened(rules=rules)
        ledger.intake.fetched(1, [Body(0)])
        lease(ledger, T0_MS)
        if dirty:
            ledger.must_reread()
        assert ledger.send_back.stuck(T0_MS + 3_600_000) == []


def test_r3_healthy_traffic_is_never_sent_back() -> None:
    """30,000 a second with handlers of 200 ms (lognormal): the span is far beyond the limit."""
    rng = random.Random(3)
    ledger, now_ms, widest, following = opened(), T0_MS, 0, 0
    done: list[tuple[float, int, int]] = []
    for _ in range(1_000):
        now_ms += 1
        ledger.intake.fetched(1, [Body(each) for each in range(following, following + 30)])
        following += 30
        for _ in range(30):
            heappush(done, (now_ms + rng.lognormvariate(5.3, 1.0), lease(ledger, now_ms), now_ms))
        while done[0][0] <= now_ms:
            _, offset, fence = heappop(done)
            ledger.settled(offset, Outcome.ACKED, fence, 0, now_ms, now_ms)
        widest = max(widest, ledger.position - ledger.watermark)
        assert ledger.send_back.stuck(now_ms) == []
    assert widest > 3 * RULES.span_max


def test_r3_a_wide_span_counts_once_the_head_is_old() -> None:
    ledger = opened()
    ledger.intake.fetched(1, [Body(each) for each in range(2_002)])
    lease(ledger, T0_MS)
    assert ledger.send_back.stuck(T0_MS + 30_999) == []
    assert ledger.send_back.stuck(T0_MS + 31_001) == [Stuck(0, Why.SPAN)]


def test_a_message_that_is_being_sent_is_sent_by_the_next_owner() -> None:
    ledger = opened(SlotView(0, State.MOVING, 2, 0, 99, 7, 0, 5))
    assert not any(isinstance(each, SendBack) for each in ledger.drain())
    ledger.intake.fetched(1, [Body(0)])
    assert ledger.drain() == [SendBack(0, 99, 2)]


def test_used_up_attempts_are_dead_lettered_and_a_late_ack_that_was_first_wins() -> None:
    ledger = opened(most=2)
    ledger.intake.fetched(1, [Body(0)])
    lease(ledger, T0_MS, attempt=2)
    ledger.tick(T0_MS + 30_000)
    assert ledger.drain() == [Exhausted(0, T0_MS)]
    assert ledger.grants.take(1, 1) == []
    over = OpResult(Outcome.FINISHED, State.FINISHED, 2, 0, 0, 0, late=False)
    assert ledger.marked_dead(0, over, 7, T0_MS, T0_MS + 30_000)
    assert ledger.watermark == 1


def test_a_held_mark_waits_and_an_uncounted_retry_is_not_dead_lettered() -> None:
    ledger = opened(most=2)
    ledger.intake.fetched(1, [Body(0)])
    lease(ledger, T0_MS, attempt=2)
    ledger.tick(T0_MS + 30_000)
    ledger.drain()
    until = T0_MS + 33_000
    held = OpResult(Outcome.HELD, State.LEASED, 2, T0_MS, until, T0_MS // 1000, late=False)
    assert ledger.marked_dead(0, held, 7, T0_MS + 30_000, T0_MS + 30_000)
    assert ledger.drain() == []
    ledger.tick(until)
    assert ledger.drain() == [Exhausted(0, T0_MS)]
    ledger.settled(0, Outcome.RETRYING, T0_MS, until + 5, until, until, attempt=1)
    ledger.tick(until + 5)
    assert ledger.drain() == []
    assert ledger.grants.take(1, 1) == [0]


def test_a_copy_is_delivered_only_after_its_claim() -> None:
    waits = SlotView(2, State.WAITING, 3, 0, 9, 7, T0_MS + 500, 5)
    ledger = opened(waits, copies=True)
    ledger.drain()
    ledger.intake.fetched(1, [Body(0), Body(1), Body(2)])
    assert ledger.drain() == [Claim(0), Claim(1), CloseOriginRecord(2)]
    assert ledger.grants.take(3, 100) == []
    held = OpResult(Outcome.HELD, State.LEASED, 1, 9, T0_MS + 90_000, 5, late=False)
    ledger.claimed(0, held, 7, T0_MS, T0_MS)
    placed = OpResult(Outcome.DONE, State.WAITING, 4, 9, T0_MS, 5, late=False)
    ledger.claimed(1, placed, 7, T0_MS, T0_MS)
    assert ledger.grants.take(3, 100) == [1]
    ledger.tick(T0_MS + 5_000)
    assert ledger.drain() == [CloseOriginRecord(1), Claim(0)]
    refused = OpResult(Outcome.REFUSED, State.LEASED, 1, 9, 0, 5, late=False)
    ledger.claimed(0, refused, 7, T0_MS, T0_MS)
    assert ledger.drain() == [FinishRange(0, 1, 0)]
    assert ledger.watermark == 1
