"""Positions of the retry topic, to which the group does not subscribe: committed again at times.

A broker forgets such a position `offsets.retention.minutes` after its last commit, although the
group lives.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from ackd.core.ids import TopicPartition
from ackd.ports import Committed

KEEP_S = 3_600.0
"""Brokers keep positions for days."""


class IdlePositions:
    """What the broker is known to have of topics that are not among `subscribed`."""

    def __init__(self, subscribed: tuple[str, ...]) -> None:
        self._subscribed = subscribed
        self._topics: tuple[str, ...] = ()
        self._known: dict[TopicPartition, Committed] = {}
        self._due = 0.0

    def also(self, topic: str) -> bool:
        """Whether this topic is a new one."""
        if topic in self._topics or topic in self._subscribed:
            return False
        self._topics = (*self._topics, topic)
        return True

    @property
    def all_topics(self) -> tuple[str, ...]:
        """Names and expressions of everything that is read."""
        return (*self._subscribed, *self._topics)

    def committed(self, positions: Mapping[TopicPartition, Committed]) -> None:
        """The broker has these."""
        for partition, position in positions.items():
            if partition.topic in self._topics and position.offset >= 0:
                self._known[partition] = position

    def doubt(self, partitions: Iterable[TopicPartition]) -> None:
        """Their commit begins, so it is not known which positions the broker has: the one of before
        must not be committed again after it.
        """
        for partition in partitions:
            self._known.pop(partition, None)

    def due(self) -> dict[TopicPartition, Committed]:
        """What to commit again now: everything at times, mostly nothing."""
        now = time.monotonic()
        if not self._known or now < self._due:
            return {}
        self._due = now + KEEP_S
        return dict(self._known)
