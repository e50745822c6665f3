"""Progress notes: the text of a worker's last extend, for the application that gets the message
next.

The settle writes a note into the record of its lease (`RecordCall.texts`): that of the message, or
that of its retry copy, which takes the message's note over when it claims. Each reply of the store
says whether its record has notes, so no sidecar looks for any where there are none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ackd.api.messages import Delivery
from ackd.core.ids import LedgerKey
from ackd.engine.base.context import Context
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.partition.owned import OwnedPartitions

NOTE_BYTES_MAX = 4096


class ProgressNotes:
    """Reads the notes of one subscription for the deliveries of this sidecar."""

    def __init__(
        self, state: SubscriptionState, context: Context, partitions: OwnedPartitions
    ) -> None:
        self._state = state
        self._context = context
        self._partitions = partitions

    async def attach(self, messages: Sequence[Delivery]) -> None:
        """Attach its note to each message that has one. Raises StoreError."""
        wanted: dict[LedgerKey, dict[int, Delivery]] = {}
        for message in messages:
            token = self._context.keys.open(message.lease)
            where = token.topic_id, token.partition
            partition = self._partitions.by_ledger.get(where)  # None: it was lost meanwhile
            if partition is None or partition.has_notes:
                key = LedgerKey(self._state.cluster, self._state.name, *where)
                wanted.setdefault(key, {})[token.offset] = message
        store = self._context.store
        asked = (store.texts(key, list(each)) for key, each in wanted.items())
        found = await asyncio.gather(*asked)
        for each, texts in zip(wanted.values(), found, strict=True):
            for message, text in zip(each.values(), texts, strict=True):
                if text is not None and text.note:
                    message.note = text.note.decode(errors="replace")
