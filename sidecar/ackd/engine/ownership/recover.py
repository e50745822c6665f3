"""Take a partition: reconcile its record in the store with the broker's committed position and the
log.

Order of trust: an operator's reset (a commit that ackd did not make) wins over the store, the store
over ackd's own commit, and that over the start policy (rules R1, R6, R8). In names, `external` is
an external commit.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ackd.core.bitmap import ChunkedBitmap
from ackd.core.commit_metadata import CommittedProgress, decode
from ackd.core.ids import (
    INCARNATION_BITS,
    ROLLBACK_EPOCH_BITS,
    LedgerKey,
    SidecarId,
    TopicPartition,
)
from ackd.core.ledger.entry import B
from ackd.core.ledger.ledger import Ledger
from ackd.core.record.operations import (
    Advance,
    ForgetOriginRecords,
    Gap,
    Op,
    RemakeChunk,
    ReplayFinished,
    Reset,
)
from ackd.core.record.protocol import CallStatus, Open, SlotView, Snapshot
from ackd.core.record.transitions import State
from ackd.engine.base.context import Context
from ackd.engine.ownership import undo
from ackd.engine.partition.partition import Partition
from ackd.errors import StoreDataError, StoreError, StoreLayoutError
from ackd.ports import Committed, Consumer

if TYPE_CHECKING:
    from ackd.engine.ownership.external_reset import ExternalResets

LOG = logging.getLogger("ackd.engine")

SLOTS_BATCH = 500


class NotYetError(StoreError):
    """Only the member to which the group assigned this partition can take it."""

    type = "not-assigned"


@dataclass(frozen=True, slots=True)
class Wish:
    """How to take a partition. `start`: where a new record starts. `assigned`: assigned to us, so
    we may commit.
    """

    owner: SidecarId
    start: int
    assigned: bool
    accept_external: bool


@dataclass(frozen=True, slots=True)
class FoundRecord:
    """What the broker has committed. `external`: an external commit. `ours`: ackd's metadata, if it
    fits the position.
    """

    committed: Committed
    ours: CommittedProgress | None
    external: bool


def judge(key: LedgerKey, committed: Committed) -> FoundRecord:
    """Decide whose commit this is. Ranges count only if they were written for exactly this position
    (R8).
    """
    progress = decode(committed.metadata) if committed.offset >= 0 else None
    if progress is not None and progress.of_earlier_topic(key.cluster, key.topic_id):
        # Our commit, for a topic that was deleted since: its offsets mean nothing here (R1).
        return FoundRecord(Committed(-1, ""), None, external=False)
    if progress is not None and not progress.fits(key.cluster, key.topic_id, committed.offset):
        progress = None
    return FoundRecord(committed, progress, committed.offset >= 0 and progress is None)


class Recovery:
    """Opens one partition's record and brings it in line with the broker."""

    def __init__(
        self,
        context: Context,
        consumer: Consumer,
        partition: Partition,
        jump_ms: Callable[[], Awaitable[int]],
        resets: ExternalResets,
    ) -> None:
        self._jump_ms = jump_ms
        self._resets = resets
        self._context = context
        self._consumer = consumer
        self._partition = partition
        self._went_back = False

    async def _request(self, wish: Wish, create_at: int | None, term: int = 0) -> Open:
        """Make the store call that takes (term 0) or re-reads the record.

        Made just before it is sent: the clock jump must be that of the server run which decides.
        """
        return Open(
            key=self._partition.key,
            owner=wish.owner.text(),
            rollback_epoch=self._context.random_bits(ROLLBACK_EPOCH_BITS),
            incarnation=self._context.random_bits(INCARNATION_BITS) | 1,
            grace_ms=self._context.grace_ms,
            create_at=create_at,
            term=term,
            jump_ms=await self._jump_ms(),
        )

    async def take(self, wish: Wish, tp: TopicPartition) -> bool:
        """Take ownership. True if progress must be committed before anything is delivered.

        Raises StoreError, BrokerError; NotYetError when only the assigned member may decide.
        """
        key = self._partition.key
        found = judge(key, (await self._consumer.committed([tp]))[tp])
        if found.external and not wish.assigned:
            raise NotYetError("only the assigned member may judge an external commit")
        start = found.committed.offset if found.committed.offset >= 0 else wish.start
        snapshot = await self._open(await self._request(wish, start if wish.assigned else None))
        created = snapshot.created
        must_commit = await self._reconcile(wish, found, snapshot)
        if found.external and wish.accept_external:
            await self._end_copies(found, snapshot)
        if must_commit or snapshot.lost_chunks or snapshot.lost_origins:
            snapshot = await self._open(await self._request(wish, None, snapshot.term))
        slots, snapshot = snapshot.slots, replace(snapshot, slots=[], created=created)
        now_ms = self._context.clock.monotonic_ms()
        repair = self._partition.opened(snapshot)
        await fill(self._partition.ledger, slots, snapshot.now_ms, now_ms)
        await self._partition.repair(repair)
        return must_commit

    async def _open(self, request: Open) -> Snapshot:
        snapshot = await self._context.flusher.open(request, self._partition.handle)
        self._check(snapshot)
        return snapshot

    def _check(self, snapshot: Snapshot) -> None:
        """Count a possible rollback. Raises StoreLayoutError, StoreDataError, NotYetError."""
        if snapshot.verdict is CallStatus.FENCED:
            raise NotYetError("another sidecar owns the partition")
        if snapshot.verdict is CallStatus.LAYOUT:
            raise StoreLayoutError(f"{self._partition.tp}: a newer build made its record")
        if snapshot.verdict is not CallStatus.OK:
            raise StoreDataError(f"{self._partition.tp}: the record is {snapshot.verdict.name}")
        if snapshot.moved:
            self._context.metrics.possible_rollbacks.at().inc()

    async def _reconcile(self, wish: Wish, found: FoundRecord, snapshot: Snapshot) -> bool:
        """Make the record agree with the committed position. True if the position must be committed
        again.
        """
        ops: list[Op] = []
        key = self._partition.key
        if snapshot.lost_chunks:
            self._data_lost("chunks of finished offsets are gone")
            ops += [RemakeChunk(index) for index in snapshot.lost_chunks]
        if snapshot.lost_origins:  # alone: it must precede operations about origin records
            await self._write([self._no_origins()])
        if snapshot.lost_chunks or snapshot.created:
            ops += self._context.replay_log.known(key, snapshot.incarnation)
        if snapshot.created:
            if found.ours is not None:
                self._data_lost("the record is gone; starting from the committed position")
                ops += lacking(found.ours, snapshot)
            await self._write(ops)
            return True
        if found.external and found.committed.offset != snapshot.watermark:
            if wish.accept_external:
                await undo.keep(self._context.store, key, snapshot)
                await self._resets.begin(key, snapshot.epoch + 1, found.committed.offset)
            ops += self._external_commit(wish, found.committed.offset)
        elif found.ours is not None:
            ops += self._forgotten(found.ours, snapshot)
        await self._write(ops)
        earlier = found.ours is not None and found.ours.epoch != snapshot.epoch
        return bool(ops) or found.external or earlier

    def _forgotten(self, ours: CommittedProgress, snapshot: Snapshot) -> list[Op]:
        """Return operations that finish what ackd's commit, but not the record, has as finished."""
        ops = lacking(ours, snapshot)
        if _ahead(ours, snapshot):
            LOG.warning(
                "%s: the store may have gone back in time, as its watermark is below the position "
                "that ackd committed; ackd repairs the record",
                self._partition.tp,
            )
            ops = [*open_below(ours.base, snapshot), Advance(ours.base, repair=True), *ops]
        elif ops:
            LOG.warning(
                "%s: the store may have gone back in time: it lacks finished messages that ackd "
                "committed; ackd repairs the record",
                self._partition.tp,
            )
        if ops:
            self._context.metrics.possible_rollbacks.at().inc()
            self._finished_by_commit(ours, snapshot)
        return ops

    async def _end_copies(self, found: FoundRecord, snapshot: Snapshot) -> None:
        """End the copies of messages that come again, also when the sidecar that reset the record
        died before that.

        `snapshot`: from before the reset, if there was one now.
        """
        key = self._partition.key
        if not self._partition.ledger.holds_copies:
            now = found.committed.offset != snapshot.watermark
            ops = await self._resets.finish(key, snapshot.epoch + now)
            await self._write(ops)
            await self._resets.finished(key)

    def _finished_by_commit(self, progress: CommittedProgress, snapshot: Snapshot) -> None:
        """Note the range that only the commit calls finished (finished_by_commit): the origin
        records of copies in it may not know that these are finished (R19).
        """
        claims = self._partition.ledger.claims
        if claims is not None:
            end = max([progress.base, *(end for _, end in progress.ranges)])
            claims.read_over(snapshot.watermark, end)

    def _external_commit(self, wish: Wish, position: int) -> list[Op]:
        name, metrics = self._partition.key.subscription, self._context.metrics
        decision = "accepted" if wish.accept_external else "refused"
        metrics.external_commits.at(name, decision).inc()
        LOG.warning(
            "%s: another client committed offset %d for this group; by `external_commit` it was %s",
            self._partition.tp,
            position,
            decision,
        )
        return [Reset(position)] if wish.accept_external else []

    async def _write(self, ops: list[Op]) -> None:
        if ops:
            reply = await self._context.flusher.submit(self._partition.handle, ops)
            if reply.verdict is not CallStatus.OK:
                raise StoreError(f"{self._partition.tp}: {reply.verdict.name}")

    def _no_origins(self) -> Op:
        """Drop lost origin records; the new rollback epoch tells their copies so (R14)."""
        self._data_lost("origin records of moved messages are gone")
        rollback_epoch = self._context.random_bits(ROLLBACK_EPOCH_BITS)
        return ForgetOriginRecords(rollback_epoch)

    def _data_lost(self, what: str) -> None:
        self._partition.lost_data()
        LOG.error("%s: store data lost: %s", self._partition.tp, what)
        self._context.metrics.store_data_lost.at().inc()

    async def reread(self, wish: Wish) -> None:
        """Read the record again under the same term, after an unknown outcome or a change of the
        server run, and write back what the owner knows better. Raises StoreError, BrokerError.
        """
        ledger, handle = self._partition.ledger, self._partition.handle
        request = await self._request(wish, None, handle.term)
        unsure, self._went_back = self._went_back, True  # until the answer says that it did not
        snapshot = await self._context.flusher.open(request, handle)
        self._went_back = unsure or snapshot.moved
        ours = wish.owner.text()
        if snapshot.verdict is CallStatus.ABSENT:
            self._data_lost("the record is gone; rebuilt from memory")
        # We fenced ourselves: the store's answer to the rebuilding was lost.
        again = snapshot.verdict is CallStatus.FENCED and snapshot.previous_owner == ours
        if snapshot.verdict is CallStatus.ABSENT or again:
            request = await self._request(wish, ledger.watermark)
            snapshot = await self._context.flusher.open(request, handle)
            ledger.rebuilt(snapshot.epoch)
        self._check(snapshot)
        if snapshot.lost_chunks:
            self._data_lost("chunks of finished offsets are gone")
        if snapshot.lost_origins:
            await self._write([self._no_origins()])
            journal = snapshot.journal
            snapshot = await self._open(await self._request(wish, None, handle.term))
            snapshot = replace(snapshot, journal=[*journal, *snapshot.journal])
        repair = self._partition.opened(snapshot)
        with self._partition.mends():
            await self._partition.repair(repair, snapshot.lost_chunks)
            if self._went_back:
                await self._ask_commit(wish)
        self._went_back = False

    async def _ask_commit(self, wish: Wish) -> None:
        """Finish what another owner has finished and committed, if a rollback forgot that, and also
        that it had taken the partition from this one.

        A message that moved once more would get a generation that refuses the copy of its first
        move, and the next owner would find it finished by the commit: it would be lost (I1). The
        repair comes first, as it must not wait for the broker.
        """
        tp, ledger = self._partition.tp, self._partition.ledger
        ours = judge(self._partition.key, (await self._consumer.committed([tp]))[tp]).ours
        if ours is None or _known(ours, ledger):
            return
        snapshot = await self._open(await self._request(wish, None, self._partition.handle.term))
        await self._write(self._forgotten(ours, snapshot))
        snapshot = await self._open(await self._request(wish, None, self._partition.handle.term))
        await self._partition.repair(self._partition.opened(snapshot))


def _known(ours: CommittedProgress, ledger: Ledger[B]) -> bool:
    """Whether the owner's ledger has all as finished that the commit has."""
    if ours.base > ledger.watermark:
        return False
    ranges = [(max(start, ledger.watermark), end) for start, end in ours.ranges]
    return all(a >= b or ledger.finished.first_clear(a) >= b for a, b in ranges)


async def fill(ledger: Ledger[B], slots: Sequence[SlotView], store_ms: int, now_ms: int) -> None:
    """Load a record's slots into a ledger that is not in use yet; yield to other tasks in between.

    100,000 slots in one go would delay every deadline of this sidecar by a tenth of a second (I4).
    """
    for start in range(0, len(slots), SLOTS_BATCH):
        ledger.slots(slots[start : start + SLOTS_BATCH], store_ms, now_ms)
        await asyncio.sleep(0)


def lacking(progress: CommittedProgress, snapshot: Snapshot) -> list[Op]:
    """Return operations that finish what the commit, but not the record, has as finished (R8, R10).

    A commit of an earlier reset epoch does not count. An offset with a slot is finished by
    `ReplayFinished`, because a `Gap` would leave its lease alive.
    """
    if progress.epoch < snapshot.epoch:
        return []
    finished = ChunkedBitmap.of(snapshot.chunks)
    ops: list[Op] = []
    slots = [slot.offset for slot in snapshot.slots]
    for start, end in progress.ranges:
        first = max(start, snapshot.watermark)
        if finished.first_clear(first) < end:
            known = slots[bisect_left(slots, first) : bisect_left(slots, end)]
            ops += [ReplayFinished(offset) for offset in known]
            ops.append(Gap(first, end, repair=True))
    return ops


def open_below(position: int, snapshot: Snapshot) -> list[Op]:
    """Finish slots below the committed position that are leased or moving; their origin records go
    on (R2, R10).

    An `Advance` alone would hide from the lease's holder that there is an origin record.
    """
    return [
        ReplayFinished(slot.offset)
        for slot in snapshot.slots
        if slot.offset < position and slot.state in (State.MOVING, State.LEASED)
    ]


def _ahead(progress: CommittedProgress, snapshot: Snapshot) -> bool:
    """Whether the broker has a later position of the same epoch than the store, so the store went
    back.
    """
    return progress.epoch >= snapshot.epoch and progress.base > snapshot.watermark
