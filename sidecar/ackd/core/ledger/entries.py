"""The unfinished messages of one partition, the finished offsets above its watermark, and the
counts of both. Every other part of the ledger holds this `Entries` object and changes it through
its methods.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic

from ackd.core.bitmap import ChunkedBitmap
from ackd.core.ledger.effects import Effect, FinishRange, Mistaken
from ackd.core.ledger.entry import B, Entry, EntryStatus
from ackd.core.ledger.offset_set import Offsets
from ackd.core.ledger.timers import TwoClocks


class Entries(Generic[B]):
    """`watermark` is the smallest unfinished offset, `position` the next one to be fetched.

    `ready` is a heap of offsets that can be granted; stale ones are removed when they reach its
    top. `bodiless` are the entries without a body in memory. `dirty`: the owner must read the
    record again before it decides anything by these entries. `leased`, `waiting` and `bytes` always
    equal the sums over the entries (`mistakes`).
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
        """Start again from a record. Keeps the position, and the effects nobody has taken yet."""
        self.by_offset, self.bodiless, self.ready = {}, Offsets(), []
        self.leased = self.waiting = self.bytes = 0
        self.watermark, self.finished = watermark, ChunkedBitmap.of(chunks)

    def over(self, offset: int) -> bool:
        """Whether this owner knows the message to be finished."""
        return offset < self.watermark or offset in self.finished

    # --- entries

    def add(self, offset: int, entry: Entry[B]) -> None:
        """Add a message without a body."""
        self.by_offset[offset] = entry
        self.bodiless.add(offset)

    def fill(self, offset: int, entry: Entry[B], body: B, *, spilled: bool) -> None:
        """Give a message without a body its body."""
        self.bodiless.discard(offset)
        entry.body, entry.size, entry.spilled = body, body.size(), spilled
        self.bytes += entry.size

    def replace_body(self, offset: int, body: B, *, spilled: bool) -> None:
        """Replace a message's body; no effect on a message without one."""
        entry = self.by_offset.get(offset)
        if entry is None or entry.body is None:
            return
        size = body.size()
        self.bytes += size - entry.size
        entry.body, entry.size, entry.spilled = body, size, spilled

    def lose_body(self, offset: int, entry: Entry[B]) -> None:
        """Drop the body; the broker can deliver it again."""
        self.bytes -= entry.size
        entry.body, entry.size, entry.spilled = None, 0, False
        self.bodiless.add(offset)

    def uncount(self, entry: Entry[B]) -> None:
        """Take the entry out of the counts; call this before its status changes."""
        if entry.status is EntryStatus.LEASED:
            self.leased -= 1
        elif entry.status is EntryStatus.WAITING:
            self.waiting -= 1

    def renew(self, entry: Entry[B], fence: int, rollback_epoch: int, attempt: int) -> None:
        """Store the newer fence that the store gave the message. It never gives an older one."""
        if fence < entry.fence:
            self.mistaken("a fence went down")
        entry.fence, entry.rollback_epoch, entry.attempt = fence, rollback_epoch, attempt

    # --- finished offsets

    def finish(self, offset: int) -> Entry[B] | None:
        """Mark one offset finished and return its entry. Call `advance` after the last one."""
        self.finished.add(offset)
        entry = self.by_offset.pop(offset, None)
        if entry is not None:
            if entry.body is None:
                self.bodiless.discard(offset)
            if entry.status is EntryStatus.LEASED:  # as nearly always
                self.leased -= 1
            else:
                self.uncount(entry)
            self.bytes -= entry.size
        return entry

    def finish_range(self, start: int, end: int, reason: int) -> None:
        """Mark [start, end), which has no entries, and write that into the record."""
        if start < end:
            self.finished.add_range(start, end)
            self.effects.append(FinishRange(start, end, reason))

    def advance(self) -> None:
        """Move the watermark to the first unfinished offset."""
        # Bits above the position come from earlier fetches and are true, so the watermark may pass
        # the position.
        if self.watermark in self.finished:
            self.raise_to(self.finished.first_clear(self.watermark))

    def raise_to(self, watermark: int) -> None:
        """Set the watermark: all below it is finished. Only `restart` may move it back."""
        if watermark < self.watermark:
            self.mistaken("the watermark went back")
        else:
            self.watermark = watermark

    # --- assertions

    def mistaken(self, what: str, *, may_mend: bool = True) -> None:
        """Report a broken invariant. The engine logs it and reads the record again, unless that
        read is what found it (`may_mend` False).
        """
        self.effects.append(Mistaken(what, may_mend))

    def mistakes(self) -> list[str]:
        """Every count that differs from the sum over the entries. Takes O(entries)."""
        leased = waiting = size = low = bodiless = 0
        watermark, held, due = self.watermark, EntryStatus.LEASED, EntryStatus.WAITING
        for offset, entry in self.by_offset.items():
            size += entry.size
            if entry.status is held:
                leased += 1
            elif entry.status is due:
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
        return [
            f"{name}: {counted}, not {true}" for name, counted, true in found if counted != true
        ]
