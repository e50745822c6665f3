"""Failure reasons: load the first and last reason of each message, and its history, from the store
before a copy is written.

The settle writes a reason into its message's record, whichever sidecar serves it
(`RecordCall.texts`). The sidecar that makes a copy reads it there, so neither a restart nor another
owner loses it. Where the store has nothing, after a loss or beyond its bound, the reasons that this
sidecar got itself (`Copies`) are used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ackd.core.record.protocol import ItemTexts, MessageTexts
from ackd.engine.partition.copy_headers import bounded

if TYPE_CHECKING:
    from ackd.engine.partition.partition import Partition
    from ackd.ports import Store


def reason_text(item: int, text: str) -> ItemTexts:
    """Make the reason of a failure, with the index of the call's item that settles."""
    return ItemTexts(item, last=bounded(text))


async def learn(store: Store, wanted: Mapping[Partition, Sequence[int]]) -> None:
    """Load the reasons of these messages, before copies of them are made. Asks only for records
    that have texts. Raises StoreError.
    """
    asked = [(partition, offsets) for partition, offsets in wanted.items() if partition.has_texts]
    answers = await asyncio.gather(*(store.texts(each.key, offsets) for each, offsets in asked))
    for (partition, offsets), found in zip(asked, answers, strict=True):
        _keep(partition, zip(offsets, found, strict=True))


def _keep(partition: Partition, found: Iterable[tuple[int, MessageTexts | None]]) -> None:
    for offset, texts in found:
        if texts is None:
            continue
        if texts.history:
            partition.copies.delivered_so(offset, texts.history)
        if texts.last:
            first, last = (each.decode(errors="replace") for each in (texts.first, texts.last))
            partition.copies.failed_so(offset, first, last)
