"""The operator's part of the facade: looking at a subscription, and changing it while it runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from ackd.api.control import Cancel, CancelTo, Scope
from ackd.api.messages import Explanation, InFlight, PartitionLag, SubscriptionView
from ackd.engine.control.inspect import Inspector
from ackd.engine.subscription import Subscription


class Operating(ABC):
    """What `ackd.engine.runtime.Runtime` answers to operators."""

    @abstractmethod
    def _of(self, name: str) -> Subscription:
        """Raises UnknownSubscriptionError."""

    @abstractmethod
    def subscription(self, name: str) -> SubscriptionView:
        """One subscription as it is."""

    async def explain(self, name: str) -> Explanation:
        """What holds each partition's progress."""
        return self._inspector(name).explain()

    async def in_flight(self, name: str, older_ms: int, limit: int) -> list[InFlight]:
        """Leased and waiting messages, oldest first."""
        return self._inspector(name).in_flight(older_ms, limit)

    async def lag(self, name: str) -> list[PartitionLag]:
        """Progress per partition."""
        return await self._inspector(name).lag()

    def _inspector(self, name: str) -> Inspector:
        subscription = self._of(name)
        return Inspector(subscription, subscription.context)

    async def pause(
        self, name: str, scope: Scope, reason: str, for_ms: int | None
    ) -> SubscriptionView:
        """Hand out nothing."""
        await self._of(name).control.pause(scope, reason, for_ms)
        return self.subscription(name)

    async def resume(self, name: str, scope: Scope) -> SubscriptionView:
        """End a pause."""
        await self._of(name).control.resume(scope)
        return self.subscription(name)

    async def cancel(self, name: str, message: str, then: CancelTo, reason: str) -> Cancel:
        """End a message that is in flight."""
        return await self._of(name).cancels.cancel(message, then, reason)

    async def configure(
        self, name: str, changes: Mapping[str, object], *, open_leases: bool, force: bool
    ) -> SubscriptionView:
        """Change settings."""
        await self._of(name).control.configure(changes, open_leases=open_leases, force=force)
        return self.subscription(name)
