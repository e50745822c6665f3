"""Names of ackd's own topics (rule R25), for brokers whose topics are named by Kafka's rule.

`[A-Za-z0-9._-]`, at most 249 characters, and names are equal that differ in `.` and `_` only.
An adapter for another kind of broker makes names of its own; the contract suite checks them.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Final

TOPIC_CHARS_MAX: Final = 249
RETRY_PREFIX: Final = "ackd.retry."
DEAD_PREFIX: Final = "ackd.dead."
RESERVED: Final = (
    RETRY_PREFIX,
    DEAD_PREFIX,
    "__consumer_offsets",
    "__transaction_state",
    "__share_group_state",
    "__cluster_metadata",
    "__remote_log_metadata",
)
"""Beginnings of the names of topics that are ackd's own, or Kafka's."""
_HASH_BYTES: Final = 5
_PLAIN: Final = re.compile(r"[A-Za-z0-9.-]+")
_NOT_ALLOWED: Final = re.compile(r"[^A-Za-z0-9._-]")


def retry_topic(group: str) -> str:
    """The topic of a group's retry copies."""
    return _own(RETRY_PREFIX, group)


def dead_letter_topic(group: str) -> str:
    """The topic of a group's dead letters."""
    return _own(DEAD_PREFIX, group)


def is_own_topic(name: str) -> bool:
    """Whether ackd itself made this topic: a pattern must not match it, reading it is a loop."""
    return name.startswith((RETRY_PREFIX, DEAD_PREFIX))


def _own(prefix: str, group: str) -> str:
    """Prefix + group; what can't stand in a name, is too long or could collide gets a hash."""
    name = prefix + group
    if _PLAIN.fullmatch(group) and len(name) <= TOPIC_CHARS_MAX:
        return name
    digest = "-" + blake2b(group.encode(), digest_size=_HASH_BYTES).hexdigest()
    return (prefix + _NOT_ALLOWED.sub("-", group))[: TOPIC_CHARS_MAX - len(digest)] + digest
