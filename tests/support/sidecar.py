"""A whole sidecar in this process without its ports: the engine, a store in memory, a local queue.

The queue is copied from one that is made once for a run, so that a sidecar starts in some 30 ms.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import time_ns

from ackd.api.messages import InFlight, PartitionLag
from ackd.config.schema import BrokerSettings, ServerSettings, Settings, StoreSettings
from ackd.config.subscription import SubscriptionSettings
from ackd.core.ids import LedgerKey, TopicPartition
from ackd.core.record.protocol import MessageTexts, Open, RecordCall, RecordReply, Snapshot
from ackd.engine.runtime import Runtime
from ackd.errors import StoreError
from ackd.ports import (
    NOTHING_READY,
    Broker,
    ConsumerSpec,
    EndReached,
    Fetched,
    Members,
    ReadyReport,
    Record,
)
from ackd.store.flusher import PartlyError
from ackd.store.memory import MemoryStore
from ackd.telemetry.metrics import Metrics
from ackd_adapters.local import LocalOptions, adapter
from tests.support.wait import wait_until_async

BROKER = "main"
STEP_S = 0.002
_SHM = Path("/dev/shm")  # noqa: S108 - below it, folders of random names are made
MEMORY = _SHM if _SHM.is_dir() else None
"""Where queues lie that end with their test: it waits for no disk."""


@dataclass
class StoreClock:
    """The time of the store: this machine's, until a test stops it."""

    stopped_us: int | None = None

    def now_us(self) -> int:
        """Unix time in microseconds."""
        return time_ns() // 1_000 if self.stopped_us is None else self.stopped_us

    def stop(self, now_ms: int) -> None:
        """From here on it is that late, and stays so."""
        self.stopped_us = now_ms * 1_000


class BreakableStore(MemoryStore):
    """A store in memory that a test takes away, as a whole or for some subscriptions."""

    def __init__(self, clock: StoreClock) -> None:
        super().__init__(now_us=clock.now_us)
        self.away = False
        self.away_for: frozenset[str] = frozenset()

    def _check(self, subscription: str = "") -> None:
        if self.away or subscription in self.away_for:
            raise StoreError

    async def apply(self, calls: Sequence[RecordCall]) -> list[RecordReply]:
        """Answer as several servers do of which some are away."""
        self._check()
        answers = [self._answer(call) for call in calls]
        replies = [each for each in answers if isinstance(each, RecordReply)]
        if len(replies) < len(answers):
            raise PartlyError(answers)
        return replies

    def _answer(self, call: RecordCall) -> RecordReply | StoreError:
        if call.key.subscription in self.away_for:
            return StoreError()
        return self._apply(call)

    async def open(self, request: Open) -> Snapshot:
        """Refuse while away."""
        self._check(request.key.subscription)
        return await super().open(request)

    async def heartbeat(
        self,
        subscription: str,
        name: str,
        boot: int,
        owned: Sequence[str],
        note: str,
        ready: ReadyReport = NOTHING_READY,
    ) -> Members:
        """Refuse while away."""
        self._check(subscription)
        return await super().heartbeat(subscription, name, boot, owned, note, ready)

    async def texts(self, key: LedgerKey, offsets: Sequence[int]) -> list[MessageTexts | None]:
        """Refuse while away."""
        self._check(key.subscription)
        return await super().texts(key, offsets)

    async def get(self, name: str) -> bytes | None:
        """Refuse while away."""
        self._check()
        return await super().get(name)

    async def put(self, name: str, value: bytes, ttl_ms: int | None = None) -> None:
        """Refuse while away."""
        self._check()
        await super().put(name, value, ttl_ms)


async def make_queue(folder: Path, topics: Sequence[str]) -> None:
    """A queue with these topics, each of one partition and read by a group of its name."""
    broker = adapter.open(BROKER, LocalOptions(path=folder, partitions=1))
    await broker.start()
    for topic in topics:
        for name in (topic, broker.retry_topic(topic), broker.dead_letter_topic(topic)):
            await broker.ensure_topic(name, {})
    await broker.close()


@dataclass
class Sidecar:
    """A sidecar, and what a test sees of it beside its answers. `store` can be taken away."""

    runtime: Runtime
    store: BreakableStore
    broker: Broker
    clock: StoreClock
    metrics: Metrics
    topics: dict[str, int] = field(default_factory=dict)

    @classmethod
    def make(
        cls,
        folder: Path,
        queue: Path,
        subscriptions: dict[str, SubscriptionSettings],
        server: ServerSettings,
        runtime: type[Runtime] = Runtime,
    ) -> Sidecar:
        """Not started yet. `queue`: what `make_queue` has made; it is copied."""
        shutil.copytree(queue, folder / "queue")
        options = LocalOptions(
            path=folder / "queue", partitions=1, sync="normal", auto_create=False
        )
        broker, clock, metrics = adapter.open(BROKER, options), StoreClock(), Metrics()
        store = BreakableStore(clock)
        settings = Settings(
            identity="me",
            state_dir=folder / "state",
            server=server,
            store=StoreSettings(url="memory"),
            brokers={BROKER: BrokerSettings(adapter="local", options=options)},
            subscriptions=subscriptions,
        )
        made = runtime(settings, store=store, brokers={BROKER: broker}, metrics=metrics)
        return cls(made, store, broker, clock, metrics)

    async def start(self) -> None:
        """Start, and wait until every subscription has its partition."""
        await self.runtime.start()
        async with asyncio.timeout(60):
            while not self._running():  # noqa: ASYNC110 - of conditions nobody tells, and bounded
                await asyncio.sleep(STEP_S)

    def _running(self) -> bool:
        views = self.runtime.subscriptions()
        return all(reason.ok for reason in self.runtime.readiness()) and all(
            view.state == "running" for view in views
        )

    # --- what has become of messages

    async def published(self, topic: str) -> list[Record]:
        """Every message of the topic's partition, as the broker has it."""
        spec = ConsumerSpec(group="", topics=(topic,), client_id="look", joins=False)
        consumer, place = self.broker.consumer(spec), TopicPartition(topic, 0)
        await consumer.start()
        try:
            first, end = await consumer.log_range(place)
            found: list[Record] = []
            if first == end:
                return found
            consumer.fetch_from(place, first)
            while not found or found[-1].offset < end - 1:
                for event in await consumer.events():
                    if isinstance(event, Fetched):
                        found += event.records
                    elif isinstance(event, EndReached) and event.offset >= end:
                        return found
            return found
        finally:
            await consumer.close()

    async def fetched(self, subscription: str) -> None:
        """Wait until it knows every message that is in its topics."""
        consumer = self.runtime._subscriptions[subscription].state.consumer
        owned = self.runtime._subscriptions[subscription].partitions.owned

        async def there() -> bool:
            ends = {tp: (await consumer.log_range(tp))[1] for tp in owned}
            return all(owned[tp].ledger.intake.known_end() >= end for tp, end in ends.items())

        await wait_until_async(there, "everything to be fetched", interval_s=STEP_S)

    async def states(self, subscription: str) -> list[str]:
        """Of the messages that were handed out and are not finished, the oldest first."""
        found: list[InFlight] = await self.runtime.in_flight(subscription, 0, 1_000)
        return [each.state for each in sorted(found, key=lambda each: each.id)]

    async def progress(self, subscription: str) -> PartitionLag:
        """Of the partition of its topic."""
        rows = await self.runtime.lag(subscription)
        [row] = [row for row in rows if row.topic == subscription]
        return row

    def waiters(self, subscription: str) -> int:
        """Receives that wait now."""
        return self.runtime._subscriptions[subscription].dispatcher.waiters()

    def receives(self, subscription: str, outcome: str) -> int:
        """Receives that ended so."""
        labels = {"subscription": subscription, "outcome": outcome}
        found = self.metrics.registry.get_sample_value("ackd_receives_total", labels)
        return int(found or 0)
