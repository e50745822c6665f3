"""Appending to logs, moving due messages into them, and dropping what is past its retention.

Offsets are dense: they are given inside the transaction that makes the message visible. `stamp` of
a record is the newest time up to it and `behind` how far its own time lies behind that; so `stamp`
never falls within a log even when the clock steps back, and a search by time is a binary search.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from ackd_adapters.local import schema, topics
from ackd_adapters.local.topics import Topic

SWEEP_ROWS: Final = 5_000
"""Records removed in one transaction, so that a sweep never holds publishers up for long."""
DUE_ROWS: Final = 2_000
_SIZE: Final = "IFNULL(LENGTH(key), 0) + IFNULL(LENGTH(value), 0) + IFNULL(LENGTH(headers), 0)"

Row = tuple[int, int, int, bytes | None, bytes | None, bytes | None]


def wall_ms() -> int:
    """Unix time; what records are stamped with and delays are counted in."""
    return time.time_ns() // 1_000_000


@dataclass(slots=True)
class Head:
    """Where a log ends, kept for the length of one transaction."""

    log: int
    first: int
    next: int
    stamp: int
    size: int
    changed: bool = False


@dataclass(slots=True)
class Transaction:
    """One transaction of the writer. `after` runs once it is durable, and only then."""

    db: sqlite3.Connection
    now_ms: int
    cache: dict[str, Topic | None]
    heads: dict[int, Head] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    after: list[Callable[[], None]] = field(default_factory=list)

    def topic(self, name: str) -> Topic | None:
        """A topic by name, remembered until topics change."""
        if name not in self.cache:
            self.cache[name] = topics.find(self.db, name)
        return self.cache[name]

    def head(self, log: int) -> Head | None:
        """Where a log ends as this transaction sees it; None when the log is gone."""
        known = self.heads.get(log)
        if known is not None:
            return known
        row = self.db.execute(
            "SELECT id, first, next, stamp, bytes FROM logs WHERE id = ?", (log,)
        ).fetchone()
        if row is None:
            return None
        head = self.heads[log] = Head(*row)
        return head

    def append(
        self, head: Head, key: bytes | None, value: bytes | None, headers: bytes | None
    ) -> int:
        """Add a record and return its offset; it is written by `flush`."""
        offset = head.next
        head.stamp = max(head.stamp, self.now_ms)
        self.rows.append(
            (
                (head.log << schema.OFFSET_BITS) + offset,
                head.stamp,
                head.stamp - self.now_ms,
                key,
                value,
                headers,
            )
        )
        head.next = offset + 1
        head.size += len(key or b"") + len(value or b"") + len(headers or b"")
        head.changed = True
        return offset

    def flush(self) -> bool:
        """Write what `append` collected; returns whether there was anything."""
        if not self.rows:
            return False
        self.db.executemany("INSERT INTO records VALUES(?, ?, ?, ?, ?, ?)", self.rows)
        self.rows.clear()
        changed = [head for head in self.heads.values() if head.changed]
        self.db.executemany(
            "UPDATE logs SET next = ?, stamp = ?, bytes = ? WHERE id = ?",
            [(head.next, head.stamp, head.size, head.log) for head in changed],
        )
        for head in changed:
            head.changed = False
        return True


def next_due_ms(db: sqlite3.Connection) -> int | None:
    """When the next delayed message becomes visible (Unix time), None when there is none."""
    row = db.execute("SELECT MIN(due_ms) FROM delayed").fetchone()
    return None if row[0] is None else int(row[0])


def move_due(tx: Transaction) -> None:
    """Give delayed messages that are due their offsets, in the order of their due times."""
    due = tx.db.execute(
        "SELECT id, log, key, value, headers FROM delayed WHERE due_ms <= ?"
        " ORDER BY due_ms, id LIMIT ?",
        (tx.now_ms, DUE_ROWS),
    ).fetchall()
    for _, log, key, value, headers in due:
        head = tx.head(log)
        if head is not None:
            tx.append(head, key, value, headers)
    tx.db.executemany("DELETE FROM delayed WHERE id = ?", [(row[0],) for row in due])


def search_time(db: sqlite3.Connection, log: int, timestamp_ms: int) -> int:
    """Return the first offset with a time >= `timestamp_ms`, the end offset if there is none.

    A search by the running maximum is right, as the first record whose maximum reaches the time is
    also the first one whose own time does.
    """
    low, end = db.execute("SELECT first, next FROM logs WHERE id = ?", (log,)).fetchone()
    high = end
    base = log << schema.OFFSET_BITS
    while low < high:
        middle = (low + high) // 2
        row = db.execute("SELECT stamp FROM records WHERE id = ?", (base + middle,)).fetchone()
        if row is None or row[0] < timestamp_ms:
            low = middle + 1
        else:
            high = middle
    return int(low)


@dataclass(frozen=True, slots=True)
class Retention:
    """The bounds for topics that have none of their own; 0 = none."""

    age_ms: int
    size: int

    def shortest_ms(self, db: sqlite3.Connection) -> int:
        """The shortest age in force, 0 when nothing ages."""
        row = db.execute("SELECT MIN(retention_ms) FROM topics WHERE retention_ms > 0").fetchone()
        ages = [age for age in (self.age_ms, row[0] or 0) if age > 0]
        return min(ages, default=0)

    def sweep(self, tx: Transaction) -> bool:
        """Drop some of what is past its bounds or of removed topics; True = there is more."""
        left = _collect_garbage(tx.db, SWEEP_ROWS)
        for topic in topics.every(tx.db):
            age_ms = self.age_ms if topic.retention_ms is None else topic.retention_ms
            size = self.size if topic.retention_bytes is None else topic.retention_bytes
            for log in topic.logs:
                if left <= 0:
                    return True
                head = tx.head(log)
                if head is None or head.first == head.next:
                    continue
                first = head.first
                if age_ms:
                    first = search_time(tx.db, log, tx.now_ms - age_ms)
                if size and head.size > size:
                    first = max(first, _first_within(tx.db, head, size, left))
                left -= drop(tx.db, head, min(first, head.first + left))
        return left <= 0

    def bounds_bytes(self, db: sqlite3.Connection) -> bool:
        """Whether any partition has a bound in bytes."""
        row = db.execute("SELECT 1 FROM topics WHERE retention_bytes > 0 LIMIT 1").fetchone()
        return self.size > 0 or row is not None


def _collect_garbage(db: sqlite3.Connection, rows: int) -> int:
    """Remove records of deleted topics; returns how many of `rows` are left to spend."""
    for (log,) in db.execute("SELECT log FROM garbage").fetchall():
        base = log << schema.OFFSET_BITS
        removed = db.execute(
            "DELETE FROM records WHERE id IN"
            " (SELECT id FROM records WHERE id >= ? AND id < ? LIMIT ?)",
            (base, base + (1 << schema.OFFSET_BITS), rows),
        ).rowcount
        rows -= removed
        if rows <= 0:
            return 0
        db.execute("DELETE FROM garbage WHERE log = ?", (log,))
    return rows


def _first_within(db: sqlite3.Connection, head: Head, size: int, rows: int) -> int:
    """The first offset so that what follows fits into `size`; the newest record always stays."""
    base = head.log << schema.OFFSET_BITS
    excess = head.size - size
    for number, found in db.execute(
        f"SELECT id, {_SIZE} FROM records WHERE id >= ? ORDER BY id LIMIT ?",  # noqa: S608
        (base + head.first, rows),
    ):
        if excess <= 0:
            return int(number) - base
        excess -= found
    return min(head.first + rows, head.next - 1)


def drop(db: sqlite3.Connection, head: Head, first: int) -> int:
    """Remove the records below `first`; returns how many there were."""
    if first <= head.first:
        return 0
    base = head.log << schema.OFFSET_BITS
    row = db.execute(
        f"SELECT TOTAL({_SIZE}) FROM records WHERE id >= ? AND id < ?",  # noqa: S608
        (base + head.first, base + first),
    ).fetchone()
    db.execute("DELETE FROM records WHERE id >= ? AND id < ?", (base + head.first, base + first))
    removed = first - head.first
    head.first = first
    head.size -= int(row[0])
    db.execute(
        "UPDATE logs SET first = ?, bytes = ? WHERE id = ?", (head.first, head.size, head.log)
    )
    return removed
