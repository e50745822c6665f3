"""What the store keeps for publishing and deduplication: outboxes by broker, keys by subscription.

Every method raises StoreError if the store decided nothing, StoreUnknownError if it may have
applied the call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ackd.core.dedup_window import Ask, DedupEntry
from ackd.core.outbox import (
    Bounds,
    EnqueueRequest,
    EnqueueResult,
    MessageStatus,
    ResultRetention,
    SendResult,
    TakeRequest,
    TakeResult,
)


class Outboxes(Protocol):
    """Outboxes by the name of their broker; see `ackd.core.outbox`."""

    async def enqueue(
        self, name: str, requests: Sequence[EnqueueRequest], bounds: Bounds
    ) -> list[EnqueueResult]:
        """Accept requests, each as a whole or not at all. They are durable when this returns."""

    async def take(
        self,
        name: str,
        request: TakeRequest,
        most: int,
        bytes_max: int,
        have: Sequence[int] | None = None,
    ) -> TakeResult:
        """Take or renew the lease and take due messages. `most` 0: take no messages."""

    async def done(
        self,
        name: str,
        owner: str,
        term: int,
        lease_ms: int,
        sent: Sequence[SendResult],
        keep: ResultRetention,
    ) -> bool:
        """Store outcomes of messages. False: another sidecar has the lease. May be repeated."""

    async def release(self, name: str, owner: str, term: int, unsent: Sequence[int]) -> bool:
        """Give the lease back. `unsent`: messages that the holder took and certainly did not
        send.
        """

    async def status(self, name: str, number: int) -> MessageStatus:
        """Read the state of a message."""

    async def again(self, name: str, number: int) -> bool:
        """Send a failed message again. False: it has not failed."""


class DedupKeys(Protocol):
    """Deduplication keys that were acked, by subscription; see `ackd.core.dedup_window`."""

    async def seen(
        self,
        subscription: str,
        window_ms: int,
        ledgers: Sequence[tuple[bytes, int]],
        asks: Sequence[Ask],
    ) -> list[bool]:
        """Tell for each key whether its message is a repeat."""

    async def remember(
        self, subscription: str, window_ms: int, most: int, entries: Sequence[DedupEntry]
    ) -> int:
        """Keep entries and return how many fitted."""
