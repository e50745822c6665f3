"""External resets: when another client moves the group's position, end the retry copies of messages
that come again (rule R8).

An origin record refuses a copy that has not claimed it yet. A copy that has
claimed it is in a record of its own, which knows nothing of the reset: this file finds it in the
retry topic. The reset is noted in the store before it is made, so nothing of the partition is
delivered before its copies are ended, whichever sidecar dies on the way.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

import msgspec

from ackd.core.bitmap import ChunkedBitmap
from ackd.core.ids import LedgerKey
from ackd.core.record.operations import Gap, Op
from ackd.core.record.protocol import CallStatus, Finish, Snapshot
from ackd.core.record.transitions import State
from ackd.engine.base.context import Context
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.ownership.records import Records
from ackd.engine.retry.dead_letter_reader import DeadLetterLog, Letter, open_log
from ackd.errors import StoreError
from ackd.store.flusher import LedgerHandle
from ackd.unreadable import UNREADABLE

LOG = logging.getLogger("ackd.engine")

READ_MAX = 500
KEEP_MS = 30 * 86_400_000
PENDING = frozenset({State.DEAD, State.MOVING})
"""A copy that is moving to another topic goes on, and is no reason to skip its message."""


class Moved(msgspec.Struct):
    """The group moves to `offset`, and the record's reset epoch becomes `epoch`."""

    epoch: int
    offset: int


_decode_resets = msgspec.json.Decoder(list[Moved]).decode


class ExternalResets:
    """External resets of one subscription's partitions. Several at once share one reading."""

    def __init__(
        self, state: SubscriptionState, context: Context, records: Records, retry_topic: str
    ) -> None:
        self._state = state
        self._context = context
        self._records = records
        self._retry_topic = retry_topic
        self._wanted: dict[LedgerKey, int] = {}
        self._found: dict[LedgerKey, list[int]] = {}
        self._reading = asyncio.Lock()

    async def begin(self, key: LedgerKey, epoch: int, offset: int) -> None:
        """Note in the store that the record is about to be reset. Raises StoreError."""
        # An earlier note of this epoch is of a reset that was never made.
        resets = [each for each in await self._resets(key) if each.epoch < epoch]
        resets.append(Moved(epoch, offset))
        await self._context.store.put(_name(key), msgspec.json.encode(resets), KEEP_MS)

    async def finish(self, key: LedgerKey, epoch: int) -> list[Op]:
        """End the copies of messages that come again; return what the partition's record needs for
        it.

        A message whose copy is under lease does not come again: that copy stands for it (I3).
        Raises StoreError, BrokerError.
        """
        resets = [each.offset for each in await self._resets(key) if each.epoch <= epoch]
        return [skip(offset) for offset in await self._leased(key, min(resets))] if resets else []

    async def finished(self, key: LedgerKey) -> None:
        """The record has been changed: drop the notes of its resets. Raises StoreError."""
        await self._context.store.delete(_name(key))

    async def _resets(self, key: LedgerKey) -> list[Moved]:
        raw = await self._context.store.get(_name(key))
        try:
            return [] if raw is None else _decode_resets(raw)
        except UNREADABLE:
            return []

    async def _leased(self, key: LedgerKey, offset: int) -> list[int]:
        self._wanted[key] = offset
        async with self._reading:
            if key in self._wanted:
                wanted, self._wanted = self._wanted, {}
                try:
                    self._found.update(await self._read(wanted))
                except BaseException:
                    # The others read for themselves.
                    del wanted[key]
                    self._wanted = {**wanted, **self._wanted}
                    raise
            return self._found.pop(key)

    async def _read(self, wanted: Mapping[LedgerKey, int]) -> dict[LedgerKey, list[int]]:
        """Go through all copies that are not finished; return the leased ones by their origins."""
        leased: dict[LedgerKey, list[int]] = {key: [] for key in wanted}
        state = self._state
        async with open_log(self._state, self._context, self._retry_topic, "reset") as log:
            for number in log.partitions:
                key = LedgerKey(state.cluster, state.name, log.topic_id, number)
                snapshot = await self._records.peek(key)
                if snapshot is not None:  # else every copy has yet to claim its origin
                    await self._end(key, snapshot, log, leased, wanted)
        return leased

    async def _end(
        self,
        key: LedgerKey,
        snapshot: Snapshot,
        log: DeadLetterLog,
        leased: Mapping[LedgerKey, list[int]],
        wanted: Mapping[LedgerKey, int],
    ) -> None:
        """End the copies of one partition of the retry topic."""
        finished = ChunkedBitmap.of(snapshot.chunks)
        pending = {slot.offset for slot in snapshot.slots if slot.state in PENDING}
        first, end = await log.range(key.partition)
        at, ended = max(first, snapshot.watermark), 0
        while at < end:
            letters, at = await log.read(key.partition, at, end, READ_MAX)
            over: list[tuple[Letter, LedgerKey]] = []
            for letter in letters:
                origin = letter.retry_copy.origin
                whose = LedgerKey(
                    origin.cluster, key.subscription, origin.topic_id, origin.partition
                )
                comes_again = whose in wanted and origin.offset >= wanted[whose]
                if comes_again and letter.record.offset not in finished:
                    over.append((letter, whose))
            if not over:
                continue
            reply = await self._context.flusher.submit(
                LedgerHandle(key), [skip(letter.record.offset) for letter, _ in over]
            )
            if reply.verdict is not CallStatus.OK:
                raise StoreError(f"a record of copies is {reply.verdict.name}; trying again")
            for (letter, whose), result in zip(over, reply.results, strict=True):
                if not result.when_ms:
                    ended += 1
                elif letter.record.offset not in pending:
                    leased[whose].append(letter.retry_copy.origin.offset)
        if ended:
            LOG.warning(
                "%s: ackd finished %d retry copies, because a reset delivers their messages again",
                key.subscription,
                ended,
            )


def skip(offset: int) -> Op:
    """Finish an offset without delivery, unless it is under lease."""
    return Gap(offset, offset + 1, Finish.SKIPPED)


def _name(key: LedgerKey) -> str:
    return f"moved:{key.text()}"
