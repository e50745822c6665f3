"""Questions to the queue beside the flow of messages. Each runs in the reader's thread."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Protocol, TypeVar

from ackd.core.ids import TopicPartition
from ackd.errors import BrokerError
from ackd.ports import Committed, TopicInfo
from ackd_adapters.local import topics
from ackd_adapters.local.group import matches
from ackd_adapters.local.log import search_time

Answer_co = TypeVar("Answer_co", covariant=True)


class Question(Protocol[Answer_co]):
    """A question to the database that only reads. Raises BrokerError."""

    def __call__(self, db: sqlite3.Connection) -> Answer_co: ...


@dataclass(frozen=True, slots=True)
class Topics:
    """Ask which topics a subscription to these names and expressions matches."""

    patterns: tuple[str, ...]

    def __call__(self, db: sqlite3.Connection) -> list[TopicInfo]:
        return [
            TopicInfo(topic.name, topic.identity, len(topic.logs))
            for topic in topics.every(db)
            if matches(self.patterns, topic.name)
        ]


@dataclass(frozen=True, slots=True)
class Partitions:
    """Ask how many partitions a topic has; None if it does not exist."""

    topic: str

    def __call__(self, db: sqlite3.Connection) -> int | None:
        """None when there is no such topic."""
        found = topics.find(db, self.topic)
        return None if found is None else len(found.logs)


@dataclass(frozen=True, slots=True)
class Positions:
    """Ask for a group's committed positions."""

    group: str
    partitions: tuple[TopicPartition, ...]

    def __call__(self, db: sqlite3.Connection) -> dict[TopicPartition, Committed]:
        """-1 for a partition where the group has no position."""
        found: dict[TopicPartition, Committed] = {}
        for partition in self.partitions:
            row = db.execute(
                "SELECT next, metadata FROM positions WHERE grp = ? AND log = ?",
                (self.group, _log(db, partition)),
            ).fetchone()
            found[partition] = Committed(-1, "") if row is None else Committed(row[0], row[1])
        return found


@dataclass(frozen=True, slots=True)
class Range:
    """Ask for the first and the end offset of a partition's log."""

    partition: TopicPartition

    def __call__(self, db: sqlite3.Connection) -> tuple[int, int]:
        """First offset and end offset."""
        row = db.execute(
            "SELECT first, next FROM logs WHERE id = ?", (_log(db, self.partition),)
        ).fetchone()
        return int(row[0]), int(row[1])


@dataclass(frozen=True, slots=True)
class OffsetAt:
    """Ask for the first offset at or after a time; the end offset if there is none."""

    partition: TopicPartition
    timestamp_ms: int

    def __call__(self, db: sqlite3.Connection) -> int:
        """The end offset when nothing is so new."""
        return search_time(db, _log(db, self.partition), self.timestamp_ms)


def _log(db: sqlite3.Connection, partition: TopicPartition) -> int:
    log = topics.log_of(db, *partition)
    if log is None:
        raise BrokerError(f"there is no partition {partition.topic}/{partition.partition}")
    return log
