"""Reading a record again: leases that are the same go over as they are, with the same outcome."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ackd.core.bitmap import CHUNK_BYTES, ChunkedBitmap
from ackd.core.ledger import lifecycle as window
from ackd.core.ledger.ledger import Ledger
from ackd.core.record.protocol import CallStatus, SlotView, Snapshot
from ackd.core.record.transitions import Outcome, State
from tests.unit.core.test_ledger_effort import Letter, calls_of

COUNT = 12
LEASES = 3_000
STATES = st.sampled_from([*[State.LEASED] * 6, State.WAITING, State.READY, State.DEAD])
TOLD = ("state", "attempt", "fence", "rollback_epoch", "when_ms", "first_s")


@st.composite
def slots_of(draw: st.DrawFn, offset: int) -> SlotView:
    """A slot out of few values, so that the same one comes again now and then."""
    few = st.integers(1, 2)
    state, attempt, fence = draw(STATES), draw(few), draw(few)
    return SlotView(offset, state, attempt, 0, fence, draw(few), 5_000 * draw(few), draw(few))


@st.composite
def records(draw: st.DrawFn) -> Snapshot:
    """What a store may say of a partition."""
    finished = ChunkedBitmap()
    slots = []
    watermark = draw(st.integers(0, 3))
    for offset in range(watermark, COUNT):
        what = draw(st.sampled_from(["slot", "slot", "slot", "nothing", "finished"]))
        if what == "slot":
            slots.append(draw(slots_of(offset)))
        elif what == "finished" and offset > watermark:
            finished.add(offset)
    chunks = {
        index: bytes(data).ljust(CHUNK_BYTES, b"\0") for index, data in finished.chunks.items()
    }
    epoch, now_ms = draw(st.integers(0, 1)), draw(st.integers(1_000, 3_000))
    return Snapshot(
        CallStatus.OK, now_ms=now_ms, epoch=epoch, watermark=watermark, slots=slots, chunks=chunks
    )


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Snapshot, Snapshot]:
    """A record, and what it may be later: the same slots, but for something in some of them."""
    first = draw(records())
    if draw(st.booleans()):
        return first, draw(records())
    slots = []
    for slot in first.slots:
        fresh = draw(slots_of(slot.offset))
        name = draw(st.sampled_from(TOLD))
        slots.append(slot._replace(**{name: getattr(fresh, name)}))
    return first, replace(first, slots=slots, now_ms=draw(st.integers(1_000, 3_000)))


def look(ledger: Ledger[Letter]) -> object:
    """Everything that an owner's next steps depend on."""
    entries = {
        offset: [getattr(entry, name) for name in type(entry).__slots__ if name != "holder"]
        for offset, entry in sorted(ledger.entries.items())
    }
    counts = ledger.leased, ledger.waiting, ledger.bytes, ledger.ready, ledger.watermark
    return (
        entries,
        counts,
        [*ledger.finished.ranges(0)],
        ledger.deadlines.next_due_ms(),
        ledger.drain(),
    )


def life(first: Snapshot, second: Snapshot, fetched: int, acked: list[int], taken: int) -> object:
    """Open, fetch some, work, read again, let time pass."""
    ledger: Ledger[Letter] = Ledger()
    ledger.opened(first, 0)
    ledger.intake.fetching(1, 0)
    ledger.intake.fetched(1, [Letter(offset) for offset in range(fetched)])
    ledger.grants.take(taken, 1_000)
    for offset in acked:
        ledger.settled(offset, Outcome.ACKED, 1, 0, 1_000, 0)
    story = [look(ledger), ledger.opened(second, 500), look(ledger)]
    ledger.intake.fetching(2, ledger.watermark)
    ledger.intake.fetched(2, [Letter(offset) for offset in range(ledger.watermark, COUNT, 2)])
    ledger.intake.end_reached(2, COUNT)
    story.append(look(ledger))
    for now_ms in (4_000, 9_000, 20_000):
        story += [ledger.tick(now_ms), look(ledger), ledger.grants.take(3, 1_000)]
    return story


@settings(max_examples=40)
@given(pairs(), st.integers(0, COUNT), st.lists(st.integers(0, COUNT - 1), max_size=3))
def test_r12_what_stays_as_it_is_changes_nothing(
    records: tuple[Snapshot, Snapshot], fetched: int, acked: list[int]
) -> None:
    """R12: as if every lease of the record were taken over anew."""
    first, second = records
    taken = len(acked)
    quick = life(first, second, fetched, acked, taken)
    with patch.object(window, "unchanged", lambda *_: False):
        assert life(first, second, fetched, acked, taken) == quick


def test_i4_a_lease_that_is_the_same_costs_next_to_nothing() -> None:
    """I4: a record with very many of them is read again in one go; counted in calls."""
    slots = [SlotView(o, State.LEASED, 1, 0, 5, 1, 60_000 + o // 32, 1) for o in range(LEASES)]
    ledger: Ledger[Letter] = Ledger()
    ledger.opened(Snapshot(CallStatus.OK, now_ms=1_000, slots=slots), 0)
    ledger.intake.fetching(1, 0)
    ledger.intake.fetched(1, [Letter(offset) for offset in range(LEASES)])
    before = dict(ledger.entries)
    again = Snapshot(CallStatus.OK, now_ms=1_500, slots=slots)
    assert calls_of(lambda: ledger.opened(again, 400)) < 14 * LEASES
    assert all(ledger.entries[offset] is entry for offset, entry in before.items())
    assert ledger.leased == ledger.bytes == len(ledger.entries) == LEASES
    assert ledger.deadlines.next_due_ms() == 60_000 - 1_100


SLOT = SlotView(0, State.LEASED, 1, 0, 1, 1, 5_000, 1)


@pytest.mark.parametrize("fetched", [0, 2])
@pytest.mark.parametrize(
    "other",
    [
        SLOT,
        SLOT._replace(fence=2),
        SLOT._replace(rollback_epoch=2),
        SLOT._replace(attempt=2),
        SLOT._replace(first_s=2),
        SLOT._replace(when_ms=9_000),
        SLOT._replace(state=State.WAITING),
        SLOT._replace(state=State.DEAD),
    ],
)
def test_r12_one_thing_that_is_another_is_seen(other: SlotView, fetched: int) -> None:
    """R12: a lease that only looks the same is taken over anew."""
    first = Snapshot(CallStatus.OK, now_ms=1_000, slots=[SLOT])
    second = replace(first, slots=[other])
    for told in ((first, second), (second, first)):
        quick = life(*told, fetched, [], 0)
        with patch.object(window, "unchanged", lambda *_: False):
            assert life(*told, fetched, [], 0) == quick
