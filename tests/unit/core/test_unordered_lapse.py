"""The ledger of messages that arrive in any order: what lapses, and when."""

from ackd.core.ledger.effects import FinishRange
from ackd.core.ledger.unordered import UnorderedLedger
from ackd.ports import Record

HOUR_MS = 3_600_000
MINUTE_MS = 60_000


def _ledger(*offsets: int) -> UnorderedLedger[Record]:
    ledger: UnorderedLedger[Record] = UnorderedLedger()
    ledger.intake.fetching(1, 0)
    ledger.arrived(Record(offset, None, b"x", (), 0) for offset in offsets)
    return ledger


def test_i5_gaps_lapse_an_hour_after_what_lies_beyond_them_had_come() -> None:
    ledger = _ledger(2, 5, 6)
    for minute in range(60):
        assert ledger.lapse(minute * MINUTE_MS, HOUR_MS, steady=True) == 0
    # Later ones don't make the wait longer, nor do they lapse with it.
    ledger.arrived([Record(9, None, b"x", (), 0)])
    assert ledger.lapse(HOUR_MS, HOUR_MS, steady=True) == 4
    assert sorted(ledger.entries) == [2, 5, 6, 9]
    assert ledger.watermark == 2
    effects = [each for each in ledger.drain() if isinstance(each, FinishRange)]
    assert [(each.start, each.end) for each in effects] == [(0, 2), (3, 5)]
    ledger.acked((2, 5, 6))
    assert ledger.watermark == 7
    for minute in range(60, 122):
        ledger.lapse(minute * MINUTE_MS, HOUR_MS, steady=True)
    assert ledger.watermark == 9


def test_i1_after_a_broker_was_away_the_wait_begins_anew() -> None:
    ledger = _ledger(2)
    ledger.lapse(0, HOUR_MS, steady=True)
    ledger.lapse(HOUR_MS // 2, HOUR_MS, steady=False)
    assert ledger.lapse(HOUR_MS, HOUR_MS, steady=True) == 0
    assert ledger.arrived([Record(0, None, b"late", (), 0)]) == []
    assert ledger.lapse(2 * HOUR_MS, HOUR_MS, steady=True) == 1
    assert sorted(ledger.entries) == [0, 2]
    # One that comes although it lapsed is told as finished.
    assert ledger.arrived([Record(1, None, b"too late", (), 0)]) == [1]
