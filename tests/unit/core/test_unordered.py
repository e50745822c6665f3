"""A ledger whose messages arrive in any order: no gap is a hole, nothing finished comes again."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from ackd.core.ledger.unordered import UnorderedLedger
from ackd.core.record.protocol import CallStatus, SlotView, Snapshot
from ackd.core.record.transitions import State


@dataclass(frozen=True)
class Body:
    """What the ledger asks of a message."""

    offset: int

    def size(self) -> int:
        """One byte."""
        return 1


def opened(*slots: SlotView, watermark: int = 0) -> UnorderedLedger[Body]:
    """A ledger on a record with these slots."""
    ledger: UnorderedLedger[Body] = UnorderedLedger()
    ledger.opened(Snapshot(CallStatus.OK, watermark=watermark, slots=list(slots)), 0)
    ledger.intake.fetching(1, watermark)
    return ledger


def bodies(*offsets: int) -> list[Body]:
    """Messages."""
    return [Body(offset) for offset in offsets]


def test_i1_a_gap_is_not_finished_and_what_is_missing_comes_later() -> None:
    ledger = opened()
    assert ledger.arrived(bodies(5, 2)) == []
    assert ledger.grants.take(10, 100) == [2, 5]
    ledger.acked([2, 5])
    assert ledger.watermark == 0
    assert ledger.arrived(bodies(0, 1)) == []
    assert ledger.grants.take(10, 100) == [0, 1]
    ledger.acked([0, 1])
    assert ledger.watermark == 3
    assert not ledger.drain()


def test_i2_what_is_finished_is_named_and_not_delivered() -> None:
    ledger = opened()
    ledger.arrived(bodies(0, 1, 2))
    ledger.acked([0, 2])
    assert ledger.take_ended() == [0, 2]
    assert ledger.take_ended() == []
    assert ledger.arrived(bodies(0, 1, 2)) == [0, 2]
    assert ledger.grants.take(10, 100) == [1]


def test_r31_what_comes_under_a_live_lease_is_kept_and_not_granted() -> None:
    ledger = opened(SlotView(3, State.LEASED, 2, 0, 77, 1, 5_000, 1))
    assert ledger.arrived(bodies(3)) == []
    assert ledger.grants.take(10, 100) == []
    ledger.tick(5_001)
    assert ledger.grants.take(10, 100) == [3]
    assert ledger.entries[3].attempt == 2


@given(st.lists(st.tuples(st.integers(0, 30), st.booleans()), max_size=120))
def test_i1_i2_against_a_naive_model(steps: list[tuple[int, bool]]) -> None:
    """Arrivals in any order, with repeats, and acks of what was handed out."""
    ledger = opened()
    seen: set[int] = set()
    acked: set[int] = set()
    for offset, ack in steps:
        assert ledger.arrived(bodies(offset)) == ([offset] if offset in acked else [])
        seen.add(offset)
        if ack:
            ledger.acked([offset])
            acked.add(offset)
    assert set(ledger.entries) == seen - acked
    assert set(ledger.grants.take(100, 1_000)) == seen - acked
    assert ledger.watermark == next(n for n in range(32) if n not in acked)
