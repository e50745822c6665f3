"""Which operations of a subscription there were: their ids, as the store keeps them."""

from __future__ import annotations

from collections.abc import Callable

from ackd.ports import Store

LISTED_MAX = 100
"""Of more, the oldest are no longer listed. Their results can still be read by id."""


class OperationIndex:
    """Ids of the operations of one subscription, the newest first. Any sidecar may change it."""

    def __init__(self, store: Store, cluster: str, subscription: str) -> None:
        self._store = store
        self._name = f"operations:{cluster}:{subscription}"

    async def ids(self) -> list[str]:
        """Raises StoreError."""
        return _read(await self._store.get(self._name))

    async def add(self, operation_id: str) -> None:
        """List it as the newest one. Raises StoreError."""
        await self._change(lambda ids: [operation_id, *ids][:LISTED_MAX])

    async def remove(self, operation_id: str) -> None:
        """List it no longer. Raises StoreError."""
        await self._change(lambda ids: [each for each in ids if each != operation_id])

    async def _change(self, change: Callable[[list[str]], list[str]]) -> None:
        before = await self._store.get(self._name)
        while True:
            after = " ".join(change(_read(before))).encode()
            there = await self._store.swap(self._name, before, after)
            if there == after:
                return
            before = there


def _read(raw: bytes | None) -> list[str]:
    return [] if raw is None else raw.decode().split()
