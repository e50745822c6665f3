"""Keeps in the store which dead letters are gone, and origin records of those being redriven (R2,
R29).

A topic can't give up single messages, so "removed" is a bit in a record. Each partition of the
dead-letter topic has a record like any other, under a name of its own; a redriven dead letter has
its origin record there. The sidecar that carries out an operation owns the record
by term; a claim may have to rejoin it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ackd.core.ids import INCARNATION_BITS, ROLLBACK_EPOCH_BITS, LedgerKey, SidecarId
from ackd.core.record.copies import PRUNE_MAX
from ackd.core.record.operations import Advance, Drop, LookUp, Op
from ackd.core.record.protocol import CallStatus, Open, RecordReply, SlotView, Snapshot
from ackd.core.record.transitions import State
from ackd.engine.base.context import Context
from ackd.engine.ownership.records import remade
from ackd.errors import StoreDataError, StoreError
from ackd.store.flusher import LedgerHandle

PRUNES = 16
"""An `Advance` drops only a few old origin records (`PRUNE_MAX`); one call carries this many."""


@dataclass(slots=True)
class TakenRecord:
    """A record that this sidecar owns. `slots`: the slots under way when it took the record."""

    handle: LedgerHandle
    slots: dict[int, SlotView]


class DeadLetterRecords:
    """Calls the records of one subscription's dead letters."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def states(self, key: LedgerKey, offsets: Sequence[int]) -> list[State]:
        """READY (dead), MOVING (on its way) or FINISHED (gone) for each offset. Raises StoreError.

        Changes nothing. A dead letter whose state the store has lost counts as dead.
        """
        if not offsets:
            return []
        handle = LedgerHandle(key)
        ops = [LookUp(offset) for offset in offsets]
        reply = await self._context.flusher.submit(handle, ops)
        if reply.verdict is CallStatus.MOVED:
            await self.take(key, None)
            reply = await self._context.flusher.submit(handle, ops)
        if reply.verdict in (CallStatus.ABSENT, CallStatus.CHUNK_LOST):
            return [State.READY] * len(offsets)
        return [result.state for result in _decided(reply).results]

    async def take(self, key: LedgerKey, first: int | None) -> TakenRecord:
        """Become owner of a record. Raises StoreError.

        `first`: first offset of the log. An absent record is created, and what it knows below
        `first`, where retention has deleted the log, is dropped. None does neither.
        """
        handle = LedgerHandle(key)
        snapshot = await self._open(handle, first, 0)
        losses = remade(self._context, snapshot)
        if losses:
            await self.decide(handle, losses)
            snapshot = await self._open(handle, None, handle.term)
        if first is not None:
            await self.decide(handle, [*[Advance(first)] * PRUNES, Drop(first)])
        return TakenRecord(handle, {slot.offset: slot for slot in snapshot.slots})

    async def prune(self, key: LedgerKey, count: int) -> None:
        """Drop about `count` origin records that were closed long ago. Raises StoreError.

        The caller need not own the record. If the record is absent or moved, a later prune does.
        """
        handle = LedgerHandle(key)
        for _ in range(count // (PRUNES * PRUNE_MAX) + 1):
            await self._context.flusher.submit(handle, [Advance(0)] * PRUNES)

    async def decide(self, handle: LedgerHandle, ops: Sequence[Op]) -> RecordReply:
        """Send one call as the owner. Raises StoreError when the store did not decide it."""
        return _decided(await self._context.flusher.submit(handle, ops))

    async def _open(self, handle: LedgerHandle, first: int | None, term: int) -> Snapshot:
        bits = self._context.random_bits
        request = Open(
            key=handle.key,
            owner=SidecarId(self._context.identity, 0).text(),
            rollback_epoch=bits(ROLLBACK_EPOCH_BITS),
            incarnation=bits(INCARNATION_BITS) | 1,
            grace_ms=self._context.grace_ms,
            create_at=first,
            term=term,
        )
        snapshot = await self._context.flusher.open(request, handle)
        if snapshot.verdict is not CallStatus.OK:
            name = snapshot.verdict.name
            raise StoreDataError(f"the record of the dead letters is {name}")
        return snapshot


def _decided(reply: RecordReply) -> RecordReply:
    if reply.verdict is not CallStatus.OK:
        raise StoreError(f"the record of the dead letters is {reply.verdict.name}")
    return reply
