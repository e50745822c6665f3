"""Decide whether this sidecar may serve a subscription, by the store's layout and the others'
settings.
"""

from __future__ import annotations

from collections.abc import Callable

from ackd.engine.base.context import Context
from ackd.engine.base.state import SubscriptionState
from ackd.engine.cluster.members import SILENT_MS, read_note
from ackd.engine.cluster.membership import Membership
from ackd.engine.cluster.settings_agreement import SettingsAgreement
from ackd.engine.cluster.store_layout import LayoutInForce
from ackd.engine.partition.owned import OwnedPartitions
from ackd.errors import SettingsDifferError, StoreLayoutError
from ackd.ports import Members


class Admission:
    """Checks before a sidecar joins, and with every heartbeat."""

    def __init__(
        self,
        state: SubscriptionState,
        context: Context,
        membership: Membership,
        partitions: OwnedPartitions,
        drop_all: Callable[[], None],
    ) -> None:
        self._state = state
        self._context = context
        self._partitions = partitions
        self._drop_all = drop_all
        self._layout = LayoutInForce(context.store, context.clock)
        self._drift = membership.drift
        self._agreement = SettingsAgreement(
            context.store, context.identity, state.scope, state.configured
        )

    async def enter(self, members: Members) -> None:
        """Check before joining; `members`: without a heartbeat of this sidecar.

        Raises StoreLayoutError, SettingsDifferError, StoreError.
        """
        state, identity = self._state, self._context.identity
        health = state.health
        notes = [
            (each.name, read_note(each.note))
            for each in members.members
            if each.name != identity and each.silent_ms < SILENT_MS
        ]
        self._drift.look(
            ((name, note.settings) for name, note in notes if not note.left),
            state.live.settings,
        )
        try:
            await self._layout.look()
            await self._agreement.enter(self._drift)
        except (StoreLayoutError, SettingsDifferError) as error:
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
            await self._agreement.stay(self._drift, state.live.settings)
        except (StoreLayoutError, SettingsDifferError) as error:
            state.health.refusal = error
            self._drop_all()
