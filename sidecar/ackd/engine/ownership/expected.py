"""What ackd's own seeks let a broker with individual acks bring again: noted in the store, so that
whoever owns the partition then knows that it is still to come, and that nobody else did it.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ackd.core.ids import LedgerKey
from ackd.ports import Store
from ackd.unreadable import UNREADABLE

KEEP_MS: Final = 30 * 86_400_000
NOT_MOVED: Final = -1
"""In place of a run: the broker could not be reached, and is moved as soon as it can."""


class Expectation(msgspec.Struct):
    """Messages of [start, until) come again; those in `finished` stay finished.

    `brings`: the broker goes back for it. `by_hand`: what the operator has to run there for that;
    empty: nothing, or he did. `boot_ms`: the run of the broker that ackd moved, `NOT_MOVED`, or 0:
    ackd does not move it.
    """

    start: int
    until: int
    finished: list[tuple[int, int]] = []
    brings: bool = False
    by_hand: str = ""
    boot_ms: int = 0

    def settles(self, offset: int) -> bool:
        """Whether this message comes, though it is finished."""
        return any(start <= offset < end for start, end in self.finished)


class Expected:
    """Expectations in the store, by record."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def note(self, key: LedgerKey, expectation: Expectation) -> None:
        """A seek moves this record. Raises StoreError."""
        await self._store.put(_name(key), msgspec.json.encode(expectation), KEEP_MS)

    async def of(self, key: LedgerKey) -> Expectation | None:
        """What the last seek lets come again. Raises StoreError."""
        raw = await self._store.get(_name(key))
        try:
            return None if raw is None else msgspec.json.decode(raw, type=Expectation)
        except UNREADABLE:
            return None

    async def over(self, key: LedgerKey) -> None:
        """It has come. Raises StoreError."""
        await self._store.delete(_name(key))


def _name(key: LedgerKey) -> str:
    return f"expected:{key.text()}"
