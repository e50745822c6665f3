"""A ledger notices when its own invariants do not hold, in production too."""

from __future__ import annotations

import pytest

from ackd.core.ledger.deadlines import LOOKED_AT_A_TICK
from ackd.core.ledger.effects import Mistaken
from ackd.core.ledger.ledger import Ledger
from ackd.core.record.protocol import CallStatus, OpResult, SlotView, Snapshot
from ackd.core.record.transitions import Outcome, State
from tests.unit.core.playbook import Letter

LEASED = 3


def opened(count: int = LEASED) -> Ledger[Letter]:
    """So many leases, of messages that are here."""
    ledger: Ledger[Letter] = Ledger()
    slots = [SlotView(o, State.LEASED, 1, 0, 5, 1, 60_000, 1) for o in range(count)]
    ledger.opened(Snapshot(CallStatus.OK, now_ms=1_000, slots=slots), 0)
    ledger.intake.fetching(1, 0)
    ledger.intake.fetched(1, [Letter(offset) for offset in range(count)])
    assert ledger.drain() == []
    return ledger


@pytest.mark.parametrize(
    ("count", "what"),
    [
        ("leased", "leased: 4, not 3"),
        ("waiting", "waiting: 1, not 0"),
        ("bytes", "bytes: 31, not 30"),
        ("watermark", "entries below the watermark: 0, not 1"),
    ],
)
def test_a_count_that_is_not_what_the_entries_say(count: str, what: str) -> None:
    ledger = opened()
    ledger.tick(1)
    assert ledger.drain() == []
    setattr(ledger._entries, count, getattr(ledger._entries, count) + 1)
    ledger.tick(2)
    assert ledger.drain() == [Mistaken(what, may_mend=True)]


def test_with_many_entries_some_ticks_go_by_before_the_counts_are_compared() -> None:
    ledger = opened(10 * LOOKED_AT_A_TICK)
    ledger._entries.leased += 1
    for _ in range(9):
        ledger.tick(1)
        assert ledger.drain() == []
    ledger.tick(1)
    assert len(ledger.drain()) == 1


def test_reading_the_record_again_mends_the_counts_and_compares_them() -> None:
    ledger = opened()
    ledger._entries.leased += 1
    again = SlotView(1, State.LEASED, 1, 0, 5, 1, 60_000, 1)
    ledger.opened(Snapshot(CallStatus.OK, now_ms=1_000, slots=[again]), 0)
    assert not ledger.mistakes()
    assert not any(isinstance(each, Mistaken) for each in ledger.drain())


def test_an_older_fence_than_the_last_one_of_a_message() -> None:
    ledger = opened()
    older = OpResult(Outcome.GRANTED, State.LEASED, 1, 4, 60_000, 1, late=False)
    ledger.grants.granted(1, older, 1, 1_000, 0)
    assert ledger.drain() == [Mistaken("a fence went down", may_mend=True)]


def test_a_record_of_one_epoch_whose_watermark_is_below_what_it_was() -> None:
    """The repair has to put it where it was (R9)."""
    ledger = opened()
    ledger.acked([0])
    ledger.store_confirmed(1)
    repair = ledger.opened(Snapshot(CallStatus.OK, now_ms=1_000), 0)
    assert (repair.watermark, ledger.watermark) == (1, 1)
    ledger._entries.raise_to(0)
    assert ledger.watermark == 1
    assert Mistaken("the watermark went back", may_mend=True) in ledger.drain()
