"""Test support: the operator's part of the engine in memory."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping

from ackd.api.control import Cancel, CancelTo, Pause, Scope
from ackd.api.messages import SubscriptionView
from ackd.config.live import overlaid
from ackd.config.subscription import SubscriptionSettings
from ackd.errors import NotInFlightError
from ackd.telemetry.caller import CALLER


class MemoryControl(ABC):
    """Remembers what was asked for."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, dict[str, object], bool, bool]] = []
        self.callers: list[Mapping[str, str] | None] = []
        self.cancellable: set[str] = set()
        self._pauses: dict[tuple[str, Scope], Pause] = {}

    @abstractmethod
    def subscription(self, name: str) -> SubscriptionView:
        """Raises UnknownSubscriptionError."""

    def pauses_of(self, name: str) -> list[Pause]:
        """Those of one subscription."""
        return [pause for (of, _), pause in self._pauses.items() if of == name]

    async def pause(
        self, name: str, scope: Scope, reason: str, for_ms: int | None
    ) -> SubscriptionView:
        """Remembers it; there is one process only."""
        self.callers.append(CALLER.get())
        now_ms = time.time_ns() // 1_000_000
        self._pauses[name, scope] = Pause(scope, reason, now_ms, for_ms and now_ms + for_ms)
        return self.subscription(name)

    async def resume(self, name: str, scope: Scope) -> SubscriptionView:
        """Forgets it."""
        self.callers.append(CALLER.get())
        self._pauses.pop((name, scope), None)
        return self.subscription(name)

    async def cancel(self, name: str, message: str, then: CancelTo, reason: str) -> Cancel:
        """Knows of no message in flight but of those that a test has named."""
        self.subscription(name)
        if message not in self.cancellable:
            raise NotInFlightError
        done = "acked" if then == "ack" else "dead"
        return Cancel(message, then, reason, time.time_ns() // 1_000_000, done)

    async def configure(
        self, name: str, changes: Mapping[str, object], *, open_leases: bool, force: bool
    ) -> SubscriptionView:
        """Judges changes as the real one does."""
        self.callers.append(CALLER.get())
        self.subscription(name)
        overlaid(SubscriptionSettings(topics=(name,)), changes)
        self.changes.append((name, dict(changes), open_leases, force))
        return self.subscription(name)
