"""Measure a store: how long calls take, how many operations they carry, when it is away."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ackd.core.ids import LedgerKey
from ackd.core.rate_bucket import TokensTaken
from ackd.core.record.protocol import MessageTexts, Open, RecordCall, RecordReply, Snapshot
from ackd.errors import StoreDataError, StoreError, StoreUnknownError
from ackd.ports import (
    NOTHING_READY,
    Condition,
    DedupKeys,
    Members,
    Outboxes,
    Places,
    ReadyReport,
    Store,
)
from ackd.telemetry.metrics import Metrics


# tidy: long-class methods=21 -- implements a port of 21 methods
class MeasuredStore:
    """Passes calls to another `ackd.ports.Store`, and measures them. That adds about a microsecond
    to a call.
    """

    def __init__(self, store: Store, metrics: Metrics) -> None:
        self._store = store
        self._metrics = metrics
        self._answers = False
        self.outages = 0
        self._last_run = ""
        self._seconds = metrics.store_call_seconds.at("apply").observe
        self._items = metrics.store_batch_items.at("apply").observe

    @property
    def up(self) -> bool:
        """Whether the store is connected and answered the last call."""
        return self._answers and bool(self._store.run)

    @property
    def run(self) -> str:
        return self._store.run

    async def start(self) -> None:
        with self._watch("start"):
            await self._store.start()

    async def apply(self, calls: Sequence[RecordCall]) -> list[RecordReply]:
        """Measure one flush without the context manager of the other calls: the hot path."""
        time = asyncio.get_running_loop().time
        start_s = time()
        try:
            replies = await self._store.apply(calls)
        except StoreError as error:
            self._failed("apply", error)
            raise
        finally:
            self._seconds(time() - start_s)
            items = 0
            for call in calls:
                items += len(call.ops)
            self._items(items)
        self._answers = True
        return replies

    async def open(self, request: Open) -> Snapshot:
        with self._watch("open"):
            return await self._store.open(request)

    async def register(self, subscription: str, name: str) -> int:
        with self._watch("register"):
            return await self._store.register(subscription, name)

    async def heartbeat(
        self,
        subscription: str,
        name: str,
        boot: int,
        owned: Sequence[str],
        note: str,
        ready: ReadyReport = NOTHING_READY,
    ) -> Members:
        with self._watch("heartbeat"):
            members = await self._store.heartbeat(subscription, name, boot, owned, note, ready)
        self._look_at_run()
        return members

    def _look_at_run(self) -> None:
        run = self._store.run
        if run and run != self._last_run:
            if self._last_run:
                self._metrics.store_run_changes.at().inc()
            self._last_run = run

    async def forget(self, subscription: str, name: str, boot: int) -> None:
        with self._watch("forget"):
            await self._store.forget(subscription, name, boot)

    async def set_live(self, subscription: str, expected: bytes, value: bytes) -> bytes:
        with self._watch("set_live"):
            return await self._store.set_live(subscription, expected, value)

    async def take(
        self, subscription: str, wanted: int, rate_per_s: float, burst: int
    ) -> TokensTaken:
        with self._watch("take"):
            return await self._store.take(subscription, wanted, rate_per_s, burst)

    async def texts(self, key: LedgerKey, offsets: Sequence[int]) -> list[MessageTexts | None]:
        with self._watch("texts"):
            return await self._store.texts(key, offsets)

    async def get(self, name: str) -> bytes | None:
        with self._watch("get"):
            return await self._store.get(name)

    async def put(self, name: str, value: bytes, ttl_ms: int | None = None) -> None:
        with self._watch("put"):
            await self._store.put(name, value, ttl_ms)

    async def swap(self, name: str, expected: bytes | None, value: bytes) -> bytes | None:
        with self._watch("swap"):
            return await self._store.swap(name, expected, value)

    async def put_new(self, name: str, value: bytes, ttl_ms: int | None = None) -> bytes | None:
        with self._watch("put_new"):
            return await self._store.put_new(name, value, ttl_ms)

    async def delete(self, name: str) -> None:
        with self._watch("delete"):
            await self._store.delete(name)

    @property
    def outboxes(self) -> Outboxes:
        return self._store.outboxes

    @property
    def dedup_keys(self) -> DedupKeys:
        return self._store.dedup_keys

    @property
    def places(self) -> Places:
        return self._store.places

    def conditions(self) -> list[Condition]:
        return self._store.conditions()

    async def close(self) -> None:
        self._answers = False
        await self._store.close()

    # --- what came of a call

    @contextmanager
    def _watch(self, call: str) -> Iterator[None]:
        time = asyncio.get_running_loop().time
        start_s = time()
        try:
            yield
        except StoreError as error:
            self._failed(call, error)
            raise
        else:
            self._answers = True
        finally:
            self._metrics.store_call_seconds.at(call).observe(time() - start_s)

    def _failed(self, call: str, error: StoreError) -> None:
        """Count a failure as an outage, unless the store answered that its data is bad."""
        if isinstance(error, StoreUnknownError):
            self._metrics.store_unknown.at(call).inc()
        if not isinstance(error, StoreDataError):
            if self._answers:
                self.outages += 1
                self._metrics.store_outages.at().inc()
            self._answers = False
