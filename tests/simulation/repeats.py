"""Judges R18: only a message whose business key somebody has acked is settled without delivery."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.simulation.book import Coordinate, Place
from tests.simulation.log import Cluster
from tests.simulation.world import World


@dataclass(slots=True)
class Repeats:
    """What was acked by applications, by key, and when partitions were reset."""

    world: World
    cluster: Cluster
    acked: dict[bytes, list[tuple[Coordinate, int]]] = field(default_factory=dict)
    reset_us: dict[Place, int] = field(default_factory=dict)
    count: int = 0
    gone: dict[Coordinate, bytes | None] = field(default_factory=dict)

    def removed(self, at: Coordinate) -> None:
        """It is about to leave the log; somebody may have it, and ack it."""
        self.gone[at] = self._key(at)

    def _key(self, at: Coordinate) -> bytes | None:
        if at in self.gone:
            return self.gone[at]
        for topic in (*self.cluster.topics.values(), *self.cluster.retired):
            if topic.topic_id == at.topic_id:
                record = topic.logs[at.partition].records.get(at.offset)
                return None if record is None else record.key
        return None

    def worked(self, at: Coordinate) -> None:
        """An application acked it."""
        key = self._key(at)
        if key is not None:
            self.acked.setdefault(key, []).append((at, self.world.now_us))

    def reset(self, place: Place) -> None:
        """An operator wants what comes from here on."""
        self.reset_us[place] = self.world.now_us

    def settled(self, at: Coordinate) -> None:
        """It was acked without being delivered."""
        self.count += 1
        key = self._key(at)
        if key is None:
            return  # the log does not have it any more
        since_us = self.reset_us.get(at.place, 0)
        others = self.acked.get(key, [])
        if not any(other != at and when_us >= since_us for other, when_us in others):
            name = f"{at.partition}/{at.offset}"
            self.world.fail(f"R18: {name} is settled, and nobody acked another of its key")
