"""Fills what operators see of messages with what the store's records say of them: who holds a lease
that this sidecar did not grant, why the last delivery failed, all deliveries.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from ackd.api.messages import InFlight
from ackd.core.ids import LedgerKey
from ackd.core.ledger.entry import Entry, EntryStatus
from ackd.core.record.protocol import MessageTexts
from ackd.engine.base.context import Context
from ackd.engine.base.spill_file import Held, Stub
from ackd.engine.partition.histories import holder_of
from ackd.engine.partition.partition import Partition
from ackd.errors import StoreError
from ackd.ports import Record

LOG = logging.getLogger("ackd.engine")

READ_MAX = 1_000
"""Most messages of one record that one call reads."""


@dataclass(slots=True)
class Shown:
    """A message, and what is shown of it."""

    partition: Partition
    offset: int
    entry: Entry[Held]
    view: InFlight

    @property
    def waits_for_lease(self) -> bool:
        return self.entry.status is EntryStatus.CLAIMING

    def place(self) -> tuple[LedgerKey, int] | None:
        """Return the record, and the offset there, under which its texts are; None: nowhere. Of a
        copy that has not claimed yet, that is its origin record.
        """
        if not self.waits_for_lease:
            there = self.partition.key, self.offset
            return there if self.partition.has_texts else None
        copies, body = self.partition.copies, self.entry.body
        if isinstance(body, Stub):
            return copies.record_of(body.name)
        copy = copies.retry_copy(body) if isinstance(body, Record) else None
        if copy is None:
            return None
        origin = copy.origin_record
        name = self.partition.key.subscription
        key = LedgerKey(origin.cluster, name, origin.topic_id, origin.partition)
        return key, origin.offset


class Reported:
    """Reads the texts of messages."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def fill(self, shown: Sequence[Shown]) -> None:
        """Complete these views. Without the store they stay as this sidecar knows them."""
        try:
            found = await self.texts(shown)
        except StoreError as error:
            LOG.info(
                "ackd can't read who holds messages, and shows what it knows: %s", error.detail
            )
            found = [None] * len(shown)
        for each, texts in zip(shown, found, strict=True):
            _complete(each, texts)

    async def texts(self, shown: Sequence[Shown]) -> list[MessageTexts | None]:
        """Return the texts of each of these messages. Raises StoreError."""
        places = [each.place() for each in shown]
        wanted: dict[LedgerKey, list[int]] = {}
        for place in places:
            if place is not None:
                wanted.setdefault(place[0], []).append(place[1])
        found: dict[tuple[LedgerKey, int], MessageTexts | None] = {}

        async def read(key: LedgerKey, offsets: list[int]) -> None:
            for first in range(0, len(offsets), READ_MAX):
                part = offsets[first : first + READ_MAX]
                texts = await self._context.store.texts(key, part)
                found.update(zip([(key, offset) for offset in part], texts, strict=True))

        await asyncio.gather(*(read(*each) for each in wanted.items()))
        return [None if place is None else found[place] for place in places]


def _complete(shown: Shown, texts: MessageTexts | None) -> None:
    entry, holder = shown.entry, ""
    if entry.status is EntryStatus.LEASED:
        holder = entry.holder or holder_of(texts, entry.fence)
    elif shown.waits_for_lease:
        holder = holder_of(texts)
    last = "" if texts is None else texts.last.decode("utf-8", "replace")
    shown.view.known(holder, last or shown.partition.copies.errors(shown.offset)[1] or None)
