"""Decides which bodies wait on disk: those of messages that are not due soon, until shortly before.

Spilling only saves memory. When the disk has no room, bodies stay in memory and count towards
`window_bytes_max`, which holds back fetching.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import TypeGuard

from ackd.core.ledger.entry import Entry, EntryStatus
from ackd.engine.base.context import Context
from ackd.engine.base.spill_file import Held, Spill, Stub
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.partition.owned import OwnedPartitions
from ackd.engine.partition.partition import Partition
from ackd.ports import Record

LOG = logging.getLogger("ackd.engine")

WAIT_MIN_MS = 2_000
"""A message that is due sooner keeps its body in memory."""
AHEAD_MS = 500
"""A body is read back this long before its message is due."""
BATCH_MAX = 500
BATCH_BYTES_MAX = 4 * 1024 * 1024
FULL_MS = 100
"""While the window is full, the sidecar tries again after this to read back bodies that are due."""
FOREVER_MS = 1 << 62


class BodySpill:
    """Writes the bodies of one subscription to disk and reads them back."""

    def __init__(
        self,
        state: SubscriptionState,
        context: Context,
        partitions: OwnedPartitions,
        spill: Spill,
    ) -> None:
        self._state = state
        self._partitions = partitions
        self._context = context
        self._spill = spill
        self._out: deque[tuple[Partition, int]] = deque()
        self._back: list[tuple[int, int, Partition, Stub]] = []
        self._number = 0
        self._wake = asyncio.Event()

    # --- which bodies

    def look(self, partition: Partition, now_ms: int) -> None:
        """Queue the bodies of messages that have begun to wait."""
        ledger = partition.ledger
        waiting = ledger.bodies.take_waiting()
        if not waiting:
            return
        # A message that waits this long moves to the retry topic at once, so it is not spilled.
        rules = ledger.send_back.rules
        most_ms = FOREVER_MS if rules is None else rules.stuck_after_ms
        for offset in waiting:
            entry = ledger.entry(offset)
            if _waits_long(entry, now_ms) and entry.due_ms - now_ms < most_ms:
                self._out.append((partition, offset))
        if self._out:
            self._wake.set()

    def restore(self, partition: Partition, offset: int) -> None:
        """Read the body of a message back now, as the message is ready already."""
        entry = partition.ledger.entry(offset)
        if entry is not None and isinstance(entry.body, Stub):
            self._later(0, partition, entry.body)
            self._wake.set()

    async def body(self, partition: Partition, offset: int) -> Record | None:
        """The body of a message, from memory or disk; None when it has to be fetched again."""
        entry = partition.ledger.entry(offset)
        held = None if entry is None else entry.body
        if not isinstance(held, Stub):
            return held
        try:
            return (await self._spill.read([held]))[0]
        except OSError as error:
            self._unreadable([(partition, held)], error)
            return None

    def free(self, partition: Partition, offset: int) -> None:
        """The message is finished: free its space on disk now instead of when it would be due."""
        entry = partition.ledger.entry(offset)
        if entry is not None and isinstance(entry.body, Stub):
            self._spill.free(entry.body)

    @property
    def taken(self) -> int:
        """Bytes that bodies take on the local disk now."""
        return self._spill.taken

    async def close(self) -> None:
        await self._spill.close()

    # --- the task

    async def run(self) -> None:
        while True:
            now_ms = self._context.clock.monotonic_ms()
            if self._back and self._back[0][0] <= now_ms:
                await self._read_some(now_ms)
            elif self._out:
                await self._write_some(now_ms)
            else:
                await self._sleep(now_ms)

    async def _sleep(self, now_ms: int) -> None:
        self._wake.clear()
        seconds = max(self._back[0][0] - now_ms, 1) / 1000 if self._back else None
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            pass

    def _later(self, at_ms: int, partition: Partition, stub: Stub) -> None:
        self._number += 1
        heappush(self._back, (at_ms, self._number, partition, stub))

    # --- out

    async def _write_some(self, now_ms: int) -> None:
        some: list[tuple[Partition, Record]] = []
        size = 0
        while self._out and len(some) < BATCH_MAX and size < BATCH_BYTES_MAX:
            partition, offset = self._out.popleft()
            entry = partition.ledger.entry(offset)
            body = None if entry is None or partition.closed else entry.body
            if isinstance(body, Record) and _waits_long(entry, now_ms):
                some.append((partition, body))
                size += body.size()
        if not some:
            return
        try:
            stubs = await self._spill.write([body for _, body in some])
        except OSError as error:
            # Nothing is lost: the bodies are still here, and the window's bound holds.
            LOG.warning(
                "%s: bodies can't be written to the local disk and stay in memory: %s",
                self._state.name,
                error,
            )
            return
        if stubs is not None:
            for (partition, body), stub in zip(some, stubs, strict=True):
                self._put(partition, body, stub)

    def _put(self, partition: Partition, body: Record, stub: Stub) -> None:
        entry = partition.ledger.entry(body.offset)
        now_ms = self._context.clock.monotonic_ms()
        if partition.closed or entry is None or entry.body is not body:
            self._spill.free(stub)
        elif not _waits(entry) or entry.due_ms - now_ms <= AHEAD_MS:
            self._spill.free(stub)  # it became due during the write
        else:
            retry_copy = partition.copies.retry_copy(body)
            if retry_copy is not None:
                name = partition.copies.id(body.offset, retry_copy)
                stub.stands_for_copy(name, retry_copy.reset_epoch, retry_copy.published_ms)
            partition.ledger.bodies.spilled(body.offset, stub)
            self._later(entry.due_ms - AHEAD_MS, partition, stub)

    # --- back

    async def _read_some(self, now_ms: int) -> None:
        some: list[tuple[Partition, Stub]] = []
        size = 0
        while self._back and self._back[0][0] <= now_ms:
            if len(some) == BATCH_MAX or size >= BATCH_BYTES_MAX:
                break
            _, _, partition, stub = heappop(self._back)
            entry = partition.ledger.entry(stub.offset)
            if partition.closed or entry is None or entry.body is not stub:
                self._spill.free(stub)
            elif _waits_long(entry, now_ms):
                self._later(entry.due_ms - AHEAD_MS, partition, stub)  # it was delayed further
            else:
                some.append((partition, stub))
                size += stub.length
        if some and self._full():
            for partition, stub in some:
                self._later(now_ms + FULL_MS, partition, stub)
        elif some:
            await self._restore(some)

    def _full(self) -> bool:
        """Enough bodies are ready in memory: reading back more would only take memory (I8)."""
        ready, size = self._partitions.held()
        return ready > 0 and size >= self._state.settings.window_bytes_max

    async def _restore(self, some: Sequence[tuple[Partition, Stub]]) -> None:
        try:
            records = await self._spill.read([stub for _, stub in some])
        except OSError as error:
            self._unreadable(some, error)
            return
        touched: dict[Partition, None] = {}
        for (partition, stub), record in zip(some, records, strict=True):
            entry = partition.ledger.entry(stub.offset)
            if not partition.closed and entry is not None and entry.body is stub:
                partition.ledger.bodies.restored(stub.offset, record)
                touched[partition] = None
            self._spill.free(stub)
        for partition in touched:
            partition.perform()

    def _unreadable(self, some: Sequence[tuple[Partition, Stub]], error: OSError) -> None:
        """Drop these stubs and fetch the messages again: the broker still has them."""
        LOG.warning(
            "%s: bodies can't be read from the local disk, ackd fetches them again: %s",
            self._state.name,
            error,
        )
        lost: dict[Partition, list[int]] = {}
        for partition, stub in some:
            entry = partition.ledger.entry(stub.offset)
            if not partition.closed and entry is not None and entry.body is stub:
                lost.setdefault(partition, []).append(stub.offset)
            self._spill.free(stub)
        for partition, offsets in lost.items():
            partition.ledger.bodies.lost(offsets)
            partition.perform()


def _waits(entry: Entry[Held]) -> bool:
    return entry.status in (EntryStatus.WAITING, EntryStatus.CLAIMING)


def _waits_long(entry: Entry[Held] | None, now_ms: int) -> TypeGuard[Entry[Held]]:
    """Whether it will neither be delivered nor claimed for at least `WAIT_MIN_MS`."""
    return entry is not None and _waits(entry) and entry.due_ms - now_ms > WAIT_MIN_MS
