"""Start positions by time, against a naive search, also when the clock stepped back."""

import sqlite3
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from ackd_adapters.local import log, schema, topics
from ackd_adapters.local.log import Transaction


@given(
    stamps=st.lists(st.integers(0, 50), max_size=40),
    cut=st.integers(0, 40),
    asked=st.integers(-1, 60),
)
def test_first_offset_at_or_after(
    tmp_path_factory: object, stamps: list[int], cut: int, asked: int
) -> None:
    folder: Path = tmp_path_factory.mktemp("queue")  # type: ignore[attr-defined]
    db: sqlite3.Connection = schema.prepare(folder, "normal")
    try:
        db.execute("BEGIN IMMEDIATE")
        made = topics.create(db, "t", 1).logs[0]
        for stamp in stamps:
            tx = Transaction(db, stamp, {})
            head = tx.head(made)
            assert head is not None
            tx.append(head, None, b"x", None)
            tx.flush()
        tx = Transaction(db, 0, {})
        head = tx.head(made)
        assert head is not None
        first = min(cut, len(stamps))
        log.drop(db, head, first)
        kept = [offset for offset in range(first, len(stamps)) if stamps[offset] >= asked]
        # What retention removed still counts for the running maximum: never later than the truth.
        found = log.search_time(db, made, asked)
        assert first <= found <= (kept[0] if kept else len(stamps))
        if first == 0:
            assert found == (kept[0] if kept else len(stamps))
    finally:
        db.close()
