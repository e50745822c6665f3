"""The file of the local queue: tables, pragmas, and opening it safely by several processes.

One SQLite database in WAL mode. Why `synchronous=FULL` is the default: in WAL mode `NORMAL`
doesn't sync at a commit, so a power cut takes back messages that were answered as stored. The
writer commits whatever has collected in one transaction, so the sync is paid once for a group
(0.2 ms on an SSD against 0.04 ms without).

A record's key is one integer, `log << 40 | offset`: each partition's log has a number that is never
used again, so a range scan needs no second index, and a topic made again can't see old rows.

The schema has a number; a file with a higher one is refused, and nothing in it is touched.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ackd.errors import BrokerError

LAYOUT: Final = 1
FILE: Final = "queue.db"
OFFSET_BITS: Final = 40
"""An offset has 40 bits (10^12 messages in a partition), the log's number the other 23."""
BUSY_MS: Final = 2_000
"""How long a transaction waits for another process's one."""

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS meta(key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS topics(
  id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, identity BLOB NOT NULL,
  partitions INTEGER NOT NULL, retention_ms INTEGER, retention_bytes INTEGER);
CREATE TABLE IF NOT EXISTS logs(
  id INTEGER PRIMARY KEY AUTOINCREMENT, topic INTEGER NOT NULL, partition INTEGER NOT NULL,
  first INTEGER NOT NULL DEFAULT 0, next INTEGER NOT NULL DEFAULT 0,
  stamp INTEGER NOT NULL DEFAULT 0, bytes INTEGER NOT NULL DEFAULT 0, UNIQUE(topic, partition));
CREATE TABLE IF NOT EXISTS records(
  id INTEGER PRIMARY KEY, stamp INTEGER NOT NULL, behind INTEGER NOT NULL,
  key BLOB, value BLOB, headers BLOB);
CREATE TABLE IF NOT EXISTS delayed(
  id INTEGER PRIMARY KEY AUTOINCREMENT, log INTEGER NOT NULL, due_ms INTEGER NOT NULL,
  key BLOB, value BLOB, headers BLOB);
CREATE INDEX IF NOT EXISTS delayed_due ON delayed(due_ms, id);
CREATE TABLE IF NOT EXISTS garbage(log INTEGER PRIMARY KEY);
CREATE TABLE IF NOT EXISTS positions(
  grp TEXT NOT NULL, log INTEGER NOT NULL, next INTEGER NOT NULL, metadata TEXT NOT NULL,
  PRIMARY KEY(grp, log)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS members(
  id TEXT PRIMARY KEY, grp TEXT NOT NULL, instance TEXT NOT NULL, static_id TEXT,
  topics TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS claims(
  grp TEXT NOT NULL, log INTEGER NOT NULL, member TEXT NOT NULL,
  PRIMARY KEY(grp, log)) WITHOUT ROWID;
"""


def prepare(folder: Path, sync: str) -> sqlite3.Connection:
    """Make or open the queue's file and return a connection for writing. Raises BrokerError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _opening(folder):
            db = connect(folder, sync)
            try:
                _create(db)
            except BaseException:
                db.close()
                raise
            return db
    except (OSError, sqlite3.Error) as error:
        raise BrokerError(f"can't open the local queue in {folder}: {error}") from error


def connect(folder: Path, sync: str) -> sqlite3.Connection:
    """A connection for the calling thread; transactions are opened by hand."""
    db = sqlite3.connect(folder / FILE, isolation_level=None, timeout=BUSY_MS / 1000)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute(f"PRAGMA synchronous={'NORMAL' if sync == 'normal' else 'FULL'}")
    db.execute("PRAGMA cache_size=-8192")
    db.execute("PRAGMA wal_autocheckpoint=2000")
    db.execute(f"PRAGMA journal_size_limit={64 << 20}")
    return db


def version(db: sqlite3.Connection) -> int:
    """A number that grows with every change of topics, members and claims (not of records)."""
    row = db.execute("SELECT value FROM meta WHERE key = 'version'").fetchone()
    return int(row[0])


def bump(db: sqlite3.Connection) -> None:
    """Show the other processes that topics, members or claims have changed."""
    db.execute("UPDATE meta SET value = value + 1 WHERE key = 'version'")


def cluster_id(db: sqlite3.Connection) -> str:
    """The random name that this file got when it was made."""
    row = db.execute("SELECT value FROM meta WHERE key = 'cluster'").fetchone()
    return str(row[0])


def new_identity() -> bytes:
    """The identity of a new topic: 16 random bytes (rule R1)."""
    return secrets.token_bytes(16)


@contextmanager
def _opening(folder: Path) -> Iterator[None]:
    """Let one process at a time open the file: a switch to WAL does not wait for locks."""
    handle = os.open(folder / "opening.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _create(db: sqlite3.Connection) -> None:
    has_meta = db.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone()
    if has_meta:
        row = db.execute("SELECT value FROM meta WHERE key = 'layout'").fetchone()
        if row is not None and int(row[0]) != LAYOUT:
            raise BrokerError(f"the queue has layout {row[0]}; this ackd reads layout {LAYOUT}")
        if row is not None:
            return
    # executescript would end the transaction it is called in, hence one statement at a time.
    db.execute("BEGIN IMMEDIATE")
    for statement in _TABLES.split(";"):
        if statement.strip():
            db.execute(statement)
    db.executemany(
        "INSERT OR IGNORE INTO meta VALUES(?, ?)",
        [("layout", LAYOUT), ("cluster", f"local-{uuid.uuid4()}"), ("version", 1)],
    )
    db.execute("COMMIT")
