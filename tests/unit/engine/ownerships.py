"""Test support: the ownership of partitions in a `World`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable

from ackd.engine.ownership.ownership import Dropped, Ownership, PartitionParts, Taken
from ackd.engine.ownership.records import Records
from ackd.engine.partition.partition import Partition
from ackd.engine.retry.own_topic import RetryTopic
from tests.unit.engine.world import World


def ownership_of(
    world: World,
    commit_first: Callable[[Partition], Awaitable[None]],
    *,
    ready: Callable[[Partition], None] = lambda _: None,
    on_taken: tuple[Taken, ...] = (),
    on_left: tuple[Dropped, ...] = (),
    on_dropped: tuple[Dropped, ...] = (),
) -> Ownership:
    """Partitions whose effects the world notes."""
    return Ownership(
        world.state,
        world.context,
        world.partitions,
        world.topics,
        world.membership,
        Records(world.context, world.partitions, world.membership),
        RetryTopic(world.state, world.context),
        commit_first,
        PartitionParts(
            observers=(Partition.apply,),
            effects=defaultdict(lambda: world.events.note),
            performed=(),
            ready=ready,
            due=lambda _: None,
            blocked=lambda *_: None,
            on_taken=on_taken,
            on_left=on_left,
            on_dropped=on_dropped,
            unordered=False,
        ),
    )
