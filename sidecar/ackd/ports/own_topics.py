"""Names of ackd's own topics (rule R25), for brokers with Kafka's rules for topic names.

Kafka allows `[A-Za-z0-9._-]` and at most 249 characters, and takes names for equal that differ only
in `.` and `_`. An adapter for another kind of broker makes other names; the contract suite checks
them.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Final

TOPIC_CHARS_MAX: Final = 249
OWN_PREFIX: Final = "ackd."
"""Applications publish to no topic whose name begins so: ackd may make more topics later."""
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
"""Prefixes of the names of ackd's own topics and Kafka's."""
_HASH_BYTES: Final = 5
_PLAIN: Final = re.compile(r"[A-Za-z0-9.-]+")
_NOT_ALLOWED: Final = re.compile(r"[^A-Za-z0-9._-]")


def retry_topic(group: str) -> str:
    """Name the topic of a group's retry copies."""
    return _own(RETRY_PREFIX, group)


def dead_letter_topic(group: str) -> str:
    """Name the topic of a group's dead letters."""
    return _own(DEAD_PREFIX, group)


def is_retry_topic(name: str) -> bool:
    """Whether this is the retry topic of some group."""
    return name.startswith(RETRY_PREFIX)


def is_own_topic(name: str) -> bool:
    """Whether this is one of ackd's own topics. A pattern must not match it: ackd would read
    its own copies.
    """
    return name.startswith((RETRY_PREFIX, DEAD_PREFIX))


def _own(prefix: str, group: str) -> str:
    """Join prefix and group. A group that is too long, could collide or has a forbidden
    character gets a hash.
    """
    name = prefix + group
    if _PLAIN.fullmatch(group) and len(name) <= TOPIC_CHARS_MAX:
        return name
    digest = "-" + blake2b(group.encode(), digest_size=_HASH_BYTES).hexdigest()
    return (prefix + _NOT_ALLOWED.sub("-", group))[: TOPIC_CHARS_MAX - len(digest)] + digest
