"""What a ledger's events cost with many messages open, counted in calls and not in seconds (I4)."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from dataclasses import dataclass

from ackd.core.bitmap import CHUNK_OFFSETS
from ackd.core.ledger.effects import Effect, FetchFrom
from ackd.core.ledger.ledger import Ledger
from ackd.core.record.protocol import CallStatus, SlotView, Snapshot
from ackd.core.record.transitions import State

OPEN = 3_000


@dataclass(frozen=True, slots=True)
class Letter:
    """A message."""

    offset: int

    def size(self) -> int:
        """Bytes."""
        return 1


def record(*offsets: int, watermark: int = 0, epoch: int = 0) -> Snapshot:
    """A record in which these are leased."""
    slots = [SlotView(o, State.LEASED, 1, 0, 5, 1, 60_000, 1) for o in offsets]
    return Snapshot(CallStatus.OK, now_ms=1_000, watermark=watermark, epoch=epoch, slots=slots)


def fetched(*offsets: int) -> Ledger[Letter]:
    """A ledger whose session has brought these."""
    ledger: Ledger[Letter] = Ledger()
    ledger.opened(record(*offsets), 0)
    ledger.intake.fetching(1, 0)
    ledger.intake.fetched(1, [Letter(offset) for offset in offsets])
    ledger.drain()
    return ledger


def calls_of(work: Callable[[], object]) -> int:
    """How many calls of functions (of a generator: steps) the work made."""
    count = 0

    def seen(*_: object) -> None:
        nonlocal count
        count += 1

    sys.setprofile(seen)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def test_a_gap_does_not_look_at_every_lease() -> None:
    """A transaction's marker is a hole: there are as many as transactions, at every takeover."""
    ledger: Ledger[Letter] = Ledger()
    ledger.opened(record(*range(0, 2 * OPEN, 2)), 0)
    ledger.intake.fetching(1, 0)
    letters = [Letter(offset) for offset in range(0, 600, 2)]
    assert calls_of(lambda: ledger.intake.fetched(1, letters)) < 150 * len(letters)
    assert len(ledger.drain()) == 299


def test_a_gap_of_a_billion_offsets_takes_little() -> None:
    ledger = fetched(0)
    end = 10**9
    chunks = end // CHUNK_OFFSETS
    assert calls_of(lambda: ledger.intake.fetched(1, [Letter(end)])) < 12 * chunks
    assert ledger.finished.count() == end - 1
    assert len({id(chunk) for chunk in ledger.finished.chunks.values()}) == 3
    assert ledger.finished.first_clear(1) == end


def test_reading_a_record_again_does_not_walk_over_what_is_open() -> None:
    ledger = fetched(*range(OPEN))
    assert calls_of(ledger._fetch_again) < 50
    assert ledger.drain() == []


def test_what_is_to_be_fetched_again_is_the_first_that_lacks() -> None:
    """Against a walk over every offset."""
    for seed in range(300):
        rng = random.Random(seed)
        end = rng.randint(1, 40)
        ledger = fetched(*(o for o in range(end) if rng.random() < 0.7))
        ledger.intake.end_reached(1, end)
        entries = ledger._entries
        for offset, entry in list(entries.by_offset.items()):
            chance = rng.random()
            if chance < 0.1:
                entries.lose_body(offset, entry)
                entry.gone = rng.random() < 0.5
            elif chance < 0.2:
                del entries.by_offset[offset]
            elif chance < 0.4:
                entries.finish(offset)
        if rng.random() < 0.3:
            entries.position = rng.randint(0, end)
        entries.advance()
        ledger.drain()
        ledger._fetch_again()
        want: list[Effect] = [
            FetchFrom(o) for o in range(ledger.watermark, end) if lacks(ledger, o)
        ]
        assert ledger.drain() == want[:1]


def lacks(ledger: Ledger[Letter], offset: int) -> bool:
    """It was passed, is unfinished, and there is no body."""
    if offset >= ledger.position or offset in ledger.finished:
        return False
    entry = ledger.entry(offset)
    return entry is None or (entry.body is None and not entry.gone)
