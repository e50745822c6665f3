"""Offsets for a log whose ids are (ledger, entry, batch index): ADR 8.

`offset = base(ledger) + entry * stride + batch index`. A ledger's base is the sum of the ledgers
before it, so the numbers have no gap between ledgers, and the record's bitmap stays as small as on
a broker that counts its messages. `stride` is the room for one producer batch.

Pure: the table is a value, and every sidecar computes the same from what the broker reports.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ackd.errors import BrokerError

SLACK = 1 << 24
"""Any sidecar that reads the table writes it again when the log has grown by this many offsets."""
JUMP = 2 * SLACK
"""Where to go on when the length of the last ledger will never be known, because all that was known
has been deleted by force: so far behind the last end that was written down. A hole of this width is
cheap in the record (4 MB for a moment).
"""


class Ledger(NamedTuple):
    """One of a topic's ledgers; `entries` is final for all but the last."""

    number: int
    entries: int


class Position(NamedTuple):
    """A position in the log. `batch` is 0 for a message outside of batches."""

    ledger: int
    entry: int
    batch: int


class Log(NamedTuple):
    """What the broker reports of a topic: its ledgers in order, the last stored entry."""

    ledgers: tuple[Ledger, ...]
    last_ledger: int
    last_entry: int

    def last(self) -> Position | None:
        """The last entry; None when there is none."""
        for ledger in reversed(self.ledgers):
            open_one = ledger.number == self.last_ledger
            entries = self.last_entry + 1 if open_one else ledger.entries
            if entries > 0:
                return Position(ledger.number, entries - 1, 0)
        return None


@dataclass(frozen=True, slots=True)
class Numbering:
    """The table of one partition. `anchor`: the first ledger that was seen, the log's identity.
    `known`: an end of the log that was seen.
    """

    stride: int
    anchor: int
    known: int
    numbers: tuple[int, ...]
    bases: tuple[int, ...]

    @classmethod
    def new(cls, log: Log, stride: int) -> Numbering:
        """A table for a log that has none."""
        first = log.ledgers[0].number
        return cls(stride, first, 0, (first,), (0,)).extended(log)

    @classmethod
    def parse(cls, text: str) -> Numbering:
        """The inverse of `text`. Raises BrokerError."""
        try:
            head, _, rows = text.partition("|")
            layout, stride, anchor, known = head.split(",")
            pairs = [row.split(":") for row in rows.split(",")]
            numbers = tuple(int(number) for number, _ in pairs)
            bases = tuple(int(base) for _, base in pairs)
            found = cls(int(stride), int(anchor), int(known), numbers, bases)
        except ValueError:
            layout, found = "", None
        if layout != "1" or found is None or not found.numbers or found.stride < 1:
            raise BrokerError(f"the topic's table of offsets can't be read: {text[:80]!r}")
        return found

    def text(self) -> str:
        """The text that is stored."""
        rows = ",".join(f"{n}:{b}" for n, b in zip(self.numbers, self.bases, strict=True))
        return f"1,{self.stride},{self.anchor},{self.known}|{rows}"

    def knows(self, ledger: int) -> bool:
        """Whether this ledger's messages have offsets."""
        return self._row(ledger) >= 0

    def extended(self, log: Log) -> Numbering:
        """Add the ledgers that came since; remove those that are gone, except the newest."""
        rows = dict(zip(self.numbers, self.bases, strict=True))
        newest = max(rows)
        before: Ledger | None = None
        for ledger in log.ledgers:
            if ledger.number not in rows:
                if ledger.number < newest:
                    # Older than the numbered ledgers: no numbers are left for it.
                    continue
                if before is None:
                    rows[ledger.number] = max(rows[newest], self.known) + JUMP
                else:
                    rows[ledger.number] = rows[before.number] + before.entries * self.stride
                newest = ledger.number
            before = ledger
        alive = {ledger.number for ledger in log.ledgers} | {newest}
        kept = sorted(number for number in rows if number in alive)
        bases = tuple(rows[number] for number in kept)
        found = Numbering(self.stride, self.anchor, self.known, tuple(kept), bases)
        return replace(found, known=max(self.known, found.range(log)[1]))

    def to_write(self, written: Numbering) -> bool:
        """Whether the stored table lacks something."""
        return not set(self.numbers) <= set(written.numbers) or self.known > written.known + SLACK

    def offset(self, position: Position) -> int:
        """The offset of a message. Raises BrokerError for one that has none."""
        row = self._row(position.ledger)
        if row < 0:
            raise BrokerError(f"ledger {position.ledger} has no numbers yet")
        if position.batch >= self.stride:
            raise BrokerError(
                f"a batch has more than {self.stride} messages: raise batch_messages_max for a "
                "topic that is not yet in use, or make the producer's batches smaller"
            )
        return self.bases[row] + position.entry * self.stride + max(position.batch, 0)

    def position(self, offset: int) -> Position:
        """The position of an offset. Below the first ledger: that ledger's start."""
        row = max(bisect_right(self.bases, offset) - 1, 0)
        entry, batch = divmod(max(offset - self.bases[row], 0), self.stride)
        return Position(self.numbers[row], entry, batch)

    def after_entry(self, position: Position) -> int:
        """The first offset after a whole entry."""
        return self.offset(Position(position.ledger, position.entry, 0)) + self.stride

    def range(self, log: Log) -> tuple[int, int]:
        """(first, end) of the log."""
        first = self.offset(Position(_first(log.ledgers), 0, 0))
        last = Position(log.last_ledger, log.last_entry + 1, 0)
        return first, max(first, self.offset(last)) if self.knows(log.last_ledger) else first

    def _row(self, ledger: int) -> int:
        row = bisect_right(self.numbers, ledger) - 1
        return row if row >= 0 and self.numbers[row] == ledger else -1


def _first(ledgers: Sequence[Ledger]) -> int:
    return ledgers[0].number
