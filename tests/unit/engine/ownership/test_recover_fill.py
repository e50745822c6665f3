"""A ledger learns of many leases without holding up everything else (I4)."""

from ackd.core.ledger.ledger import Ledger
from ackd.core.record.protocol import CallStatus, SlotView, Snapshot
from ackd.core.record.transitions import State
from ackd.engine.ownership.recover import SLOTS_BATCH, fill
from ackd.ports import Record
from tests.support.turns import longest_turn

LEASES = 8_000


def slots(count: int) -> list[SlotView]:
    """Leases that end one after the other."""
    return [SlotView(o, State.LEASED, 1, 0, 5, 1, 60_000 + o, 1) for o in range(count)]


async def test_i4_a_takeover_lets_others_have_their_turn() -> None:
    ledger: Ledger[Record] = Ledger()
    ledger.opened(Snapshot(CallStatus.OK, now_ms=1_000), 0)
    longest = await longest_turn(fill(ledger, slots(LEASES), 1_000, 0))
    assert ledger.leased == LEASES
    assert longest < 60 * SLOTS_BATCH < 10 * LEASES


async def test_in_parts_or_at_once_is_the_same() -> None:
    once: Ledger[Record] = Ledger()
    once.opened(Snapshot(CallStatus.OK, now_ms=1_000, slots=slots(1_234)), 7)
    parts: Ledger[Record] = Ledger()
    parts.opened(Snapshot(CallStatus.OK, now_ms=1_000), 7)
    await fill(parts, slots(1_234), 1_000, 7)
    assert parts.deadlines.next_due_ms() == once.deadlines.next_due_ms() == 59_007
    for ledger in (once, parts):
        ledger.intake.fetching(1, 0)
        ledger.intake.end_reached(1, 2_000)
    assert parts.drain() == once.drain()
    assert (parts.leased, parts.watermark) == (once.leased, once.watermark)
    assert parts.tick(59_500) == once.tick(59_500)
