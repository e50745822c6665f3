"""What a reset by somebody else does to copies in the retry topic: those of messages that come
again are over (rule R8).

A copy that has not claimed its home is refused by the home's record. One that has lies in a record
of its own, which knows nothing of the reset: it is found in the topic. Nothing of the partition is
handed out before that is done, whoever dies on the way: the wish is written before the reset.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

import msgspec

from ackd.core.ids import LedgerKey
from ackd.core.ledger.bitmap import ChunkedBitmap
from ackd.core.record.operations import Gap, Op
from ackd.core.record.protocol import CallStatus, Finish, Snapshot
from ackd.core.record.transitions import State
from ackd.engine.base.context import Context
from ackd.engine.base.state import SubscriptionState
from ackd.engine.ownership.records import Records
from ackd.engine.retry.dead_letter_reader import DeadLetterLog, Letter, open_log
from ackd.errors import StoreError
from ackd.store.flusher import LedgerHandle

LOG = logging.getLogger("ackd.engine")

READ_MAX = 500
KEEP_MS = 30 * 86_400_000
PENDING = frozenset({State.DEAD, State.SENDING})
"""A copy that is on its way to somewhere else goes there, and is no reason to skip its message."""


class Moved(msgspec.Struct):
    """The group goes to `offset`, by which the record's reset epoch becomes `epoch`."""

    epoch: int
    offset: int


_MOVES = msgspec.json.Decoder(list[Moved])


class ForeignResets:
    """Of the partitions of one subscription. Several that were moved at once share one reading."""

    def __init__(
        self, state: SubscriptionState, context: Context, records: Records, retry_topic: str
    ) -> None:
        self.state = state
        self.context = context
        self._records = records
        self._retry_topic = retry_topic
        self._wanted: dict[LedgerKey, int] = {}
        self._found: dict[LedgerKey, list[int]] = {}
        self._reading = asyncio.Lock()

    async def begin(self, key: LedgerKey, epoch: int, offset: int) -> None:
        """The record is about to be reset. Raises StoreError."""
        # What was written for this epoch before was never done.
        moves = [each for each in await self._moves(key) if each.epoch < epoch]
        moves.append(Moved(epoch, offset))
        await self.context.store.put(_name(key), msgspec.json.encode(moves), KEEP_MS)

    async def finish(self, key: LedgerKey, epoch: int) -> list[Op]:
        """End the copies of what comes again. What the partition's record has to be told: messages
        of which a copy is under lease do not come again, that copy is what comes of them (I3).

        Raises StoreError, BrokerError.
        """
        moves = [each.offset for each in await self._moves(key) if each.epoch <= epoch]
        return [skip(offset) for offset in await self._leased(key, min(moves))] if moves else []

    async def finished(self, key: LedgerKey) -> None:
        """The record was told. Raises StoreError."""
        await self.context.store.delete(_name(key))

    async def _moves(self, key: LedgerKey) -> list[Moved]:
        raw = await self.context.store.get(_name(key))
        try:
            return [] if raw is None else _MOVES.decode(raw)
        except msgspec.DecodeError:
            return []

    async def _leased(self, key: LedgerKey, offset: int) -> list[int]:
        self._wanted[key] = offset
        async with self._reading:
            if key in self._wanted:
                wanted, self._wanted = self._wanted, {}
                try:
                    self._found.update(await self._read(wanted))
                except BaseException:
                    # The others try by themselves.
                    del wanted[key]
                    self._wanted = {**wanted, **self._wanted}
                    raise
            return self._found.pop(key)

    async def _read(self, wanted: Mapping[LedgerKey, int]) -> dict[LedgerKey, list[int]]:
        """Go through all copies that are not over."""
        leased: dict[LedgerKey, list[int]] = {key: [] for key in wanted}
        state = self.state
        async with open_log(self, self._retry_topic, "reset") as log:
            for number in log.partitions:
                key = LedgerKey(state.cluster, state.name, log.topic_id, number)
                snapshot = await self._records.peek(key)
                if snapshot is not None:  # else every copy still has to ask its home
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
        """End those of one partition of the retry topic."""
        finished = ChunkedBitmap.of(snapshot.chunks)
        pending = {slot.offset for slot in snapshot.slots if slot.state in PENDING}
        first, end = await log.range(key.partition)
        at, ended = max(first, snapshot.watermark), 0
        while at < end:
            letters, at = await log.read(key.partition, at, end, READ_MAX)
            over: list[tuple[Letter, LedgerKey]] = []
            for letter in letters:
                origin = letter.carrier.origin
                whose = LedgerKey(
                    origin.cluster, key.subscription, origin.topic_id, origin.partition
                )
                comes_again = whose in wanted and origin.offset >= wanted[whose]
                if comes_again and letter.record.offset not in finished:
                    over.append((letter, whose))
            if not over:
                continue
            reply = await self.context.flusher.submit(
                LedgerHandle(key), [skip(letter.record.offset) for letter, _ in over]
            )
            if reply.verdict is not CallStatus.OK:
                raise StoreError(f"a record of copies is {reply.verdict.name}; trying again")
            for (letter, whose), result in zip(over, reply.results, strict=True):
                if not result.when_ms:
                    ended += 1
                elif letter.record.offset not in pending:
                    leased[whose].append(letter.carrier.origin.offset)
        if ended:
            LOG.warning(
                "%s: %d retry copies ended, because their messages are delivered again",
                key.subscription,
                ended,
            )


def skip(offset: int) -> Op:
    """Finished without delivery, unless it is under lease."""
    return Gap(offset, offset + 1, Finish.SKIPPED)


def _name(key: LedgerKey) -> str:
    return f"moved:{key.text()}"
