"""Outboxes and acked keys through the simulated network."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

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
from ackd.ports import AssignedPlace, KnownAt, KnownSource, Placed, StoredAt
from tests.simulation.store import Observer, Work

Through = Callable[[Work[Any]], Awaitable[Any]]
Seen = Callable[[Any], None]


class SimOutboxes:
    """`ackd.ports.Outboxes` of one process. `observer`: sees what is accepted."""

    def __init__(
        self, call: Callable[[Work[Any], Seen | None], Awaitable[Any]], observer: Observer
    ) -> None:
        self._seen = call
        self._observer = observer

    async def _call(self, work: Work[Any]) -> Any:
        return await self._seen(work, None)

    async def enqueue(
        self, name: str, requests: Sequence[EnqueueRequest], bounds: Bounds
    ) -> list[EnqueueResult]:
        """Accept."""
        sent = list(requests)
        found: list[EnqueueResult] = await self._seen(
            lambda s: s.outboxes.enqueue(name, sent, bounds),
            lambda answers: self._observer.enqueued(sent, answers),
        )
        return found

    async def take(
        self,
        name: str,
        request: TakeRequest,
        most: int,
        bytes_max: int,
        have: Sequence[int] | None = None,
    ) -> TakeResult:
        """Take."""
        held = None if have is None else list(have)
        found: TakeResult = await self._call(
            lambda s: s.outboxes.take(name, request, most, bytes_max, held)
        )
        return found

    async def done(
        self,
        name: str,
        owner: str,
        term: int,
        lease_ms: int,
        sent: Sequence[SendResult],
        keep: ResultRetention,
    ) -> bool:
        """Confirm."""
        told = list(sent)
        found: bool = await self._call(
            lambda s: s.outboxes.done(name, owner, term, lease_ms, told, keep)
        )
        return found

    async def release(self, name: str, owner: str, term: int, unsent: Sequence[int]) -> bool:
        """Give back."""
        told = list(unsent)
        found: bool = await self._call(lambda s: s.outboxes.release(name, owner, term, told))
        return found

    async def status(self, name: str, number: int) -> MessageStatus:
        """Look."""
        found: MessageStatus = await self._call(lambda s: s.outboxes.status(name, number))
        return found

    async def again(self, name: str, number: int) -> bool:
        """Send again."""
        found: bool = await self._call(lambda s: s.outboxes.again(name, number))
        return found


class SimDedupKeys:
    """`ackd.ports.DedupKeys` of one process."""

    def __init__(self, call: Through) -> None:
        self._call = call

    async def seen(
        self,
        subscription: str,
        window_ms: int,
        ledgers: Sequence[tuple[bytes, int]],
        asks: Sequence[Ask],
    ) -> list[bool]:
        """Look."""
        places, keys = list(ledgers), list(asks)
        found: list[bool] = await self._call(
            lambda s: s.dedup_keys.seen(subscription, window_ms, places, keys)
        )
        return found

    async def remember(
        self, subscription: str, window_ms: int, most: int, entries: Sequence[DedupEntry]
    ) -> int:
        """Keep."""
        told = list(entries)
        found: int = await self._call(
            lambda s: s.dedup_keys.remember(subscription, window_ms, most, told)
        )
        return found


class SimPlaces:
    """`ackd.ports.Places` of one process."""

    def __init__(self, call: Through) -> None:
        self._call = call

    async def assign(
        self, subscription: str, topic_id: bytes, keep_ms: int, arrivals: Sequence[StoredAt]
    ) -> Placed:
        """Intern."""
        told = list(arrivals)
        found: Placed = await self._call(
            lambda s: s.places.assign(subscription, topic_id, keep_ms, told)
        )
        return found

    async def remember(
        self,
        subscription: str,
        topic_id: bytes,
        keep_ms: int,
        held: Sequence[tuple[bytes, AssignedPlace]],
    ) -> None:
        """Keep."""
        told = list(held)
        await self._call(lambda s: s.places.remember(subscription, topic_id, keep_ms, told))

    async def look_up(
        self,
        subscription: str,
        topic_id: bytes,
        keep_ms: int,
        clock: int,
        asked: Sequence[tuple[bytes, AssignedPlace]],
    ) -> KnownAt:
        """Look up."""
        told = list(asked)
        found: KnownAt = await self._call(
            lambda s: s.places.look_up(subscription, topic_id, keep_ms, clock, told)
        )
        return found

    async def sources(
        self, subscription: str, topic_id: bytes, found: Sequence[tuple[str, int]]
    ) -> list[KnownSource]:
        """Number."""
        told = list(found)
        known: list[KnownSource] = await self._call(
            lambda s: s.places.sources(subscription, topic_id, told)
        )
        return known
