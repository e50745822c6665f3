"""Who should hold which partition: as few moves as possible, nobody more than one above another.

Pure. Every member computes it from what the broker tells; two who see different moments may both
want a partition, and the broker lets one of them have it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ackd.core.ids import TopicPartition


def wanted(
    member: str,
    readers: Mapping[str, set[str]],
    holders: Mapping[TopicPartition, str | None],
) -> set[TopicPartition]:
    """The partitions that `member` should hold. `readers`: the members of each topic."""
    members = sorted({name for names in readers.values() for name in names})
    if member not in members:
        return set()
    share: dict[str, list[TopicPartition]] = {name: [] for name in members}
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
    return set(share[member])


def _able(partition: TopicPartition, readers: Mapping[str, set[str]]) -> Sequence[str]:
    return sorted(readers.get(partition.topic, set()))


def _give(
    partition: TopicPartition, able: Sequence[str], share: dict[str, list[TopicPartition]]
) -> None:
    if able:
        least = min(able, key=lambda name: (len(share[name]), name))
        share[least].append(partition)


def _level(share: dict[str, list[TopicPartition]], readers: Mapping[str, set[str]]) -> bool:
    """Move one partition from who has most to who has least; False when nothing is left to do."""
    for name in sorted(share, key=lambda each: -len(share[each])):
        for partition in sorted(share[name], reverse=True):
            least = min(
                _able(partition, readers), key=lambda each: (len(share[each]), each), default=name
            )
            if len(share[name]) - len(share[least]) > 1:
                share[name].remove(partition)
                share[least].append(partition)
                return True
    return False
