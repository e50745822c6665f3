"""Partitions of the retry topic go with partitions of the topics (ADR 20): the group balances the
topics alone, and whoever gets a partition of them gets what goes with it.

Kafka's assignors count the partitions of all topics together. With the retry topic among them one
member may get the topics and another one the retry topic, where almost nothing comes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ackd.core.ids import TopicPartition

Change = tuple[list[TopicPartition], list[TopicPartition]]
"""Companions that came and companions that went."""


def hosts(
    topics: Mapping[str, int], own: Mapping[str, int]
) -> dict[TopicPartition, TopicPartition]:
    """For each partition of `own` topics, the partition of `topics` with which it goes. Both say
    how many partitions each has.

    Assignors give a member a run of numbers or every n-th one. So the hosts are spread over all
    numbers, and of each run that one is taken which leaves the same remainders least often.
    """
    places = sorted(
        (
            TopicPartition(topic, number)
            for topic, count in topics.items()
            for number in range(count)
        ),
        key=lambda each: (each.partition, each.topic),
    )
    found: dict[TopicPartition, TopicPartition] = {}
    for topic, count in own.items():
        for number, at in enumerate(_spread(count, len(places)) if places else ()):
            found[TopicPartition(topic, number)] = places[at]
    return found


def _spread(count: int, total: int) -> list[int]:
    """So many of the numbers below `total`; some more than once if there are too few."""
    run = total // count if count else 0
    if run <= 1:
        return [number % total for number in range(count)]
    found: list[int] = []
    for begin in range(0, count * run, run):

        def often(at: int) -> list[int]:
            return [sum(at % n == each % n for each in found) for n in (2, 3, 4)]

        found.append(min(range(begin, begin + run), key=often))
    return found


class Companions:
    """What of the retry topic a member has beside the partitions that its group gave it."""

    def __init__(self) -> None:
        self.topics: tuple[str, ...] = ()
        self._counts: dict[str, int] = {}
        self._hosts: dict[TopicPartition, TopicPartition] = {}
        self._held: set[TopicPartition] = set()
        self._given: set[TopicPartition] = set()

    def add(self, topic: str) -> None:
        """One more topic whose partitions go with others; it has none until it is counted."""
        self.topics = (*self.topics, topic)

    def counted(self, counts: Mapping[str, int | None]) -> Change:
        """So many partitions have the topics, these ones and those that the group balances. None:
        not known now, so as many as before.
        """
        before = self._counts
        self._counts = {
            topic: before.get(topic, 0) if count is None else count
            for topic, count in counts.items()
        }
        if self._counts == before:
            return [], []
        own = {topic: self._counts.get(topic, 0) for topic in self.topics}
        rest = {topic: count for topic, count in self._counts.items() if topic not in own}
        self._hosts = hosts(rest, own)
        return self._look()

    def assigned(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """The group gave these partitions; return what comes with them."""
        self._held.update(partitions)
        return self._look()[0]

    def revoked(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """The group takes these partitions away; return what goes with them."""
        self._held.difference_update(partitions)
        return self._look()[1]

    def __contains__(self, partition: TopicPartition) -> bool:
        """Whether the member has it."""
        return partition in self._given

    def _look(self) -> Change:
        due = {each for each, host in self._hosts.items() if host in self._held}
        fresh, gone = sorted(due - self._given), sorted(self._given - due)
        self._given = due
        return fresh, gone
