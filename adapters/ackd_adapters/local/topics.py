"""Topics and their partitions' logs: finding, making and removing them (in the writer's thread)."""

from __future__ import annotations

import re
import sqlite3
from dataclasses import dataclass
from typing import Final

from ackd.errors import BrokerError
from ackd_adapters.local import schema

NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
PARTITIONS_MAX: Final = 1024


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as it stands in the file. `logs`: the log's number for each partition."""

    row: int
    name: str
    identity: bytes
    logs: tuple[int, ...]
    retention_ms: int | None
    retention_bytes: int | None


def valid_name(name: str) -> bool:
    """Kafka's rule, so that a subscription can move to Kafka without a new name."""
    return NAME.fullmatch(name) is not None and name not in {".", ".."}


def find(db: sqlite3.Connection, name: str) -> Topic | None:
    """A topic by its name."""
    row = db.execute(
        "SELECT id, name, identity, retention_ms, retention_bytes FROM topics WHERE name = ?",
        (name,),
    ).fetchone()
    return None if row is None else _topic(db, row)


def every(db: sqlite3.Connection) -> list[Topic]:
    """All topics, sorted by name."""
    rows = db.execute(
        "SELECT id, name, identity, retention_ms, retention_bytes FROM topics ORDER BY name"
    ).fetchall()
    return [_topic(db, row) for row in rows]


def _topic(db: sqlite3.Connection, row: tuple[int, str, bytes, int | None, int | None]) -> Topic:
    logs = db.execute("SELECT id FROM logs WHERE topic = ? ORDER BY partition", (row[0],))
    return Topic(row[0], row[1], row[2], tuple(log for (log,) in logs), row[3], row[4])


def log_of(db: sqlite3.Connection, topic: str, partition: int) -> int | None:
    """The log's number of one partition, None when there is no such partition."""
    row = db.execute(
        "SELECT logs.id FROM logs JOIN topics ON topics.id = logs.topic"
        " WHERE topics.name = ? AND logs.partition = ?",
        (topic, partition),
    ).fetchone()
    return None if row is None else int(row[0])


def create(
    db: sqlite3.Connection,
    name: str,
    partitions: int,
    retention_ms: int | None = None,
    retention_bytes: int | None = None,
) -> Topic:
    """Make a topic with a new identity. Raises BrokerError before anything is written."""
    if not valid_name(name):
        raise BrokerError(f"{name!r} is no name for a topic: 1-249 of A-Z a-z 0-9 . _ -")
    if not 1 <= partitions <= PARTITIONS_MAX:
        raise BrokerError(f"a topic has 1 to {PARTITIONS_MAX} partitions, not {partitions}")
    row = db.execute(
        "INSERT INTO topics(name, identity, partitions, retention_ms, retention_bytes)"
        " VALUES(?, ?, ?, ?, ?)",
        (name, schema.new_identity(), partitions, retention_ms, retention_bytes),
    ).lastrowid
    db.executemany(
        "INSERT INTO logs(topic, partition) VALUES(?, ?)",
        [(row, each) for each in range(partitions)],
    )
    schema.bump(db)
    made = find(db, name)
    if made is None:
        raise AssertionError("a topic is there after its insert")
    return made


def remove(db: sqlite3.Connection, topic: Topic) -> None:
    """Delete a topic. Its records go bit by bit later: a huge topic must not block others."""
    for log in topic.logs:
        db.execute("DELETE FROM delayed WHERE log = ?", (log,))
        db.execute("DELETE FROM positions WHERE log = ?", (log,))
        db.execute("DELETE FROM claims WHERE log = ?", (log,))
        db.execute("INSERT INTO garbage(log) VALUES(?)", (log,))
    db.execute("DELETE FROM logs WHERE topic = ?", (topic.row,))
    db.execute("DELETE FROM topics WHERE id = ?", (topic.row,))
    schema.bump(db)
