"""Whether this sidecar may serve a subscription: the store's layout, and what the others have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ackd.engine.base.context import Context
from ackd.engine.cluster.members import SILENT_MS, Note, read_note
from ackd.engine.cluster.settings_agreement import Agreement, Drift
from ackd.engine.cluster.store_layout import LayoutInForce
from ackd.errors import SettingsDifferError, StoreLayoutError
from ackd.ports import Members

if TYPE_CHECKING:
    from ackd.engine.subscription import Subscription


class Admission:
    """Asked before a sidecar joins, and with every heartbeat."""

    def __init__(self, subscription: Subscription, context: Context, note: Note) -> None:
        self._subscription = subscription
        self._context = context
        self._layout = LayoutInForce(context.store, context.clock)
        settings = subscription.control.configured
        self.drift = Drift(subscription.name, note.settings)
        self._agreement = Agreement(context.store, context.identity, subscription.scope, settings)

    async def enter(self, members: Members) -> None:
        """Before joining; `members`: without this sidecar's own word of now.

        Raises StoreLayoutError, SettingsDifferError, StoreError.
        """
        subscription, identity = self._subscription, self._context.identity
        health = subscription.health
        notes = [
            (each.name, read_note(each.note))
            for each in members.members
            if each.name != identity and each.silent_ms < SILENT_MS
        ]
        self.drift.look(
            ((name, note.settings) for name, note in notes if not note.left),
            subscription.control.live.settings,
        )
        try:
            await self._layout.look()
            await self._agreement.enter(self.drift)
        except (StoreLayoutError, SettingsDifferError) as error:
            health.refusal = error
            # Who asks without a boot number may have made an entry; nobody should count on it.
            await self._context.store.forget(subscription.name, identity, 0)
            raise
        health.refusal = None
        self._layout.again()  # once more, when the first heartbeat has told the others

    async def stay(self) -> None:
        """With a heartbeat that the store has taken. `Health.refusal` says that this sidecar has to
        leave; when the subscription is started again it asks whether it may `enter`.

        Raises StoreError.
        """
        subscription = self._subscription
        try:
            if self._layout.due and await self._layout.look():
                for partition in list(subscription.owned.values()):
                    partition.reload()
            await self._agreement.stay(self.drift, subscription.control.live.settings)
        except (StoreLayoutError, SettingsDifferError) as error:
            subscription.health.refusal = error
            subscription.ownership.drop_all()
