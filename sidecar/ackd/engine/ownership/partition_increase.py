"""Partition expansion: new partitions of a topic wait until the older ones are drained (R19, I6).

With more partitions a key may move to another one, where its new messages would not wait for the
old ones. With `on_partition_increase = "drain"` the first sidecar that opens a new partition notes
where the older ones end, and no sidecar takes a new one before everything below those ends is
finished. The note is in the store, so it survives restarts and serves every sidecar.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ackd.core.ids import LedgerKey, TopicPartition
from ackd.core.record.protocol import CallStatus, Open
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.errors import StoreError
from ackd.ports import Store, TopicInfo

TRIES = 10
STEPS_MAX = 100
"""Most expansions of a topic that are waited for at once; the oldest are forgotten."""


class IncreaseStep(msgspec.Struct, frozen=True):
    """One expansion: before it there were `len(ends)` partitions, with these ends."""

    ends: tuple[int, ...]


class SeenPartitions(msgspec.Struct, frozen=True):
    """A topic: how many partitions were seen, and the expansions that are not drained."""

    partitions: int
    steps: tuple[IncreaseStep, ...] = ()


_decode = msgspec.json.Decoder(SeenPartitions).decode


class PartitionIncrease:
    """Expansions of one subscription's topics. `own`: its retry topic."""

    def __init__(self, state: SubscriptionState, store: Store, own: str) -> None:
        settings = state.settings
        self._name = state.scope
        self._own = own
        self._consumer = state.consumer
        self._store = store
        # A broker with individual acks tells no ends of its logs, keeps the order of keys itself,
        # and its partitions are no numbers in a row.
        ends = state.broker_side_acks is None
        self._wanted = (
            ends and settings.on_partition_increase == "drain" and settings.ordering == "key"
        )
        self.waiting: dict[TopicPartition, None] = {}

    async def holds(self, tp: TopicPartition, info: TopicInfo, key: LedgerKey) -> bool:
        """Whether this partition must wait for older ones. Raises StoreError, BrokerError.

        `key`: of its record.
        """
        if not self._wanted or tp.topic == self._own:
            return False
        at = f"growth:{self._name}:{info.topic_id.hex()}"
        known_before = await self._seen(at, tp, info)
        left = [step for step in known_before.steps if not await self._over(step, info, key)]
        if len(left) < len(known_before.steps):
            await self._keep(at, known_before, SeenPartitions(known_before.partitions, tuple(left)))
        held = any(tp.partition >= len(step.ends) for step in left)
        if held:
            self.waiting[tp] = None
        else:
            self.waiting.pop(tp, None)
        return held

    async def _seen(self, at: str, tp: TopicPartition, info: TopicInfo) -> SeenPartitions:
        """Return the topic's note; add an expansion that is seen for the first time."""
        count = max(info.partitions, tp.partition + 1)
        first = SeenPartitions(count)
        there = await self._store.put_new(at, msgspec.json.encode(first))
        for _ in range(TRIES):
            known = first if there is None else _decode(there)
            if count <= known.partitions:
                return known
            older = [TopicPartition(tp.topic, number) for number in range(known.partitions)]
            ends = tuple([(await self._consumer.log_range(each))[1] for each in older])
            new = SeenPartitions(count, (*known.steps, IncreaseStep(ends))[-STEPS_MAX:])
            data = msgspec.json.encode(new)
            there = await self._store.swap(at, there, data)
            if there == data:
                return new
        raise StoreError(f"{tp.topic}: other sidecars keep changing the note of its expansion")

    async def _keep(self, at: str, before: SeenPartitions, after: SeenPartitions) -> None:
        """Store the note, unless another sidecar changed it first; then the next call finds out
        again.
        """
        encode = msgspec.json.encode
        await self._store.swap(at, encode(before), encode(after))

    async def _over(self, step: IncreaseStep, info: TopicInfo, key: LedgerKey) -> bool:
        """Whether all below the ends is finished, and no key of those partitions is blocked."""
        for number, end in enumerate(step.ends):
            if not await self._through(key._replace(partition=number), info, end):
                return False
        return True

    async def _through(self, key: LedgerKey, info: TopicInfo, end: int) -> bool:
        look = Open(key, "", rollback_epoch=0, incarnation=0, grace_ms=0, peek=True)
        snapshot = await self._store.open(look)
        if snapshot.verdict is CallStatus.ABSENT:
            first, _ = await self._consumer.log_range(TopicPartition(info.topic, key.partition))
            return end <= first
        if snapshot.verdict is not CallStatus.OK:
            return False
        return snapshot.watermark >= end and not snapshot.blocked

    def words(self, partitions: Sequence[TopicPartition]) -> str:
        """Describe the wait for people; empty when none of these partitions waits."""
        count = sum(each in self.waiting for each in partitions)
        if not count:
            return ""
        return (
            f"{count} new partitions wait until the older ones are drained (on_partition_increase)"
        )
