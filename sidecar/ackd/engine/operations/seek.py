"""Shows a group's progress and starts seeks (`ackd.api.progress.ProgressApi`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ackd.api.dead_letters import OperationView
from ackd.api.progress import ProgressExport, SeekPlan, SeekRequest, SeekTo
from ackd.engine.operations.subscription_seeks import SeekPlace, SubscriptionSeeks, plan
from ackd.errors import PressureError

LOOKS_MAX = 2
"""Most exports and dry runs at a time: each reads the whole progress of a group."""


class Seeks:
    """Implements `ProgressApi`. The mapping raises UnknownSubscriptionError."""

    def __init__(self, subscriptions: Mapping[str, SubscriptionSeeks]) -> None:
        self._subscriptions = subscriptions
        self._looking = 0

    async def export(self, name: str) -> ProgressExport:
        subscription, all_of_it = self._subscriptions[name], SeekRequest(SeekTo.EARLIEST)
        subscription.check_possible(all_of_it)
        places = await self._look(subscription, all_of_it)
        return subscription.export(places)

    async def seek(self, name: str, request: SeekRequest) -> SeekPlan | OperationView:
        subscription = self._subscriptions[name]
        subscription.check_possible(request)
        if not request.dry_run:
            await subscription.check_paused()
        places = await self._look(subscription, request)
        if request.dry_run:
            return plan(places, request)
        return await subscription.start(request, places)

    async def _look(
        self, subscription: SubscriptionSeeks, request: SeekRequest
    ) -> Sequence[SeekPlace]:
        """Read the requested partitions, and where each would go. Raises PressureError."""
        if self._looking >= LOOKS_MAX:
            raise PressureError("too many look at progress at once")
        self._looking += 1
        try:
            return await subscription.places(request)
        finally:
            self._looking -= 1
