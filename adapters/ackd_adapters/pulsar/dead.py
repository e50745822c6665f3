"""What Pulsar's own consumers write into their `-DLQ` and `-RETRY` topics.

The names of the properties are those of the clients (Java's `RetryMessageUtil`; the C++ client, on
which Python's is built, writes the first two). A message id stands there as numbers in the order
ledger, entry, partition, batch index, between signs that differ from client to client.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from ackd.core.ids import TopicPartition, topic_id_of
from ackd.errors import BrokerError
from ackd.ports import DeadOrigin, Record
from ackd_adapters.pulsar.logs import Logs
from ackd_adapters.pulsar.names import Names, TopicNameError, whole
from ackd_adapters.pulsar.numbering import Numbering, Position
from ackd_adapters.pulsar.tables import Tables

REAL_TOPIC: Final = "REAL_TOPIC"
ORIGIN_ID: Final = "ORIGIN_MESSAGE_ID"
RECONSUMED: Final = "RECONSUMETIMES"
_NUMBERS: Final = re.compile(r"-?[0-9]+")
_NUMBER_MAX: Final = (1 << 63) - 1
_DIGITS_MAX: Final = 19
_ID_CHARS_MAX: Final = 200
_PARTITION_DIGITS_MAX: Final = 9
_NUMBERS_MIN: Final = 2
_BATCH: Final = 3


class Written(NamedTuple):
    """What the properties say about the origin."""

    topic: str
    partition: int
    position: Position
    attempts: int


def written(record: Record, names: Names) -> Written | None:
    """Read the properties of a dead letter; None when no Pulsar consumer would write them so.

    Anybody may write to the topic, so any text must be readable without an error.
    """
    found = {name: (value or b"").decode("utf-8", "replace") for name, value in record.headers}
    if REAL_TOPIC not in found or ORIGIN_ID not in found:
        return None
    numbers = _numbers(found[ORIGIN_ID])
    if len(numbers) < _NUMBERS_MIN or min(numbers[:2]) < 0 or max(numbers) > _NUMBER_MAX:
        return None
    full = found[REAL_TOPIC]
    topic = whole(full)
    digits = full[len(topic) :].rpartition("-")[2]
    if len(digits) > _PARTITION_DIGITS_MAX:
        return None
    partition = int(digits) if topic != full else 0
    try:
        names.path(topic)
    except TopicNameError:
        return None
    batch = max(numbers[_BATCH], 0) if len(numbers) > _BATCH else 0
    attempts = 1 + _count(found) if RECONSUMED in found else 0
    return Written(names.short(topic), partition, Position(numbers[0], numbers[1], batch), attempts)


def origin(place: Written, logs: Logs, tables: Tables, names: Names) -> DeadOrigin | None:
    """The message's position by the topic's offset table. None when the message no longer exists.
    Blocks; raises BrokerError when the broker does not answer.
    """
    count = logs.partitions(place.topic)
    if count is None or place.partition >= max(count, 1):
        return None
    numbering = tables.numbering(
        TopicPartition(place.topic, place.partition), place.position.ledger
    )
    if not numbering.knows(place.position.ledger):
        return None
    try:
        offset = numbering.offset(place.position)
    except BrokerError:
        return None  # The batch is larger than the stride leaves room for.
    head: Numbering = tables.numbering(TopicPartition(place.topic, 0))
    identity = topic_id_of(f"{names.path(place.topic)} {head.anchor}")
    return DeadOrigin(place.topic, identity, place.partition, offset, place.attempts)


def _numbers(text: str) -> list[int]:
    found = _NUMBERS.findall(text[:_ID_CHARS_MAX])
    return [int(each) for each in found if len(each) <= _DIGITS_MAX + 1]


def _count(found: Mapping[str, str]) -> int:
    text = found[RECONSUMED]
    return int(text) if text.isdecimal() and len(text) < 10 else 0  # noqa: PLR2004 -- digits
