"""Read a partition's record, or take it over, on behalf of an operation (seek, export) rather than
the partition's owner.
"""

from __future__ import annotations

from collections.abc import Sequence

from ackd.core.ids import INCARNATION_BITS, ROLLBACK_EPOCH_BITS, LedgerKey
from ackd.core.record.operations import ForgetOriginRecords, Op, RemakeChunk
from ackd.core.record.protocol import CallStatus, Open, RecordReply, Snapshot
from ackd.engine.base.context import Context
from ackd.engine.cluster.membership import Membership
from ackd.engine.partition.owned import OwnedPartitions
from ackd.errors import StoreDataError, StoreError
from ackd.store.flusher import LedgerHandle

OPS_MAX = 1_000


class Records:
    """Calls to the records of one subscription."""

    def __init__(
        self, context: Context, partitions: OwnedPartitions, membership: Membership
    ) -> None:
        self._context = context
        self._partitions = partitions
        self._membership = membership

    async def peek(self, key: LedgerKey) -> Snapshot | None:
        """Read the record without a change; None if there is none. Raises StoreError."""
        snapshot = await self._context.store.open(await self._request(key, None, peek=True))
        if snapshot.verdict is CallStatus.ABSENT:
            return None
        return _good(snapshot)

    async def take(
        self, key: LedgerKey, create_at: int | None
    ) -> tuple[LedgerHandle, Snapshot] | None:
        """Own a record, which fences its former owner. None: it is absent and `create_at` is None.

        Raises StoreError.
        """
        handle = LedgerHandle(key)
        flusher = self._context.flusher
        snapshot = await flusher.open(await self._request(key, create_at), handle)
        if snapshot.verdict is CallStatus.ABSENT:
            return None
        losses = remade(self._context, _good(snapshot))
        if losses:
            await self.decide(handle, losses)
            again = await self._request(key, None, term=handle.term)
            snapshot = _good(await flusher.open(again, handle))
        return handle, snapshot

    async def decide(self, handle: LedgerHandle, ops: Sequence[Op]) -> RecordReply:
        """Make one call as the owner. Raises StoreError when the store did not decide it."""
        reply = await self._context.flusher.submit(handle, ops)
        if reply.verdict is not CallStatus.OK:
            raise StoreError(f"a record is {reply.verdict.name}; trying again")
        return reply

    async def _request(
        self, key: LedgerKey, create_at: int | None, *, term: int = 0, peek: bool = False
    ) -> Open:
        bits = self._context.random_bits
        return Open(
            key=key,
            owner=self._partitions.me.text(),
            rollback_epoch=bits(ROLLBACK_EPOCH_BITS),
            incarnation=bits(INCARNATION_BITS) | 1,
            grace_ms=self._context.grace_ms,
            create_at=create_at,
            term=term,
            jump_ms=await self._membership.jump_ms(),
            peek=peek,
        )


def remade(context: Context, snapshot: Snapshot) -> list[Op]:
    """Operations that begin anew what the record lists and the store has lost (R14); the loss is
    counted.
    """
    ops: list[Op] = [RemakeChunk(index) for index in snapshot.lost_chunks]
    if snapshot.lost_origins:
        ops.append(ForgetOriginRecords(context.random_bits(ROLLBACK_EPOCH_BITS)))
    if ops:
        context.metrics.store_data_lost.at().inc()
    return ops


def _good(snapshot: Snapshot) -> Snapshot:
    if snapshot.verdict is not CallStatus.OK:
        raise StoreDataError(f"a record is {snapshot.verdict.name}")
    return snapshot
