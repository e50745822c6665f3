"""Names of topics: ackd's own ones (rule R25), and which ones a regular expression may match."""

from __future__ import annotations

import re
from hashlib import blake2b

TOPIC_CHARS_MAX = 249
RETRY_PREFIX = "ackd.retry."
DEAD_PREFIX = "ackd.dead."
_HASH_BYTES = 5
# Kafka refuses a name that equals another one's after `.` -> `_`: a group with `_` gets a hash.
_PLAIN = re.compile(r"[A-Za-z0-9.-]+")
_NOT_ALLOWED = re.compile(r"[^A-Za-z0-9._-]")


def retry_topic(group: str) -> str:
    """The topic of a group's retry copies."""
    return _own(RETRY_PREFIX, group)


def dead_topic(group: str) -> str:
    """The topic of a group's dead letters."""
    return _own(DEAD_PREFIX, group)


def _own(prefix: str, group: str) -> str:
    """Prefix + group; what can't stand in a name or could collide is told apart by a hash."""
    name = prefix + group
    if _PLAIN.fullmatch(group) and len(name) <= TOPIC_CHARS_MAX:
        return name
    digest = "-" + blake2b(group.encode(), digest_size=_HASH_BYTES).hexdigest()
    return (prefix + _NOT_ALLOWED.sub("-", group))[: TOPIC_CHARS_MAX - len(digest)] + digest


def is_own_topic(name: str) -> bool:
    """Whether ackd itself made this topic."""
    return name.startswith((RETRY_PREFIX, DEAD_PREFIX))


def is_pattern(topic: str) -> bool:
    """Whether an entry of a subscription's topics is a regular expression."""
    return topic.startswith("^")


def matching(topics: tuple[str, ...], existing: list[str]) -> list[str]:
    """The topics of a subscription: plain names as they are, patterns against what exists.

    A pattern matches from the start of the name and never a topic of ackd's own or of Kafka's
    (`__consumer_offsets`): a subscription that reads its own retry topic is a loop.
    """
    found = {topic for topic in topics if not is_pattern(topic)}
    for pattern in (re.compile(topic) for topic in topics if is_pattern(topic)):
        found.update(
            name
            for name in existing
            if not is_own_topic(name) and not name.startswith("__") and pattern.match(name)
        )
    return sorted(found)
