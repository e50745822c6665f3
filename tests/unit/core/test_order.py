"""Whose turn it is, in the cases that a random run seldom meets (I6, R7, R19)."""

from __future__ import annotations

from ackd.core.ledger.ledger import Ledger
from ackd.core.ledger.order import OrderPosition
from ackd.core.record.protocol import CallStatus, SlotView, Snapshot
from ackd.core.record.transitions import State
from tests.unit.core.playbook import Letter

KEYS = {0: "a", 1: "b", 2: "a", 3: "b", 4: "a", 5: "c"}


def position_of(letter: Letter) -> OrderPosition | None:
    return OrderPosition(KEYS[letter.offset], letter.offset)


def record(*slots: SlotView, watermark: int = 0) -> Snapshot:
    return Snapshot(CallStatus.OK, now_ms=1_000, watermark=watermark, slots=list(slots))


def leased(offset: int) -> SlotView:
    return SlotView(offset, State.LEASED, 1, 0, 5, 1, 60_000, 1)


def opened(snapshot: Snapshot, position: int) -> Ledger[Letter]:
    ledger: Ledger[Letter] = Ledger(position_of=position_of)
    ledger.opened(snapshot, 0)
    ledger.intake.fetching(1, position)
    return ledger


def letters(*offsets: int) -> list[Letter]:
    return [Letter(offset) for offset in offsets]


def test_one_message_of_a_key_at_a_time() -> None:
    ledger = opened(record(), 0)
    ledger.intake.fetched(1, letters(*KEYS))
    assert ledger.ready == 3
    assert ledger.buffered == 6
    assert ledger.grants.take(9, 999) == [0, 1, 5]
    ledger.finish(0)
    assert ledger.grants.take(9, 999) == [2], "a dead letter frees its key"


def test_fetching_that_goes_back_holds_what_is_above() -> None:
    """After a re-read the store has lost what became of 0: its key may be anything."""
    ledger = opened(record(leased(0)), 1)
    ledger.intake.fetched(1, letters(1, 2, 3))
    ledger.intake.fetching(2, 0)
    assert ledger.ready == 0
    assert ledger.grants.take(9, 999) == []
    assert ledger.must_fetch, "a bound on what is held must not stop this"
    ledger.intake.fetched(2, letters(0))
    assert ledger.ready == 0
    ledger.intake.fetched(2, letters(1, 2, 3))
    assert ledger.ready > 0
    assert ledger.grants.take(9, 999) == [1], "2 waits for 0, which is leased"


def test_a_lease_whose_message_is_gone_from_the_log_holds_everything_above_it() -> None:
    """Nobody can tell its key any more (R7)."""
    ledger = opened(record(leased(1)), 0)
    ledger.intake.fetched(1, letters(0, 2, 5))
    assert ledger.grants.take(9, 999) == [0]
    assert ledger.ready == 0
    ledger.finish(1)
    assert ledger.grants.take(9, 999) == [5]


def test_an_earlier_one_that_comes_late_takes_the_turn_back() -> None:
    """4 was ready; then its key's 2 is found to be unfinished."""
    ledger = opened(record(), 4)
    ledger.intake.fetched(1, letters(4, 5))
    assert ledger.ready == 2
    ledger.intake.fetching(2, 2)
    ledger.intake.fetched(2, letters(2, 3))
    ledger.intake.fetched(2, letters(4, 5))
    assert ledger.grants.take(9, 999) == [2, 3, 5]
    ledger.finish(2)
    assert ledger.grants.take(9, 999) == [4]


def test_a_record_that_is_read_again_keeps_the_places() -> None:
    """Also of bodies that lie elsewhere, which say nothing of a key."""
    ledger = opened(record(), 0)
    ledger.intake.fetched(1, letters(0, 1, 2))
    assert ledger.order is not None
    ledger.order.position_of = lambda _: None
    ledger.opened(record(leased(0)), 0)
    assert ledger.grants.take(9, 999) == [1]
    assert ledger.order.before(2) == 0
