"""Reads dead letters and starts operations on them (`ackd.api.dead_letters.DeadLetterApi`)."""

from __future__ import annotations

from collections.abc import Mapping

from ackd.api.dead_letters import DeadLetter, DeadPage, DeadRequest, DryRun, OperationView
from ackd.engine.operations.archive import Archive
from ackd.engine.operations.subscription_dead_letters import SubscriptionDeadLetters
from ackd.engine.retry.dead_letter_reader import read_id
from ackd.errors import PressureError
from ackd.ports import Clock, Store

READERS_MAX = 4
"""Most concurrent readers of one sidecar: each request opens one at the broker."""


class DeadLetters:
    """Implements `DeadLetterApi`. The mapping raises UnknownSubscriptionError."""

    def __init__(
        self, subscriptions: Mapping[str, SubscriptionDeadLetters], store: Store, clock: Clock
    ) -> None:
        self._subscriptions = subscriptions
        self._archive = Archive(store, clock)
        self._readers = 0

    # --- looking

    async def page(self, name: str, cursor: str | None, limit: int) -> DeadPage:
        subscription = self._subscriptions[name]
        partition, offset = (0, 0) if cursor is None else read_id(cursor)
        async with self._reader():
            return await subscription.page(partition, offset, limit)

    async def peek(self, name: str, dead_id: str) -> DeadLetter:
        subscription = self._subscriptions[name]
        read_id(dead_id)
        async with self._reader():
            return await subscription.peek(dead_id)

    # --- operations

    async def begin(self, name: str, request: DeadRequest) -> DryRun | OperationView:
        subscription = self._subscriptions[name]
        subscription.check(request)
        async with self._reader():
            found = await subscription.look(request)
        return found if isinstance(found, DryRun) else await subscription.begin(request, found)

    async def operations(self, name: str | None) -> list[OperationView]:
        names = list(self._subscriptions) if name is None else [name]
        found = [view for each in names for view in await self._subscriptions[each].operations()]
        return sorted(found, key=lambda view: (-view.created_ms, view.id))

    async def operation(self, operation_id: str) -> OperationView:
        return await self._archive.view(operation_id)

    async def cancel(self, operation_id: str) -> OperationView:
        await self._archive.read(operation_id)
        await self._archive.cancel(operation_id)
        return await self._archive.view(operation_id)

    # ---

    def _reader(self) -> _ScanPlace:
        return _ScanPlace(self)

    def enter(self) -> None:
        """Count one more reader. Raises PressureError when there are too many."""
        if self._readers >= READERS_MAX:
            raise PressureError("too many look at dead letters at once")
        self._readers += 1

    def leave(self) -> None:
        self._readers -= 1


class _ScanPlace:
    """Counts as one reader while it is entered."""

    def __init__(self, of: DeadLetters) -> None:
        self._of = of

    async def __aenter__(self) -> None:
        self._of.enter()

    async def __aexit__(self, *_: object) -> None:
        self._of.leave()
