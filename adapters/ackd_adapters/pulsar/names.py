"""Topic names: `orders` in the connection's namespace, or `tenant/namespace/orders`, or in full.

ackd shortens the name of a topic in the connection's namespace, so that records, ids and dead
letters read alike on every broker.
"""

from __future__ import annotations

import re
from urllib.parse import quote

from ackd.errors import BrokerError
from ackd.ports.own_topics import is_own_topic

SCHEME = "persistent://"
_PART = re.compile(r"[^\s/\x00-\x1f]+")
_PARTITION = re.compile(r"-partition-[0-9]+$")


class TopicNameError(BrokerError):
    """Not a valid topic name."""


class Names:
    """Names as one connection writes them. `namespace` is `tenant/namespace`."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace

    def path(self, topic: str) -> str:
        """`tenant/namespace/name`. Raises BrokerError for an invalid topic name."""
        parts = topic.removeprefix(SCHEME).split("/")
        if len(parts) == 1:
            parts = [*self.namespace.split("/"), *parts]
        if len(parts) != 3 or not all(_PART.fullmatch(each) for each in parts):  # noqa: PLR2004 -- tenant, namespace, name
            raise TopicNameError(f"{topic!r} is no name of a topic here")
        return "/".join(parts)

    def short(self, full: str) -> str:
        """The inverse of `path`, for a name with or without the scheme."""
        return full.removeprefix(SCHEME).removeprefix(f"{self.namespace}/")

    def rest(self, topic: str) -> str:
        """The topic's path in the admin interface."""
        return "persistent/" + quote(self.path(topic))

    def matching(self, topics: tuple[str, ...], existing: list[str]) -> list[str]:
        """A subscription's topics: names as they are, expressions against what exists, by short
        name. An expression never matches ackd's own topics (rule R25) or the broker's (`__`).
        """
        found = {self.short(topic) for topic in topics if not is_pattern(topic)}
        for pattern in (re.compile(topic) for topic in topics if is_pattern(topic)):
            for name in existing:
                local = name.rpartition("/")[2]
                if not is_own_topic(local) and not local.startswith("__") and pattern.match(name):
                    found.add(name)
        return sorted(found)


def is_pattern(topic: str) -> bool:
    """Whether an entry of a subscription's topics is a regular expression."""
    return topic.startswith("^")


def is_own(topic: str) -> bool:
    """Whether it is one of ackd's topics, in any namespace."""
    return is_own_topic(topic.rpartition("/")[2])


def whole(full: str) -> str:
    """A partition's name without its number: what partitioned and plain topics are listed by."""
    return _PARTITION.sub("", full)


def partition_name(path: str, partition: int, partitions: int) -> str:
    """The topic that holds one partition; `partitions` 0 = the topic is not partitioned."""
    return f"{path}-partition-{partition}" if partitions else path
