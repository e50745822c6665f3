"""Who takes partitions while nothing is broken: not from a sidecar that lives and delivers (R5)."""

from __future__ import annotations

from ackd.core.ids import LedgerKey
from tests.simulation.group import Group
from tests.simulation.plan import Story
from tests.simulation.process import Process
from tests.simulation.world import MS, World

HEARD_US = 400 * MS
"""By then each other sidecar has heard, with a heartbeat, who owns a partition."""

MOVES = Story(("rebalance", "rebalance"), (("sidecars", 3), ("partitions", 3)))
"""The group moves partitions around, and is slow to say where they go."""


class Handovers:
    """Each take of a partition. `strict`: no sidecar is disturbed by anything."""

    def __init__(self, world: World, group: Group) -> None:
        self.world = world
        self.strict = False
        self._group = group
        self._owners: dict[LedgerKey, tuple[Process, int]] = {}

    def taken(self, by: Process, key: LedgerKey) -> None:
        """A sidecar raises the term."""
        now_us = self.world.now_us
        before, since_us = self._owners.get(key, (by, now_us))
        heard = now_us - since_us > HEARD_US
        if self.strict and before is not by and before.alive and heard and not self._sent(by, key):
            self.world.fail(
                f"R5: {by.name} takes partition {key.partition} from {before.name}, which lives"
            )
        self._owners[key] = by, now_us

    def _sent(self, by: Process, key: LedgerKey) -> bool:
        """The group wants it there."""
        return any(
            self._group.cluster.topics[tp.topic].topic_id == key.topic_id
            and tp.partition == key.partition
            for member in self._group.members.values()
            if member.listener.process is by
            for tp in (*member.owned, *member.leaving)
        )
