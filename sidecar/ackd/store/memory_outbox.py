"""Outboxes and deduplication keys in memory: the rules of `ackd.core` behind the store's ports."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ackd.core.dedup_window import Ask, DedupEntry, DedupWindow
from ackd.core.outbox import (
    Bounds,
    EnqueueRequest,
    EnqueueResult,
    MessageStatus,
    Outbox,
    ResultRetention,
    SendResult,
    TakeRequest,
    TakeResult,
)


class MemoryOutboxes:
    """`ackd.ports.Outboxes`: one `ackd.core.outbox.Outbox` for each name."""

    def __init__(self, outboxes: dict[str, Outbox], now_us: Callable[[], int], run: str) -> None:
        self._outboxes = outboxes
        self._now_us = now_us
        self._run = run

    def _of(self, name: str) -> tuple[Outbox, int]:
        outbox = self._outboxes.setdefault(name, Outbox())
        outbox.decided_by(self._run)
        return outbox, self._now_us() // 1000

    async def enqueue(
        self, name: str, requests: Sequence[EnqueueRequest], bounds: Bounds
    ) -> list[EnqueueResult]:
        outbox, now_ms = self._of(name)
        return outbox.enqueue(requests, bounds, now_ms)

    async def take(
        self,
        name: str,
        request: TakeRequest,
        most: int,
        bytes_max: int,
        have: Sequence[int] | None = None,
    ) -> TakeResult:
        outbox, now_ms = self._of(name)
        return outbox.take(request, most, bytes_max, now_ms, have)

    async def done(
        self,
        name: str,
        owner: str,
        term: int,
        lease_ms: int,
        sent: Sequence[SendResult],
        keep: ResultRetention,
    ) -> bool:
        outbox, now_ms = self._of(name)
        return outbox.done(owner, term, lease_ms, sent, keep, now_ms)

    async def release(self, name: str, owner: str, term: int, unsent: Sequence[int]) -> bool:
        return self._of(name)[0].release(owner, term, unsent)

    async def status(self, name: str, number: int) -> MessageStatus:
        return self._of(name)[0].status(number)

    async def again(self, name: str, number: int) -> bool:
        outbox, now_ms = self._of(name)
        return outbox.again(number, now_ms)


class MemoryDedupKeys:
    """`ackd.ports.DedupKeys`: one `DedupWindow` for each subscription."""

    def __init__(self, seen: dict[str, DedupWindow], now_us: Callable[[], int]) -> None:
        self._seen = seen
        self._now_us = now_us

    def _of(self, name: str) -> tuple[DedupWindow, int]:
        return self._seen.setdefault(name, DedupWindow()), self._now_us() // 1000

    async def seen(
        self,
        subscription: str,
        window_ms: int,
        ledgers: Sequence[tuple[bytes, int]],
        asks: Sequence[Ask],
    ) -> list[bool]:
        seen, now_ms = self._of(subscription)
        return seen.look(window_ms, ledgers, asks, now_ms)

    async def remember(
        self, subscription: str, window_ms: int, most: int, entries: Sequence[DedupEntry]
    ) -> int:
        seen, now_ms = self._of(subscription)
        return seen.remember(window_ms, most, entries, now_ms)
