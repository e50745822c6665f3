"""Who should hold which partition: as few moves as possible, nobody more than one above another.

Pure. Every member computes it from what the broker tells; two who see different moments may both
want a partition, and the broker lets one of them have it.

The topics come first. Retry topics, where almost nothing comes, are shared among those who hold
something of the topics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from ackd.core.ids import TopicPartition

Readers = Mapping[str, AbstractSet[str]]
Holders = Mapping[TopicPartition, str | None]
Share = dict[str, list[TopicPartition]]


def wanted(
    member: str, readers: Readers, holders: Holders, retry: AbstractSet[str] = frozenset()
) -> set[TopicPartition]:
    """The partitions that `member` should hold. `readers`: the members of each topic; `retry`: the
    retry topics among these.
    """
    topics = {at: who for at, who in holders.items() if at.topic not in retry}
    share = _deal(topics, readers)
    busy = {name for name, given in share.items() if given}
    rest = {at: who for at, who in holders.items() if at.topic in retry}
    more = _deal(rest, {topic: (names & busy) or names for topic, names in readers.items()})
    return {*share.get(member, ()), *more.get(member, ())}


def _deal(holders: Holders, readers: Readers) -> Share:
    share: Share = {name: [] for names in readers.values() for name in names}
    free: list[TopicPartition] = []
    for partition, holder in sorted(holders.items()):
        if holder in readers.get(partition.topic, set()) and holder is not None:
            share[holder].append(partition)
        else:
            free.append(partition)
    for partition in free:
        _give(partition, _able(partition, readers), share)
    while _level(share, readers):
        pass
    return share


def _able(partition: TopicPartition, readers: Readers) -> Sequence[str]:
    return sorted(readers.get(partition.topic, set()))


def _give(partition: TopicPartition, able: Sequence[str], share: Share) -> None:
    if able:
        least = min(able, key=lambda name: (len(share[name]), name))
        share[least].append(partition)


def _level(share: Share, readers: Readers) -> bool:
    """Move one partition from who has most to who has least; False when nothing is left to do."""
    for name in sorted(share, key=lambda each: (-len(share[each]), each)):
        for partition in sorted(share[name], reverse=True):
            least = min(
                _able(partition, readers), key=lambda each: (len(share[each]), each), default=name
            )
            if len(share[name]) - len(share[least]) > 1:
                share[name].remove(partition)
                share[least].append(partition)
                return True
    return False
