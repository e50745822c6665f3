"""Maintains the queues of blocked keys: removes finished copies and unblocks empty keys (R19, I6).

A finished copy leaves the queue of its key, so that the next one may be claimed (`CloseOrigin`). If
the process dies before it reports that, either the owner of the next copy finds out that the
earlier one is finished and reports it instead, or the owner of the origin does, which asks for its
blocked keys periodically (`AskBlocker`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ackd.core.ids import LedgerKey, TopicPartition
from ackd.core.record.operations import CloseOrigin, CopyRef, LookUp, Op
from ackd.core.record.protocol import CallStatus, OpResult
from ackd.core.record.transitions import State
from ackd.engine.base.context import Context
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.partition.ordering import OriginRecordRef
from ackd.engine.partition.owned import OwnedPartitions, Topics
from ackd.engine.partition.partition import Partition
from ackd.errors import StoreError
from ackd.store.flusher import LedgerHandle

LOG = logging.getLogger("ackd.engine")

SWEEP_MS = 5_000
SOON_MS = 250
"""A queue just became shorter, so its key may be free: the next sweep comes this soon."""
SWEEP_MAX = 100
"""Most blocked keys of a partition to ask for in one sweep."""
AGAIN_MS = 1_000
BATCH_MAX = 500
OVER_MAX = 100_000
"""Most finished copies to remember. `on_blocked` finds those that do not fit again."""


class _Doubt(NamedTuple):
    """Is the copy at (`partition`, `place`) of the retry topic finished? Its origin record is at
    `offset` of the record `origin_record` and is the first of its key's queue.
    """

    origin_record: LedgerKey
    incarnation: int
    offset: int
    partition: int
    place: int


class KeySweep:
    """Asks for some blocked keys, in turn: when a key gets no more messages, nothing else unblocks
    it. `due_ms`: when to ask next, on the monotonic clock.
    """

    def __init__(self, partitions: OwnedPartitions) -> None:
        self._partitions = partitions
        self._next: dict[Partition, int] = {}
        self.due_ms = 0

    def soon(self, now_ms: int) -> None:
        """A queue has changed: its next message may be free."""
        self.due_ms = min(self.due_ms, now_ms + SOON_MS)

    def ask_if_due(self, now_ms: int) -> None:
        if now_ms < self.due_ms:
            return
        self.due_ms = now_ms + SWEEP_MS
        following: dict[Partition, int] = {}
        for partition in self._partitions.owned.values():
            blocked = partition.ledger.send_back.blocked
            keys = [key for key in blocked if isinstance(key, int)]
            if not keys or not partition.grantable:
                continue
            start = self._next.get(partition, 0) % len(keys)
            partition.ask_blockers(keys[start : start + SWEEP_MAX])
            following[partition] = start + SWEEP_MAX if start + SWEEP_MAX < len(keys) else 0
        self._next = following


class KeyQueues:
    """The key queues of one subscription; does nothing while no key is blocked."""

    def __init__(
        self,
        state: SubscriptionState,
        context: Context,
        partitions: OwnedPartitions,
        topics: Topics,
        retry_topic: str,
        claim: Callable[[Partition, int], None],
    ) -> None:
        self._state = state
        self._partitions = partitions
        self._topics = topics
        self._retry_topic = retry_topic
        self._claim = claim
        self._context = context
        self._over: dict[tuple[int, int], OriginRecordRef] = {}
        self._doubts: dict[_Doubt, list[tuple[Partition, int]]] = {}
        self._sweep = KeySweep(partitions)
        self._again_ms = 0
        self._telling = asyncio.Lock()
        self._wake = asyncio.Event()

    # --- events

    def over(self, partition: Partition, offset: int, origin_record: OriginRecordRef) -> None:
        self._over[partition.tp.partition, offset] = origin_record
        if len(self._over) > OVER_MAX:
            self._over.pop(next(iter(self._over)))
        self._wake.set()

    def on_blocked(self, partition: Partition, result: OpResult) -> None:
        """The record of an own partition named the first message of a blocked key."""
        self._doubt(partition.key, partition.handle.incarnation, result)

    def waits(
        self, partition: Partition, offset: int, origin_record: OriginRecordRef, result: OpResult
    ) -> None:
        """A copy may not be claimed yet, because an earlier copy blocks it."""
        doubt = self._doubt(origin_record.key, origin_record.incarnation, result)
        if doubt is not None:
            self._doubts[doubt].append((partition, offset))

    def _doubt(self, origin_record: LedgerKey, incarnation: int, result: OpResult) -> _Doubt | None:
        first = result.blocked_by
        if first.copy is None:
            return None  # no copy has claimed it yet; that claim will report itself
        doubt = _Doubt(origin_record, incarnation, first.offset, *first.copy)
        self._doubts.setdefault(doubt, [])
        self._wake.set()
        return doubt

    # --- the task

    async def run(self) -> None:
        while True:
            self._sweep.ask_if_due(self._context.clock.monotonic_ms())
            await self.tell()
            await self._resolve()
            await self._sleep(self._sweep.due_ms)

    async def _sleep(self, until_ms: int) -> None:
        self._wake.clear()
        now_ms = self._context.clock.monotonic_ms()
        if self._over and self._again_ms <= now_ms:
            return
        if self._over:
            until_ms = min(until_ms, self._again_ms)
        try:
            async with asyncio.timeout(max(until_ms - now_ms, 1) / 1000):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def tell(self) -> None:
        """Report finished copies. Claims wait for this, so that they meet an up-to-date queue."""
        async with self._telling:
            while self._over and self._again_ms <= self._context.clock.monotonic_ms():
                some = {key: self._over.pop(key) for key in list(self._over)[:BATCH_MAX]}
                by_record: dict[tuple[LedgerKey, int], dict[tuple[int, int], OriginRecordRef]] = {}
                for place, origin_record in some.items():
                    by_record.setdefault((origin_record.key, origin_record.incarnation), {})[
                        place
                    ] = origin_record
                await asyncio.gather(
                    *(self._leave(*at, origin_records) for at, origin_records in by_record.items())
                )

    async def _leave(
        self,
        key: LedgerKey,
        incarnation: int,
        origin_records: dict[tuple[int, int], OriginRecordRef],
    ) -> None:
        ops = [origin_record.left(*place) for place, origin_record in origin_records.items()]
        if await self._close(key, incarnation, ops):
            return
        for place, origin_record in origin_records.items():
            self._over.setdefault(place, origin_record)
        self._again_ms = self._context.clock.monotonic_ms() + AGAIN_MS

    async def _close(self, key: LedgerKey, incarnation: int, ops: Sequence[Op]) -> bool:
        """Send these operations to a record; False: try again later. An absent record has no
        queues.
        """
        handle = LedgerHandle(key, incarnation=incarnation)
        try:
            reply = await self._context.flusher.submit(handle, ops)
        except StoreError as error:
            LOG.info(
                "%s: the store did not answer about blocked keys, ackd tries again: %s",
                self._state.name,
                error.detail,
            )
            return False
        if reply.verdict is CallStatus.OK:
            self._context.replay_log.confirmed(key, incarnation, ops)
            self._sweep.soon(self._context.clock.monotonic_ms())
        return reply.verdict in (CallStatus.OK, CallStatus.ABSENT)

    async def _resolve(self) -> None:
        """Report finished copies to those origin records that still wait for them."""
        doubts, self._doubts = self._doubts, {}
        for doubt, waiting in doubts.items():
            if not await self._is_over(doubt):
                continue
            left = CloseOrigin(doubt.offset, finished=CopyRef(doubt.partition, doubt.place))
            if await self._close(doubt.origin_record, doubt.incarnation, [left]):
                for partition, offset in waiting:
                    self._claim(partition, offset)

    async def _is_over(self, doubt: _Doubt) -> bool:
        topic = self._retry_topic
        owned = self._partitions.owned.get(TopicPartition(topic, doubt.partition))
        if owned is not None:
            return not owned.needs_reread and owned.ledger.over(doubt.place)
        info = self._topics.known.get(topic)
        if info is None:
            return False
        key = doubt.origin_record._replace(topic_id=info.topic_id, partition=doubt.partition)
        try:
            look = [LookUp(doubt.place)]
            reply = await self._context.flusher.submit(LedgerHandle(key), look)
        except StoreError:
            return False
        return reply.verdict is CallStatus.OK and reply.results[0].state is State.FINISHED
