"""Where a partition was before its progress was moved, kept for a day (rule R8)."""

from __future__ import annotations

from itertools import islice

import msgspec

from ackd.core.ids import LedgerKey
from ackd.core.ledger.bitmap import ChunkedBitmap
from ackd.core.record.protocol import Snapshot
from ackd.ports import Store

KEEP_MS = 86_400_000
RANGES_MAX = 100_000
"""What is finished in ranges beyond these comes again after an undo or an import."""


class Window(msgspec.Struct):
    """Where a record stands: all below `offset` and in the ranges [start, end) was finished."""

    offset: int
    finished: list[tuple[int, int]]
    epoch: int


def window(snapshot: Snapshot) -> Window:
    """The window as a record has it."""
    finished = ChunkedBitmap.of(snapshot.chunks)
    # The owner moves the stored watermark with its next call only.
    offset = finished.first_clear(snapshot.watermark)
    return Window(offset, list(islice(finished.ranges(offset), RANGES_MAX)), snapshot.epoch)


async def keep(store: Store, key: LedgerKey, snapshot: Snapshot) -> None:
    """Remember the window that is about to be moved. Raises StoreError."""
    await store.put(_name(key), msgspec.json.encode(window(snapshot)), KEEP_MS)


async def kept(store: Store, key: LedgerKey) -> Window | None:
    """What was remembered in the last day. Raises StoreError."""
    raw = await store.get(_name(key))
    if raw is None:
        return None
    try:
        return msgspec.json.decode(raw, type=Window)
    except msgspec.DecodeError:
        return None


def _name(key: LedgerKey) -> str:
    return f"undo:{key.text()}"
