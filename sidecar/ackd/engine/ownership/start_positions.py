"""Decide where a new group starts: once, kept in the store, and never resolved again (rule R6)."""

from __future__ import annotations

import msgspec

from ackd.config.subscription import SubscriptionSettings
from ackd.core.ids import TopicPartition
from ackd.ports import Consumer, Store, TopicInfo


class StartPositions:
    """Resolves latest, earliest or a timestamp for all partitions when the group is created.

    A partition or topic that appears later starts at its beginning, because its messages are new to
    the group. `own`, the group's retry topic, always starts there.
    """

    def __init__(
        self,
        name: str,
        settings: SubscriptionSettings,
        consumer: Consumer,
        store: Store,
        *,
        own: str,
    ) -> None:
        self._own = own
        self._key = f"start:{name}"
        self._settings = settings
        self._consumer = consumer
        self._store = store
        self._known: dict[str, int] | None = None

    async def of(self, tp: TopicPartition, info: TopicInfo) -> int:
        """Return the start of a partition without a record. Raises StoreError, BrokerError."""
        if self._known is None:
            self._known = await self._load()
        known = self._known.get(_field(info.topic_id, tp.partition))
        if known is not None:
            return known
        return (await self._consumer.log_range(tp))[0]

    async def _load(self) -> dict[str, int]:
        stored = await self._store.get(self._key)
        if stored is None:
            resolved = msgspec.json.encode(await self._resolve())
            stored = await self._store.put_new(self._key, resolved) or resolved
        return msgspec.json.decode(stored, type=dict[str, int])

    async def _resolve(self) -> dict[str, int]:
        """Resolve every partition's start. A group that has commits is not new."""
        fields = {
            TopicPartition(info.topic, number): _field(info.topic_id, number)
            for info in await self._consumer.topics()
            if info.topic != self._own
            for number in range(info.partitions)
        }
        committed = await self._consumer.committed(list(fields))
        if any(each.offset >= 0 for each in committed.values()):
            return {}
        return {field: await self._position(tp) for tp, field in fields.items()}

    async def _position(self, tp: TopicPartition) -> int:
        settings = self._settings
        if settings.start == "timestamp" and settings.start_timestamp_ms is not None:
            return await self._consumer.offset_at(tp, settings.start_timestamp_ms)
        first, end = await self._consumer.log_range(tp)
        return end if settings.start == "latest" else first


def _field(topic_id: bytes, partition: int) -> str:
    return f"{topic_id.hex()}:{partition}"
