"""What the store keeps for publishing and for repeats: outboxes by broker, keys by subscription.

Every method raises what `Store` says: StoreError when nothing was decided, StoreUnknownError when
the call may have been applied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ackd.core.dedup_window import Ask, SeenEntry
from ackd.core.outbox import Asking, Bounds, Keep, Look, Post, Posted, SendResult, TakeResult


class Outboxes(Protocol):
    """Outboxes by the name of their broker; see `ackd.core.outbox`."""

    async def post(self, name: str, posts: Sequence[Post], bounds: Bounds) -> list[Posted]:
        """Accept requests, each as a whole or not at all; durable when this returns."""

    async def take(
        self,
        name: str,
        asking: Asking,
        most: int,
        bytes_max: int,
        have: Sequence[int] | None = None,
    ) -> TakeResult:
        """Take or keep the lease, and due messages; `most` 0 only keeps it, or looks."""

    async def done(
        self,
        name: str,
        owner: str,
        term: int,
        lease_ms: int,
        sent: Sequence[SendResult],
        keep: Keep,
    ) -> bool:
        """Report results of messages; False: another sidecar has the lease. May be repeated."""

    async def release(self, name: str, owner: str, term: int, unsent: Sequence[int]) -> bool:
        """Give the lease back; `unsent`: taken and surely not sent."""

    async def look(self, name: str, number: int) -> Look:
        """Read a message's state."""

    async def again(self, name: str, number: int) -> bool:
        """Send a failed message again; False: it is none."""


class SeenKeys(Protocol):
    """Deduplication keys that were acked, by subscription; see `ackd.core.dedup_window`."""

    async def seen(
        self,
        subscription: str,
        window_ms: int,
        ledgers: Sequence[tuple[bytes, int]],
        asks: Sequence[Ask],
    ) -> list[bool]:
        """Which of these are repeats."""

    async def remember(
        self, subscription: str, window_ms: int, most: int, entries: Sequence[SeenEntry]
    ) -> int:
        """Keep entries; returns how many there was room for."""
