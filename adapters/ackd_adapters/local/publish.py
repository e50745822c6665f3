"""Publishing: the checks before it, the choice of the partition, and the writer's job."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from ackd.errors import BrokerError, BugError, OutcomeUnknownError
from ackd.ports import Failure, NotStored, Outgoing, PublishResult, Stored
from ackd_adapters.local import headers, topics
from ackd_adapters.local.config import DAY_MS, KIB, LocalOptions
from ackd_adapters.local.errors import QueueBusyError, QueueFullError
from ackd_adapters.local.log import Transaction

DELAY_MS_MAX: Final = 366 * DAY_MS
KEY_BYTES_MAX: Final = 64 * KIB
HEADERS_BYTES_MAX: Final = 1024 * KIB
NO_OFFSET: Final = -1
"""The offset in the answer to a delayed message: it gets its offset when it is due."""

_turn = itertools.count()


@dataclass(slots=True)
class Prepared:
    """A message that passed the checks that need no database."""

    message: Outgoing
    headers: bytes | None


class PublishJob:
    """The messages of one call. `answer` gets the results, from the writer's thread."""

    def __init__(
        self,
        messages: Sequence[Outgoing],
        options: LocalOptions,
        answer: Callable[[list[PublishResult]], None],
    ) -> None:
        self._options = options
        self._answer = answer
        self._results: list[PublishResult | None] = []
        self._ready: list[Prepared | None] = []
        self.weight = 0
        for message in messages:
            refused, ready = check(message, options)
            self._results.append(refused)
            self._ready.append(ready)
            if ready is not None:
                self.weight += weight(message) + len(ready.headers or b"")

    def run(self, tx: Transaction) -> None:
        """Give each message its offset."""
        for place, ready in enumerate(self._ready):
            if ready is not None:
                self._results[place] = self._put(tx, ready)

    def succeed(self) -> None:
        """All of it is durable."""
        self._answer([each for each in self._results if each is not None])

    def fail(self, error: BrokerError | BugError) -> None:
        """Nothing was stored; after a failed commit, that is uncertain."""
        why = failure_of(error)
        self._answer(
            [
                each if ready is None and each is not None else why
                for each, ready in zip(self._results, self._ready, strict=True)
            ]
        )

    def _put(self, tx: Transaction, ready: Prepared) -> PublishResult:
        message = ready.message
        topic = tx.topic(message.topic)
        if topic is None:
            if not self._options.auto_create:
                return refuse("unknown-topic", f"there is no topic {message.topic!r}")
            topic = topics.create(tx.db, message.topic, self._options.partitions)
            tx.cache[message.topic] = topic
        number = partition_of(message, len(topic.logs))
        if not 0 <= number < len(topic.logs):
            count = len(topic.logs)
            return refuse("unknown-partition", f"{message.topic} has {count} partitions")
        if message.delay_ms:
            tx.db.execute(
                "INSERT INTO delayed(log, due_ms, key, value, headers) VALUES(?, ?, ?, ?, ?)",
                (
                    topic.logs[number],
                    tx.now_ms + message.delay_ms,
                    message.key,
                    message.value,
                    ready.headers,
                ),
            )
            return Stored(message.topic, number, NO_OFFSET)
        head = tx.head(topic.logs[number])
        if head is None:
            raise AssertionError("a topic's logs are there as long as the topic")
        offset = tx.append(head, message.key, message.value, ready.headers)
        return Stored(message.topic, number, offset)


def check(message: Outgoing, options: LocalOptions) -> tuple[NotStored | None, Prepared | None]:
    """Refuse what can never be stored; else encode it."""
    if not topics.valid_name(message.topic):
        return refuse("bad-topic", f"{message.topic!r} is no name for a topic"), None
    if len(message.value or b"") > options.value_bytes_max:
        most = options.value_bytes_max
        return refuse("value-too-large", f"the body has more than {most} bytes"), None
    if len(message.key or b"") > KEY_BYTES_MAX:
        return refuse("key-too-large", f"the key has more than {KEY_BYTES_MAX} bytes"), None
    if not 0 <= message.delay_ms <= DELAY_MS_MAX:
        return refuse("bad-delay", f"a delay is 0 to {DELAY_MS_MAX} ms"), None
    try:
        raw = headers.encode(message.headers)
    except ValueError as error:
        return refuse("bad-header", str(error)), None
    if len(raw or b"") > HEADERS_BYTES_MAX:
        return refuse("headers-too-large", f"more than {HEADERS_BYTES_MAX} bytes"), None
    return None, Prepared(message, raw)


def weight(message: Outgoing) -> int:
    """Estimate the bytes that a message takes in memory, without its headers."""
    return 200 + len(message.key or b"") + len(message.value or b"")


def partition_of(message: Outgoing, partitions: int) -> int:
    """Choose the partition: the one that the message names, else by its key, else in turn."""
    if message.partition is not None:
        return message.partition
    if message.key is not None:
        return zlib.crc32(message.key) % partitions
    return next(_turn) % partitions


def refuse(code: str, detail: str) -> NotStored:
    """Make the result of a message that no retry can store."""
    return NotStored(Failure.REFUSED, code, detail)


def failure_of(error: BrokerError | BugError) -> NotStored:
    """Say what a failed transaction means for one of its messages."""
    if isinstance(error, OutcomeUnknownError):
        return NotStored(Failure.UNKNOWN, "commit-failed", error.detail)
    if isinstance(error, QueueBusyError):
        return NotStored(Failure.PRESSURE, "busy", error.detail)
    if isinstance(error, QueueFullError):
        return NotStored(Failure.NOT_STORED, "disk-full", error.detail)
    return NotStored(Failure.NOT_STORED, "not-stored", error.detail)
