"""Recognises the `-RETRY` topics of Pulsar's own consumers, and reads the retry letters in them.

A consumer with `enableRetry` puts a message there with `reconsumeLater`, as a delayed message. Java
and Go name the topic `<topic>-<subscription>-RETRY` (Java until 2.7: `<subscription>-RETRY`) and
note the delay in ms and how often the message was delivered. Properties: `RetryMessageUtil` of the
Java client.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from ackd.ports import Delay, Record
from ackd.ports.own_topics import is_retry_topic
from ackd_adapters.pulsar.dead import RECONSUMED
from ackd_adapters.pulsar.names import is_own

DELAY_TIME: Final = "DELAY_TIME"
RETRY: Final = "-RETRY"
DEAD: Final = "-DLQ"
DELAY_MS_MAX: Final = 366 * 24 * 3_600_000
"""A longer client-set delay is cut to this."""
_DELAY_DIGITS: Final = 18
_COUNT_DIGITS: Final = 9


def holds_letters(topic: str) -> bool:
    """Whether a topic is a retry topic of a Pulsar consumer, by its name; of any group."""
    return topic.endswith(RETRY) and not is_own(topic)


def is_retry(topic: str) -> bool:
    """Whether it is a retry topic: ackd's, or one of Pulsar's consumers."""
    return is_retry_topic(topic.rpartition("/")[2]) or holds_letters(topic)


def topics_of(topics: Sequence[str], group: str) -> list[str]:
    """Where a group's consumers may have put retry letters: the present and the former name for
    each topic. Only the broker knows which of these topics exist.
    """
    found: dict[str, None] = {}
    for topic in topics:
        if not is_own(topic) and not topic.endswith((RETRY, DEAD)):
            space, slash, _ = topic.rpartition("/")
            found[f"{topic}-{group}{RETRY}"] = None
            found[f"{space}{slash}{group}{RETRY}"] = None
    return [each for each in found if each not in topics]


def letter(record: Record) -> Delay | None:
    """The contents of a retry letter; None when no Pulsar consumer would write it so. An unreadable
    number counts as absent.
    """
    found = {name: value or b"" for name, value in record.headers}
    if DELAY_TIME not in found and RECONSUMED not in found:
        return None
    delay_ms = min(_number(found.get(DELAY_TIME, b""), _DELAY_DIGITS), DELAY_MS_MAX)
    attempts = _number(found.get(RECONSUMED, b""), _COUNT_DIGITS)
    due_ms = record.timestamp_ms + delay_ms if delay_ms else 0
    return Delay(bounded(due_ms), attempts) if due_ms or attempts else None


def bounded(due_ms: int) -> int:
    """A due time that a client set, at most `DELAY_MS_MAX` ahead."""
    return max(min(due_ms, time.time_ns() // 1_000_000 + DELAY_MS_MAX), 0)


def _number(text: bytes, digits: int) -> int:
    return int(text) if text.isdigit() and len(text) <= digits else 0
