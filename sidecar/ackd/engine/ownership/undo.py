"""Keep for a day where a partition was before a reset moved its progress (rule R8)."""

from __future__ import annotations

from itertools import islice

import msgspec

from ackd.core.bitmap import ChunkedBitmap
from ackd.core.ids import LedgerKey
from ackd.core.record.protocol import Snapshot
from ackd.ports import Store
from ackd.unreadable import UNREADABLE

KEEP_MS = 86_400_000
RANGES_MAX = 100_000
"""Most ranges that are kept; messages finished beyond them come again after an undo or import."""


class Window(msgspec.Struct):
    """Progress of a record: all below `offset` and in the ranges [start, end) was finished."""

    offset: int
    finished: list[tuple[int, int]]
    epoch: int


def window(snapshot: Snapshot) -> Window:
    """Read the progress from a record's snapshot."""
    finished = ChunkedBitmap.of(snapshot.chunks)
    # The stored watermark lags: the owner moves it with its next call.
    offset = finished.first_clear(snapshot.watermark)
    return Window(offset, list(islice(finished.ranges(offset), RANGES_MAX)), snapshot.epoch)


async def keep(store: Store, key: LedgerKey, snapshot: Snapshot) -> None:
    """Remember the progress that a reset is about to move. Raises StoreError."""
    await store.put(_name(key), msgspec.json.encode(window(snapshot)), KEEP_MS)


async def kept(store: Store, key: LedgerKey) -> Window | None:
    """Return the progress remembered in the last day. Raises StoreError."""
    raw = await store.get(_name(key))
    if raw is None:
        return None
    try:
        return msgspec.json.decode(raw, type=Window)
    except UNREADABLE:
        return None


def _name(key: LedgerKey) -> str:
    return f"undo:{key.text()}"
