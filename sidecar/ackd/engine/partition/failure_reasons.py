"""What applications said of failures, between the store and the copies.

The settle brings it into the record of its message, whoever was told (`Call.said`). Whoever makes a
copy reads it there, so that neither a restart nor another owner loses it. What this sidecar has
heard itself (`Copies`) stands in where the store has nothing: after a loss, or beyond its bound.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ackd.core.record.protocol import FailureTexts
from ackd.engine.partition.copy_headers import bounded

if TYPE_CHECKING:
    from ackd.engine.partition.partition import Partition
    from ackd.ports import Store


def said_with(item: int, text: str) -> FailureTexts:
    """What is said of a failure, with the item of the call that settles."""
    return FailureTexts(item, b"", bounded(text))


async def learn(store: Store, wanted: Mapping[Partition, Sequence[int]]) -> None:
    """Read what was said of these messages, before copies of them are made. Asks only for records
    that have errors. Raises StoreError.
    """
    asked = [(partition, offsets) for partition, offsets in wanted.items() if partition.said]
    answers = await asyncio.gather(*(store.errors(each.key, offsets) for each, offsets in asked))
    for (partition, offsets), found in zip(asked, answers, strict=True):
        _told(partition, zip(offsets, found, strict=True))


def _told(partition: Partition, found: Iterable[tuple[int, tuple[bytes, bytes] | None]]) -> None:
    for offset, errors in found:
        if errors is not None:
            partition.copies.failed_so(offset, *(each.decode(errors="replace") for each in errors))
