"""Outboxes and acked keys in memory: the reference of `ackd.core` under the store's contract."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ackd.core.dedup_window import Ask, DedupWindow, SeenEntry
from ackd.core.outbox import (
    Asking,
    Bounds,
    Keep,
    Look,
    Outbox,
    Post,
    Posted,
    SendResult,
    TakeResult,
)


class MemoryOutboxes:
    """`ackd.ports.Outboxes` on a dictionary."""

    def __init__(self, outboxes: dict[str, Outbox], now_us: Callable[[], int], run: str) -> None:
        self._outboxes = outboxes
        self._now_us = now_us
        self._run = run

    def _of(self, name: str) -> tuple[Outbox, int]:
        outbox = self._outboxes.setdefault(name, Outbox())
        outbox.decided_by(self._run)
        return outbox, self._now_us() // 1000

    async def post(self, name: str, posts: Sequence[Post], bounds: Bounds) -> list[Posted]:
        outbox, now_ms = self._of(name)
        return outbox.put(posts, bounds, now_ms)

    async def take(
        self,
        name: str,
        asking: Asking,
        most: int,
        bytes_max: int,
        have: Sequence[int] | None = None,
    ) -> TakeResult:
        outbox, now_ms = self._of(name)
        return outbox.take(asking, most, bytes_max, now_ms, have)

    async def done(
        self,
        name: str,
        owner: str,
        term: int,
        lease_ms: int,
        sent: Sequence[SendResult],
        keep: Keep,
    ) -> bool:
        outbox, now_ms = self._of(name)
        return outbox.done(owner, term, lease_ms, sent, keep, now_ms)

    async def release(self, name: str, owner: str, term: int, unsent: Sequence[int]) -> bool:
        return self._of(name)[0].release(owner, term, unsent)

    async def look(self, name: str, number: int) -> Look:
        return self._of(name)[0].look(number)

    async def again(self, name: str, number: int) -> bool:
        outbox, now_ms = self._of(name)
        return outbox.again(number, now_ms)


class MemorySeenKeys:
    """`ackd.ports.SeenKeys` on a dictionary."""

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
        self, subscription: str, window_ms: int, most: int, entries: Sequence[SeenEntry]
    ) -> int:
        seen, now_ms = self._of(subscription)
        return seen.remember(window_ms, most, entries, now_ms)
