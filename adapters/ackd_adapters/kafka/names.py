"""Which topics a subscription's names and regular expressions stand for."""

from __future__ import annotations

import re

from ackd.ports.own_topics import is_own_topic


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
