"""Somebody who has read all that is in the retry topic writes copies of his own into it.

He has no key. Whatever he writes, nobody may get it, no message may be taken by it, and nothing may
wait for it; what ackd itself wrote is never put aside.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Final

from ackd.core.ids import TopicPartition
from ackd.engine.base.copy_signature import SIGNATURE
from ackd.ports import Headers
from ackd.store.memory import Data
from tests.simulation.book import Coordinate, name_of
from tests.simulation.log import Cluster, is_retry
from tests.simulation.plan import Story
from tests.simulation.world import MS, World

KEYS = "copy-keys:"
CONTENT = b"forged"
FAULTS = ("fuse", "rebalance", "kill", "broker_net")
SETTINGS = (("stuck_ms", 1_500), ("forgers", 1))

PLAIN: Final = Story(FAULTS, SETTINGS, "slow")
"""Sidecars die and partitions move between what is forged."""
PROMOTED: Final = Story(("store_failover", "rebalance", "kill"), SETTINGS, "slow")
"""The store fails over to a replica that is some writes behind."""
RESET: Final = Story(
    ("reset", "store_failover", "fuse", "rebalance"), (*SETTINGS, ("session_ms", 3_000)), "slow"
)
"""The group is moved, and the store falls back behind that."""
IN_ORDER: Final = Story(
    ("fuse", "rebalance", "kill", "store_failover"), (*SETTINGS, ("ordered", 2)), "slow"
)
"""The same where keys are blocked."""
KEYS_LOST: Final = Story(
    ("copy_keys", "copy_keys", "kill", "rebalance", "fuse"), (*SETTINGS, ("sidecars", 3)), "slow"
)
"""The store loses the keys of copies alone, and sidecars that start make others."""
FLUSHED: Final = Story(
    ("flush", "rebalance", "freeze", "kill"), (*SETTINGS, ("sidecars", 3)), "slow"
)
"""The store loses everything, while some sidecars live."""


class Forgers:
    """Writes behind genuine copies, and judges what becomes of what it wrote.

    `data`: the store's, of which it only reads since when copies are signed.
    """

    def __init__(self, world: World, cluster: Cluster, data: Callable[[], Data]) -> None:
        self._world = world
        self._cluster = cluster
        self._data = data
        self._random = world.random("forgers")
        self._since: dict[int, int] = {}
        self.forged: set[Coordinate] = set()
        self.active = False
        self._writing = False

    def appended(self, tp: TopicPartition, offset: int, headers: Headers) -> bool:
        """A record lands in a log. True if it is forged."""
        self._look()
        if self._writing:
            at = Coordinate(self._cluster.topics[tp.topic].topic_id, tp.partition, offset)
            self.forged.add(at)
            self._world.note("forger", f"copy {tp.partition}/{offset}")
            return True
        if self.active and is_retry(tp.topic) and self._since and self._random.random() < 0.7:
            for _ in range(self._random.randint(1, 3)):
                delay_us = self._random.choice([0, 1, 20, 400, 3_000]) * MS
                self._world.after(delay_us, self._forge, tp, headers)
        return False

    def _forge(self, tp: TopicPartition, headers: Headers) -> None:
        if not self.active or tp.topic not in self._cluster.topics:
            return
        partitions = len(self._cluster.topics[tp.topic].logs)
        number = tp.partition if self._random.random() < 0.7 else self._random.randrange(partitions)
        self._writing = True
        self._cluster.publish(tp.topic, number, CONTENT, headers=_changed(self._random, headers))
        self._writing = False

    def _look(self) -> None:
        """Since when copies are signed: after a loss of everything that may be later."""
        for name, (value, _) in self._data().values.items():
            if name.startswith(KEYS):
                for topic, began in json.loads(value).get("signed_from", {}).items():
                    if is_retry(topic) and topic in self._cluster.topics:
                        known = self._cluster.topics[topic].topic_id.hex() == began["topic_id"]
                        for number in range(len(self._cluster.topics[topic].logs)):
                            at = began["offsets"].get(str(number), 0) if known else 0
                            self._since[number] = max(self._since.get(number, 0), at)

    # --- what must not be

    def got(self, at: Coordinate) -> None:
        """Somebody gets a message of a retry topic."""
        self._look()
        if at in self.forged and at.offset >= self._since.get(at.partition, 0):
            self._world.fail(f"R2: the forged {name_of(at)} is handed out")

    def claimed(self, at: Coordinate) -> None:
        """A copy has claimed a message."""
        self._look()
        if at in self.forged and at.offset >= self._since.get(at.partition, 0):
            self._world.fail(f"R2: the forged {name_of(at)} has claimed a message")


def _changed(random: Random, headers: Headers) -> Headers:
    """The headers of a genuine copy, as a forger changes them."""
    fields = {name: value or b"" for name, value in headers}
    kind = random.choice(["content", "later", "due", "other", "first", "key"])
    if kind == "later":
        later = random.choice([1, 1_000, 10_000_000_000])
        fields["ackd-generation"] = b"%d" % (int(fields["ackd-generation"]) + later)
    if kind == "due":
        fields["ackd-due-ms"] = b"%d" % ((1 << 48) - 1)
    if kind in ("other", "first"):
        place, _, offset = fields["ackd-origin"].decode().rpartition("/")
        other = max(int(offset) + random.randint(-3, 3), 0) if kind == "other" else 0
        fields["ackd-origin"] = f"{place}/{other}".encode()
    if kind == "key":
        fields["ackd-order-key"] = b"5"
    if random.random() < 0.6:
        fields.pop(SIGNATURE, None)
    return tuple(fields.items())
