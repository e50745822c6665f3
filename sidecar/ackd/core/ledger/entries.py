"""The unfinished messages of one partition, the finished offsets above its watermark, and what is
counted of both. Every other part of the ledger holds these `Entries` and changes them through its
methods.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic

from ackd.core.ledger.bitmap import ChunkedBitmap
from ackd.core.ledger.effects import Effect, FinishRange, Mistaken
from ackd.core.ledger.entry import B, Entry, EntryStatus
from ackd.core.ledger.offset_set import Offsets
from ackd.core.ledger.timers import TwoClocks


class Entries(Generic[B]):
    """`watermark` is the smallest unfinished offset, `position` the next one to be fetched.

    `ready` is a heap of offsets that can be granted; those that changed since are weeded out late.
    `bodiless` are the entries whose body is not here. `dirty`: the record has to be read again
    before anything is decided by what stands here. `leased`, `waiting` and `bytes` always equal
    what the entries say (`mistakes`).
    """

    __slots__ = (
        "bodiless",
        "by_offset",
        "bytes",
        "clock",
        "dirty",
        "effects",
        "finished",
        "leased",
        "position",
        "ready",
        "waiting",
        "watermark",
    )

    def __init__(self) -> None:
        self.by_offset: dict[int, Entry[B]] = {}
        self.finished = ChunkedBitmap()
        self.bodiless = Offsets()
        self.ready: list[int] = []
        self.effects: list[Effect] = []
        self.clock = TwoClocks()
        self.watermark = 0
        self.position = 0
        self.leased = 0
        self.waiting = 0
        self.bytes = 0
        self.dirty = False

    def restart(self, watermark: int, chunks: Mapping[int, bytes]) -> None:
        """Begin anew from a record. Effects that nobody has taken yet stay, and the position."""
        self.by_offset, self.bodiless, self.ready = {}, Offsets(), []
        self.leased = self.waiting = self.bytes = 0
        self.watermark, self.finished = watermark, ChunkedBitmap.of(chunks)

    def over(self, offset: int) -> bool:
        """Whether this owner knows the message to be finished."""
        return offset < self.watermark or offset in self.finished

    # --- entries

    def add(self, offset: int, entry: Entry[B]) -> None:
        """Add a message whose body is not here."""
        self.by_offset[offset] = entry
        self.bodiless.add(offset)

    def fill(self, offset: int, entry: Entry[B], body: B, *, spilled: bool) -> None:
        """The body of a message that had none is here."""
        self.bodiless.discard(offset)
        entry.body, entry.size, entry.spilled = body, body.size(), spilled
        self.bytes += entry.size

    def replace_body(self, offset: int, body: B, *, spilled: bool) -> None:
        """Put `body` in the place of the one that is here, if one is."""
        entry = self.by_offset.get(offset)
        if entry is None or entry.body is None:
            return
        size = body.size()
        self.bytes += size - entry.size
        entry.body, entry.size, entry.spilled = body, size, spilled

    def lose_body(self, offset: int, entry: Entry[B]) -> None:
        """The body is gone; it can be fetched again."""
        self.bytes -= entry.size
        entry.body, entry.size, entry.spilled = None, 0, False
        self.bodiless.add(offset)

    def uncount(self, entry: Entry[B]) -> None:
        """Before the entry gets another status."""
        if entry.hold is EntryStatus.LEASED:
            self.leased -= 1
        elif entry.hold is EntryStatus.WAITING:
            self.waiting -= 1

    def renew(self, entry: Entry[B], fence: int, rterm: int, attempt: int) -> None:
        """The store gave the message a newer fence. It never gives an older one."""
        if fence < entry.fence:
            self.mistaken("a fence went down")
        entry.fence, entry.rterm, entry.attempt = fence, rterm, attempt

    # --- finished offsets

    def finish(self, offset: int) -> Entry[B] | None:
        """Mark one offset. Returns the entry that goes with it; `advance` after the last one."""
        self.finished.add(offset)
        entry = self.by_offset.pop(offset, None)
        if entry is not None:
            if entry.body is None:
                self.bodiless.discard(offset)
            if entry.hold is EntryStatus.LEASED:  # as nearly always
                self.leased -= 1
            else:
                self.uncount(entry)
            self.bytes -= entry.size
        return entry

    def finish_range(self, start: int, end: int, reason: int) -> None:
        """Mark [start, end), in which no entry is, and write that into the record."""
        if start < end:
            self.finished.add_range(start, end)
            self.effects.append(FinishRange(start, end, reason))

    def advance(self) -> None:
        """Move the watermark over what is finished."""
        # Bits beyond the position are true finishes of earlier fetches, so it may pass over it.
        if self.watermark in self.finished:
            self.raise_to(self.finished.first_clear(self.watermark))

    def raise_to(self, watermark: int) -> None:
        """Nothing below is unfinished. The watermark never goes back but by `restart`."""
        if watermark < self.watermark:
            self.mistaken("the watermark went back")
        else:
            self.watermark = watermark

    # --- assertions

    def mistaken(self, what: str, *, may_mend: bool = True) -> None:
        """An invariant does not hold. The engine says so and reads the record again, unless that
        is where it came from.
        """
        self.effects.append(Mistaken(what, may_mend))

    def mistakes(self) -> list[str]:
        """Every count that does not equal what the entries say. Takes O(entries)."""
        leased = waiting = size = low = bodiless = 0
        watermark, held, due = self.watermark, EntryStatus.LEASED, EntryStatus.WAITING
        for offset, entry in self.by_offset.items():
            size += entry.size
            if entry.hold is held:
                leased += 1
            elif entry.hold is due:
                waiting += 1
            if entry.body is None:
                bodiless += 1
            if offset < watermark:
                low += 1
        found = (
            ("leased", self.leased, leased),
            ("waiting", self.waiting, waiting),
            ("bytes", self.bytes, size),
            ("messages without a body", len(self.bodiless), bodiless),
            ("entries below the watermark", 0, low),
        )
        return [f"{name}: {said}, not {true}" for name, said, true in found if said != true]
