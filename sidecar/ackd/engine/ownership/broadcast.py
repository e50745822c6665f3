"""Broadcast mode: every sidecar gets every message and has progress of its own.

To the engine each sidecar is a group with one member. Its names in the store, its retry topic and
its dead-letter topic carry its identity. It joins no group of the broker and commits nothing there:
`BroadcastConsumer` assigns all partitions to it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ackd.config.subscription import SubscriptionSettings
from ackd.core.dedup_window import Ask, DedupEntry
from ackd.core.ids import LedgerKey, TopicPartition
from ackd.core.rate_bucket import TokensTaken
from ackd.core.record.protocol import MessageTexts, Open, RecordCall, RecordReply, Snapshot
from ackd.engine.base.context import Context
from ackd.errors import BrokerError
from ackd.ports import (
    NOTHING_READY,
    Assigned,
    Broker,
    Clock,
    Committed,
    Condition,
    Consumer,
    ConsumerEvent,
    ConsumerSpec,
    DedupKeys,
    Members,
    Outboxes,
    Places,
    ReadyReport,
    Store,
    TopicInfo,
    TopicReplaced,
)

LOG = logging.getLogger("ackd.engine")

REFRESH_MS = 1_000
"""How often the consumer looks for new topics and partitions."""
RETRY_MS = 500
CONDITION = "topics"
NOWHERE = Committed(-1, "")


def is_broadcast(settings: SubscriptionSettings) -> bool:
    """Whether every sidecar gets every message."""
    return settings.mode == "broadcast"


def apart(
    name: str, settings: SubscriptionSettings, context: Context
) -> tuple[SubscriptionSettings, Context]:
    """Return settings and context of a subscription; in broadcast mode with group and store of its
    own.
    """
    if not is_broadcast(settings):
        return settings, context
    own = settings.broadcast_id or context.identity
    group = settings.group or name
    if not group.endswith(f"@{own}"):  # has it already when it is made again after its client died
        group = f"{group}@{own}"
    store = ScopedStore(context.store, own)
    return replace(settings, group=group), replace(context, store=store, identity=own)


def scope(settings: SubscriptionSettings, text: str, identity: str) -> str:
    """Return a name in the store; in broadcast mode with the sidecar's identity."""
    return f"{text}@{identity}" if is_broadcast(settings) else text


def open_consumer(broker: Broker, spec: ConsumerSpec, clock: Clock, *, broadcast: bool) -> Consumer:
    """Open a consumer that joins the group, or one that reads every partition."""
    if not broadcast:
        return broker.consumer(spec)
    reading = replace(spec, joins=False, static_id=None)
    return BroadcastConsumer(broker.consumer(reading), clock)


class BroadcastConsumer:
    """Implements `ackd.ports.Consumer` with a consumer that does not join a group."""

    def __init__(self, inner: Consumer, clock: Clock) -> None:
        self._inner = inner
        self._clock = clock
        self._look_ms = 0
        self._looked = False
        self._reported: dict[TopicPartition, None] = {}
        self._ids: dict[str, bytes] = {}
        self._away = False

    async def start(self) -> None:
        """Start to fetch; the first events assign all partitions."""
        await self._inner.start()
        self._look_ms = self._clock.monotonic_ms()

    async def also(self, topic: str) -> None:
        """Read one more topic; `events` looks for its partitions at once."""
        await self._inner.also(topic)
        self._look_ms = self._clock.monotonic_ms()

    async def events(self) -> list[ConsumerEvent]:
        """Return the broker's events, and assignments of new topics and partitions."""
        while True:
            left_ms = self._look_ms - self._clock.monotonic_ms()
            if left_ms <= 0:
                found = await self._look()
                if found:
                    return found
                continue
            try:
                # The wait may be cancelled at any time: `events` takes nothing before it answers.
                async with asyncio.timeout(min(left_ms, RETRY_MS) / 1000):
                    return await self._inner.events()
            except TimeoutError:
                pass

    async def _look(self) -> list[ConsumerEvent]:
        now_ms = self._clock.monotonic_ms()
        try:
            infos = await self._inner.topics()
        except BrokerError as error:
            self._look_ms = now_ms + RETRY_MS
            if self._away:
                return []
            self._away = True
            return [Condition(CONDITION, error.detail)]
        self._look_ms = now_ms + REFRESH_MS
        found: list[ConsumerEvent] = []
        if self._away:
            self._away = False
            found.append(Condition(CONDITION, "", cleared=True))
        for info in infos:
            before = self._ids.get(info.topic)
            self._ids[info.topic] = info.topic_id
            if before not in (None, info.topic_id):
                found.append(TopicReplaced(info.topic, info.topic_id))
        every = [TopicPartition(i.topic, number) for i in infos for number in range(i.partitions)]
        new = tuple(tp for tp in every if tp not in self._reported)
        if new or not self._looked:
            self._looked = True
            self._reported.update(dict.fromkeys(new))
            found.append(Assigned(new))
        return found

    def fetch_from(self, partition: TopicPartition, offset: int) -> int:
        return self._inner.fetch_from(partition, offset)

    def stop_fetch(self, partition: TopicPartition) -> None:
        self._inner.stop_fetch(partition)

    def pause(self, partition: TopicPartition) -> None:
        self._inner.pause(partition)

    def resume(self, partition: TopicPartition) -> None:
        self._inner.resume(partition)

    async def topics(self) -> list[TopicInfo]:
        return await self._inner.topics()

    async def committed(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, Committed]:
        """Return no positions: the broker knows nothing of this progress."""
        return dict.fromkeys(partitions, NOWHERE)

    async def commit(self, positions: Mapping[TopicPartition, Committed]) -> None:
        """Do nothing: the store alone keeps this progress, and has it already."""

    async def log_range(self, partition: TopicPartition) -> tuple[int, int]:
        return await self._inner.log_range(partition)

    async def offset_at(self, partition: TopicPartition, timestamp_ms: int) -> int:
        return await self._inner.offset_at(partition, timestamp_ms)

    async def close(self) -> None:
        await self._inner.close()


class ScopedStore:
    """Implements `ackd.ports.Store` so that a subscription has other members for each `identity`.

    Records differ by their keys already, and small values by their names; all other calls pass
    through.
    """

    def __init__(self, store: Store, identity: str) -> None:
        self._store = store
        self._identity = identity

    def _of(self, subscription: str) -> str:
        return f"{subscription}@{self._identity}"

    @property
    def run(self) -> str:
        return self._store.run

    async def start(self) -> None:
        await self._store.start()

    async def apply(self, calls: Sequence[RecordCall]) -> list[RecordReply]:
        return await self._store.apply(calls)

    async def open(self, request: Open) -> Snapshot:
        return await self._store.open(request)

    async def register(self, subscription: str, name: str) -> int:
        return await self._store.register(self._of(subscription), name)

    async def heartbeat(
        self,
        subscription: str,
        name: str,
        boot: int,
        owned: Sequence[str],
        note: str,
        ready: ReadyReport = NOTHING_READY,
    ) -> Members:
        return await self._store.heartbeat(self._of(subscription), name, boot, owned, note, ready)

    async def forget(self, subscription: str, name: str, boot: int) -> None:
        await self._store.forget(self._of(subscription), name, boot)

    async def set_live(self, subscription: str, expected: bytes, value: bytes) -> bytes:
        return await self._store.set_live(self._of(subscription), expected, value)

    async def take(
        self, subscription: str, wanted: int, rate_per_s: float, burst: int
    ) -> TokensTaken:
        """Take from this sidecar's own bucket: each sidecar has the whole rate."""
        return await self._store.take(self._of(subscription), wanted, rate_per_s, burst)

    async def texts(self, key: LedgerKey, offsets: Sequence[int]) -> list[MessageTexts | None]:
        return await self._store.texts(key, offsets)

    async def swap(self, name: str, expected: bytes | None, value: bytes) -> bytes | None:
        return await self._store.swap(name, expected, value)

    @property
    def outboxes(self) -> Outboxes:
        """Not scoped: outboxes belong to a broker."""
        return self._store.outboxes

    @property
    def dedup_keys(self) -> DedupKeys:
        """Scoped: a message that another sidecar has acked is not a repeat here (I1)."""
        return _ScopedKeys(self._store.dedup_keys, self._identity)

    @property
    def places(self) -> Places:
        """Not scoped: a broker that needs message-id aliases has no broadcast."""
        return self._store.places

    async def get(self, name: str) -> bytes | None:
        return await self._store.get(name)

    async def put(self, name: str, value: bytes, ttl_ms: int | None = None) -> None:
        await self._store.put(name, value, ttl_ms)

    async def put_new(self, name: str, value: bytes, ttl_ms: int | None = None) -> bytes | None:
        return await self._store.put_new(name, value, ttl_ms)

    async def delete(self, name: str) -> None:
        await self._store.delete(name)

    def conditions(self) -> list[Condition]:
        return self._store.conditions()

    async def close(self) -> None:
        """Do nothing: all subscriptions share the store, and the part that opened it closes it."""


class _ScopedKeys:
    """Implements `ackd.ports.DedupKeys` for one identity."""

    def __init__(self, keys: DedupKeys, identity: str) -> None:
        self._keys = keys
        self._identity = identity

    async def seen(
        self,
        subscription: str,
        window_ms: int,
        ledgers: Sequence[tuple[bytes, int]],
        asks: Sequence[Ask],
    ) -> list[bool]:
        return await self._keys.seen(f"{subscription}@{self._identity}", window_ms, ledgers, asks)

    async def remember(
        self, subscription: str, window_ms: int, most: int, entries: Sequence[DedupEntry]
    ) -> int:
        own = f"{subscription}@{self._identity}"
        return await self._keys.remember(own, window_ms, most, entries)
