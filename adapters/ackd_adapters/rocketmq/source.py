"""One topic on one broker, which one sidecar draws as a whole, and the numbers of its partitions.

A question to a proxy brings messages of all queues that a topic has on one broker. The broker's
name is in each handle, so that a message is told right even where the proxy asked another broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from ackd.core.ids import TopicPartition
from ackd.core.log_generations import GENERATION
from ackd.core.sources import BLOCK, COPIES, SourceNumbers, block_of, number_of
from ackd.ports import AssignedPlace, Condition, KnownSource
from ackd_adapters.rocketmq.message import Taken
from ackd_adapters.rocketmq.protocol.definition_pb2 import MessageQueue

GONE_MS: Final = 600_000
"""A broker that no sidecar has found in a topic's route for so long was removed, probably."""


class DrawnSource:
    """One topic on one broker. `queue`: by which the broker is asked; None while the topic's route
    does not name it, as the proxy would ask another one instead.
    """

    def __init__(self, topic: str, broker: str) -> None:
        self.topic = topic
        self.broker = broker
        self.queue: MessageQueue | None = None
        self.queues = 0
        self.gone = False
        self.changed = asyncio.Event()
        self.blocks: tuple[int, ...] = ()
        self._away = False
        self._failure = ""
        self._assigned: dict[TopicPartition, None] = {}
        self._fetching: dict[TopicPartition, int] = {}
        self._paused: dict[TopicPartition, None] = {}

    def numbered(self, known: KnownSource) -> None:
        """Take over what the sidecars know of it together."""
        self.queues = known.queues
        self.gone = known.silent_ms >= GONE_MS
        self.blocks = known.blocks

    def adopt(self, early: DrawnSource) -> None:
        """Take over partitions that were taken before their broker was known here."""
        self._fetching.update(early._fetching)
        self._paused.update(early._paused)

    def knows(self, queue: int) -> bool:
        """Whether this queue has a number. One of a topic of retries may be beyond the topic's."""
        return queue < len(self.blocks) * BLOCK

    def partition(self, queue: int) -> TopicPartition:
        """The partition of a queue that has a number."""
        return TopicPartition(self.topic, number_of(self.blocks, queue))

    def queue_of(self, partition: TopicPartition) -> int:
        """The broker's number of the queue, or of that from which copies came."""
        at = self.blocks.index(block_of(partition.partition, GENERATION))
        return at * BLOCK + partition.partition % BLOCK

    def place(self, taken: Taken) -> AssignedPlace:
        """The message's position, where its queue has a number."""
        number = number_of(self.blocks, taken.queue)
        return AssignedPlace(number + (COPIES if taken.copied else 0), taken.offset)

    def assign(self, partitions: Sequence[TopicPartition]) -> tuple[TopicPartition, ...]:
        """Note these partitions; returns those that are new."""
        found = tuple(tp for tp in partitions if tp not in self._assigned)
        self._assigned.update(dict.fromkeys(found))
        return found

    def may_draw(self) -> bool:
        """Whether every message that may come has an owner here, and there is room, also in
        partitions that the engine has added.
        """
        owned = self.queue is not None and all(tp in self._fetching for tp in self._assigned)
        return owned and not any(tp in self._fetching for tp in self._paused)

    def fetch(self, partition: TopicPartition, session: int) -> None:
        """Its messages may be received from now on."""
        self._fetching[partition] = session
        self.resume(partition)

    def stop(self, partition: TopicPartition) -> bool:
        """Its messages may not be received any more; False if they might not before."""
        return self._fetching.pop(partition, None) is not None

    def pause(self, partition: TopicPartition) -> None:
        """Draw nothing: the protocol knows no pause of a partition."""
        self._paused[partition] = None

    def resume(self, partition: TopicPartition) -> None:
        """There is room again."""
        self._paused.pop(partition, None)
        self.changed.set()

    # --- what readiness says of it

    def routed(self) -> list[Condition]:
        """The route was read. What is news: that it does not name the broker, or does again."""
        away = self.queue is None and not self.gone
        if away == self._away:
            return []
        self._away = away
        detail = (
            f"the route of topic {self.topic} names broker {self.broker} no more: it is away, or "
            "was removed"
        )
        return [Condition(self._code("route"), detail, cleared=not away, away=away)]

    def failed(self, code: str, detail: str) -> list[Condition]:
        """A question failed. What is news of it."""
        if detail == self._failure:
            return []
        self._failure = detail
        return [Condition(self._code("receive"), f"{code}: {detail}", away=True)]

    def works(self) -> list[Condition]:
        """A question was answered. What is news of it."""
        if not self._failure:
            return []
        over, self._failure = self._failure, ""
        return [Condition(self._code("receive"), over, cleared=True)]

    def _code(self, what: str) -> str:
        return f"rocketmq/{what}/{self.topic}/{self.broker}"

    async def drawable(self) -> None:
        """Wait until it may be drawn."""
        while not self.may_draw():
            self.changed.clear()
            await self.changed.wait()


class OwnNumbers:
    """`ackd.ports.SourceRegistry` of one process, where nobody else has to know the numbers."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._topics: dict[bytes, SourceNumbers] = {}

    async def __call__(
        self, topic_id: bytes, found: Sequence[tuple[str, int]]
    ) -> list[KnownSource]:
        """See the port."""
        now_ms = self._now_ms()
        topic = self._topics.setdefault(topic_id, SourceNumbers())
        topic.seen(found, (), now_ms)
        return [
            KnownSource(name, each.queues, max(now_ms - each.seen_ms, 0), tuple(each.blocks))
            for name, each in topic.known.items()
        ]
