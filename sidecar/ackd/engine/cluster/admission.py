"""Decide whether this sidecar may serve a subscription, by the store's layout."""

from __future__ import annotations

from collections.abc import Callable

from ackd.engine.base.context import Context
from ackd.engine.base.state import SubscriptionState
from ackd.engine.cluster.store_layout import LayoutInForce
from ackd.engine.partition.owned import OwnedPartitions
from ackd.errors import StoreLayoutError


class Admission:
    """Checks before a sidecar joins, and with every heartbeat."""

    def __init__(
        self,
        state: SubscriptionState,
        context: Context,
        partitions: OwnedPartitions,
        drop_all: Callable[[], None],
    ) -> None:
        self._state = state
        self._context = context
        self._partitions = partitions
        self._drop_all = drop_all
        self._layout = LayoutInForce(context.store, context.clock)

    async def enter(self) -> None:
        """Check before joining. Raises StoreLayoutError, StoreError."""
        state, identity = self._state, self._context.identity
        health = state.health
        try:
            await self._layout.look()
        except StoreLayoutError as error:
            health.refusal = error
            # A heartbeat of boot 0 may have made an entry, which no other sidecar should count on.
            await self._context.store.forget(state.name, identity, 0)
            raise
        health.refusal = None
        self._layout.again()  # check again after the first heartbeat, when the others know of us

    async def stay(self) -> None:
        """Check after a heartbeat that the store has taken.

        `Health.refusal` says that this sidecar must leave; when the subscription starts again it
        calls `enter`. Raises StoreError.
        """
        state = self._state
        try:
            if self._layout.due and await self._layout.look():
                for partition in self._partitions.all():
                    partition.reload()
        except StoreLayoutError as error:
            state.health.refusal = error
            self._drop_all()
