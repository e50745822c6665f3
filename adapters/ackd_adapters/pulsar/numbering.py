"""Offsets for a log whose ids are (ledger, entry, batch index): ADR 8.

`offset = base(ledger) + entry * stride + batch index`. A ledger's base is the sum of the ledgers
before it, so the numbers have no gap between ledgers, and the record's bitmap stays as small as on
a broker that counts its messages. `stride` is the room for one producer batch; a ledger keeps its
own, so another one can be chosen for the ledgers to come.

Pure: the table is a value, and every sidecar computes the same from what the broker reports.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
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

_LAYOUTS = ("1", "2")
"""Without and with strides of single rows. Earlier versions of ackd read the first one only."""
_PAIR = 2


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
    `known`: an end of the log that was seen. `stride` is that of the first ledger; `strides` has
    one for each row.
    """

    stride: int
    anchor: int
    known: int
    numbers: tuple[int, ...]
    bases: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def new(cls, log: Log, stride: int) -> Numbering:
        """A table for a log that has none."""
        first = log.ledgers[0].number
        return cls(stride, first, 0, (first,), (0,), (stride,)).extended(log)

    @classmethod
    def parse(cls, text: str) -> Numbering:
        """The inverse of `text`. Raises BrokerError."""
        try:
            head, _, rows = text.partition("|")
            layout, stride, anchor, known = head.split(",")
            parts = [[*map(int, row.split(":"))] for row in rows.split(",")]
            # A row of two has the stride of the table, as all have that were written before rows
            # could differ.
            whole = [(*each, int(stride)) if len(each) == _PAIR else tuple(each) for each in parts]
            numbers, bases, strides = zip(*whole, strict=True)
            found = cls(int(stride), int(anchor), int(known), numbers, bases, strides)
        except ValueError:
            layout, found = "", None
        if layout not in _LAYOUTS or found is None or min(found.stride, *found.strides) < 1:
            raise BrokerError(f"the topic's table of offsets can't be read: {text[:80]!r}")
        return found

    def text(self) -> str:
        """The text that is stored."""
        rows = ",".join(
            f"{number}:{base}" if room == self.stride else f"{number}:{base}:{room}"
            for number, base, room in self._rows()
        )
        layout = _LAYOUTS[any(room != self.stride for room in self.strides)]
        return f"{layout},{self.stride},{self.anchor},{self.known}|{rows}"

    def knows(self, ledger: int) -> bool:
        """Whether this ledger's messages have offsets."""
        return self._row(ledger) >= 0

    def extended(self, log: Log, stride: int = 0) -> Numbering:
        """Add the ledgers that came since; remove those that are gone, except the newest. `stride`:
        of the ledgers that are added; by default that of the newest one.
        """
        rows = {number: (base, room) for number, base, room in self._rows()}
        newest = max(rows)
        room = stride or rows[newest][1]
        before: Ledger | None = None
        for ledger in log.ledgers:
            if ledger.number not in rows:
                if ledger.number < newest:
                    # Older than the numbered ledgers: no numbers are left for it.
                    continue
                if before is None:
                    end = max(rows[newest][0], self.known) + JUMP
                else:
                    base, width = rows[before.number]
                    end = base + before.entries * width
                rows[ledger.number] = end, room
                newest = ledger.number
            before = ledger
        alive = {ledger.number for ledger in log.ledgers} | {newest}
        found = self._with({number: row for number, row in rows.items() if number in alive})
        return replace(found, known=max(self.known, found.range(log)[1]))

    def united(self, other: Numbering) -> Numbering:
        """With the rows of another table of the same log; as it is where the two contradict."""
        mine = {number: (base, room) for number, base, room in self._rows()}
        theirs = {number: (base, room) for number, base, room in other._rows()}
        if self.anchor != other.anchor or any(
            theirs[number] != mine[number] for number in mine.keys() & theirs.keys()
        ):
            return self
        return replace(self._with(theirs | mine), known=max(self.known, other.known))

    def to_write(self, written: Numbering) -> bool:
        """Whether the stored table lacks something."""
        return not set(self.numbers) <= set(written.numbers) or self.known > written.known + SLACK

    def offset(self, position: Position) -> int:
        """The offset of a message. Raises BrokerError for one that has none."""
        row = self._row(position.ledger)
        if row < 0:
            raise BrokerError(f"ledger {position.ledger} has no numbers yet")
        room = self.strides[row]
        if position.batch >= room:
            raise BrokerError(
                f"a batch has more than {room} messages: make the producer's batches smaller, and "
                "raise batch_messages_max, which counts from the next ledger on"
            )
        return self.bases[row] + position.entry * room + max(position.batch, 0)

    def position(self, offset: int) -> Position:
        """The position of an offset. Below the first ledger: that ledger's start."""
        row = max(bisect_right(self.bases, offset) - 1, 0)
        entry, batch = divmod(max(offset - self.bases[row], 0), self.strides[row])
        return Position(self.numbers[row], entry, batch)

    def after_entry(self, position: Position) -> int:
        """The first offset after a whole entry."""
        return self.offset(Position(position.ledger, position.entry + 1, 0))

    def room(self, ledger: int) -> int:
        """For how many messages of a batch a ledger's offsets have room."""
        return self.strides[max(self._row(ledger), 0)]

    def range(self, log: Log) -> tuple[int, int]:
        """(first, end) of the log."""
        first = self.offset(Position(_first(log.ledgers), 0, 0))
        last = Position(log.last_ledger, log.last_entry + 1, 0)
        return first, max(first, self.offset(last)) if self.knows(log.last_ledger) else first

    def _rows(self) -> Iterable[tuple[int, int, int]]:
        return zip(self.numbers, self.bases, self.strides, strict=True)

    def _with(self, rows: Mapping[int, tuple[int, int]]) -> Numbering:
        numbers = tuple(sorted(rows))
        bases = tuple(rows[number][0] for number in numbers)
        return replace(
            self, numbers=numbers, bases=bases, strides=tuple(rows[n][1] for n in numbers)
        )

    def _row(self, ledger: int) -> int:
        row = bisect_right(self.numbers, ledger) - 1
        return row if row >= 0 and self.numbers[row] == ledger else -1


def _first(ledgers: Sequence[Ledger]) -> int:
    return ledgers[0].number
