"""Replay log: what this sidecar knows to be finished or leased, kept for a while in case the store
forgets it (R10).

A released ledger is that of a released partition.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ackd.core.bitmap import ChunkedBitmap
from ackd.core.ids import LedgerKey
from ackd.core.ledger.sent_back import Lease, LeftOpen
from ackd.core.record.maintenance import epoch_mark
from ackd.core.record.operations import Op, ReplayAck, ReplayFinished, Settle
from ackd.core.record.protocol import CallStatus, OpResult
from ackd.core.record.transitions import Outcome
from ackd.errors import StoreError
from ackd.ports import Clock
from ackd.store.flusher import Flusher, LedgerHandle

KEEP_MS = 10_000
OFFSETS_MAX = 100_000
"""Most acks that are remembered, and most offsets replayed for one released partition."""
LEDGERS_MAX = 1_000
CONFIRMED_KEEP_MS = 540_000
"""Operations about origin records are remembered for nearly as long as the store keeps a finished
origin record, so that a store which was set back by minutes gets them again.
"""
CONFIRMED_MAX = 10_000
"""Most operations of that kind."""
EXTENDED_MAX = 100_000
RETRY_MS = 50
"""Constant: leases end while a replay waits."""
REPLAY_WAIT_MS = 10_000
UNOPENED_WAIT_MS = 120_000
"""How long a replay waits for an owner to re-open the record: a group waits 45 s for a dead member,
and moves its partitions then. No sidecar grants anything from it meanwhile.
"""
UNOPENED_RETRY_MS = 500
"""Pause between tries once `REPLAY_WAIT_MS` are over; much shorter than the wait for replays."""
UNREPAIRED_TRIES = 10
REPLAY_BATCH = 1_000


_Parts = dict[int, list[Op]]
"""Operations by incarnation of the record, 0 = whichever there is."""


class _Acks(NamedTuple):
    since_ms: int
    key: LedgerKey
    epoch: int
    offsets: list[int]


class _Confirmed(NamedTuple):
    since_ms: int
    key: LedgerKey
    incarnation: int
    ops: Sequence[Op]


class _Released(NamedTuple):
    since_ms: int
    key: LedgerKey
    incarnation: int
    epoch: int
    finished: ChunkedBitmap
    open: LeftOpen
    repeated_to: list[str]

    def ops(self) -> list[Op]:
        """Return the finished offsets as replays; the last ones, if there are too many."""
        offsets: deque[int] = deque(maxlen=OFFSETS_MAX)
        for start, end in self.finished.ranges(0):
            offsets.extend(range(max(start, end - OFFSETS_MAX), end))
        return _ops(self.epoch, offsets, acked=False)


class ReplayLog:
    """Acks that were confirmed here, and what the former owner of a released partition knew."""

    def __init__(
        self, flusher: Flusher, clock: Clock, run: Callable[[], str] = lambda: ""
    ) -> None:  # fmt: skip
        self._flusher = flusher
        self._run = run
        self._clock = clock
        self._acks: deque[_Acks] = deque()
        self._ack_count = self._confirmed_count = 0
        self._released: deque[_Released] = deque()
        self._confirmed: deque[_Confirmed] = deque()
        self._extended: OrderedDict[tuple[LedgerKey, int], tuple[int, Lease]] = OrderedDict()

    def confirmed(self, key: LedgerKey, incarnation: int, ops: Sequence[Op]) -> None:
        """Keep other confirmed operations that may be repeated as they are. They are about origin
        records, so they mean nothing to a record that was made anew.
        """
        now_ms = self._clock.monotonic_ms()
        self._confirmed.append(_Confirmed(now_ms, key, incarnation, ops))
        self._confirmed_count += len(ops)
        old_ms = now_ms - CONFIRMED_KEEP_MS
        while self._confirmed_count > CONFIRMED_MAX or self._confirmed[0].since_ms < old_ms:
            self._confirmed_count -= len(self._confirmed.popleft().ops)

    def acked(self, key: LedgerKey, epoch: int, offsets: list[int]) -> None:
        """Keep confirmed acks, of own partitions too: a rollback may forget the ownership term."""
        now_ms = self._clock.monotonic_ms()
        self._acks.append(_Acks(now_ms, key, epoch, offsets))
        self._ack_count += len(offsets)
        while self._ack_count > OFFSETS_MAX or self._acks[0].since_ms < now_ms - KEEP_MS:
            self._ack_count -= len(self._acks.popleft().offsets)

    def acked_in_origin(
        self, key: LedgerKey, incarnation: int, epoch: int, moved: Sequence[tuple[int, int]]
    ) -> None:  # fmt: skip
        """Keep acks of moved messages: (offset, generation), so that they outlive the origin
        record.
        """
        mark = epoch_mark(epoch)
        ops = [ReplayAck(offset, fence, mark=mark) for offset, fence in moved]
        self.confirmed(key, incarnation, ops)

    def extended(self, key: LedgerKey, leases: Sequence[Lease]) -> None:
        """Keep confirmed extensions that the owner of the record may not know: of each lease the
        last.

        `due_ms` is on the clock of this sidecar.
        """
        now_ms, known = self._clock.monotonic_ms(), self._extended
        for lease in leases:
            place = key, lease.offset
            known[place] = now_ms, lease
            known.move_to_end(place)
        while len(known) > EXTENDED_MAX:
            known.popitem(last=False)
        self._purge_extended()

    def released(
        self, handle: LedgerHandle, epoch: int, finished: ChunkedBitmap, left: LeftOpen
    ) -> None:  # fmt: skip
        """Keep what a released partition's ledger knew; `finished` must not change any more."""
        now_ms = self._clock.monotonic_ms()
        gone = _Released(now_ms, handle.key, handle.incarnation, epoch, finished, left, [])
        self._released.append(gone)
        self.purge()

    def purge(self) -> None:
        """Forget released partitions and extensions that are older than `KEEP_MS`."""
        self._purge_extended()
        old_ms = self._clock.monotonic_ms() - KEEP_MS
        while self._released and (
            len(self._released) > LEDGERS_MAX or self._released[0].since_ms < old_ms
        ):
            self._released.popleft()

    def _purge_extended(self) -> None:
        old_ms = self._clock.monotonic_ms() - KEEP_MS
        while self._extended and next(iter(self._extended.values()))[0] < old_ms:
            self._extended.popitem(last=False)

    def _first(self) -> Iterator[_Confirmed]:
        """Yield what must be replayed before all acks, because some acks are for origin records."""
        now_ms = self._clock.monotonic_ms()
        yield from self._confirmed
        for each in self._released:
            yield _Confirmed(each.since_ms, each.key, each.incarnation, each.open.ops(now_ms))

    def known(self, key: LedgerKey, incarnation: int) -> list[Op]:
        """Return all that is remembered of one partition, as replays."""
        records = (each for each in self._first() if each.key == key)
        ops = [op for each in records if each.incarnation == incarnation for op in each.ops]
        for acks in self._acks:
            if acks.key == key:
                ops += _ops(acks.epoch, acks.offsets)
        for each in self._released:
            if each.key == key:
                ops += each.ops()
        return ops

    # --- the store's server run changed

    async def replay(self, subscription: str) -> None:
        """Repeat all that the store had confirmed to this sidecar.

        A record accepts replays once its owner has re-opened it; the replay waits for that.
        """
        self.purge()
        now_ms = self._clock.monotonic_ms()
        by_key: dict[LedgerKey, _Parts] = {}
        for each in self._confirmed:
            if each.key.subscription == subscription:
                _add(by_key, each.key, each.incarnation, each.ops)
        for acks in self._acks:
            if acks.key.subscription == subscription:
                _add(by_key, acks.key, 0, _ops(acks.epoch, acks.offsets))
        for (key, _), (_, lease) in self._extended.items():
            if key.subscription == subscription and lease.due_ms > now_ms:
                _add(by_key, key, 0, [lease.again(now_ms)])
        self._add_released(by_key, subscription)
        await self._replay_all(by_key)

    async def replay_released(self, subscription: str) -> None:
        """Repeat what was finished in released partitions; once for each server run, because the
        next run may have forgotten it again.
        """
        self.purge()
        by_key: dict[LedgerKey, _Parts] = {}
        self._add_released(by_key, subscription)
        await self._replay_all(by_key)

    def _add_released(self, by_key: dict[LedgerKey, _Parts], subscription: str) -> None:
        """Add what was not repeated to this server run yet."""
        now_ms = self._clock.monotonic_ms()
        for each in self._released:
            if each.key.subscription != subscription or each.repeated_to == [self._run()]:
                continue
            each.repeated_to[:] = [self._run()]
            _add(by_key, each.key, each.incarnation, each.open.ops(now_ms))
            _add(by_key, each.key, 0, each.ops())

    async def _replay_all(self, by_key: dict[LedgerKey, _Parts]) -> None:
        now_ms, run = self._clock.monotonic_ms(), self._run()
        # Side by side: a record that nobody has re-opened yet must not keep the others waiting.
        replays = (self._replay(key, parts, now_ms, run) for key, parts in by_key.items())
        await asyncio.gather(*replays)

    async def _replay(self, key: LedgerKey, parts: _Parts, since_ms: int, run: str) -> None:
        """Replay to one record: operations about origin records first, to the incarnation that had
        them.
        """
        for incarnation, ops in sorted(parts.items(), reverse=True):
            for start in range(0, len(ops), REPLAY_BATCH):
                handle = LedgerHandle(key, incarnation=incarnation)
                await self._send(handle, ops[start : start + REPLAY_BATCH], since_ms, run)

    async def _send(self, handle: LedgerHandle, ops: list[Op], since_ms: int, run: str) -> None:
        """Send `ops`, which are as of `since_ms`, until the record accepts them.

        Ends when the server run changes once more, because all is repeated to the new run, too.
        `run`: that of the server when the replay began, "" = the store was away, and its first run
        after that counts: when a run is back that it had before, nobody repeats anything again.
        """
        clock, tries, made_ms = self._clock, UNREPAIRED_TRIES, since_ms
        end_ms = since_ms + REPLAY_WAIT_MS
        while ops:
            try:
                reply = await self._flusher.submit(handle, ops)
                if reply.verdict is CallStatus.OK:
                    tries -= 1
                    ops = _unrepaired(ops, reply.results) if tries else []
                elif reply.verdict is CallStatus.ABSENT and handle.incarnation:
                    return
                elif reply.verdict is CallStatus.MOVED:
                    # The record's repair begins when its owner re-opens it (R10), however late.
                    end_ms = clock.monotonic_ms() + REPLAY_WAIT_MS
            except StoreError:
                pass  # the store is away: the next server run, or the end of the wait, decides
            now_ms = clock.monotonic_ms()
            if not ops or now_ms >= min(end_ms, since_ms + UNOPENED_WAIT_MS):
                return
            run = run or self._run()
            if self._run() not in ("", run):
                return
            late = now_ms >= since_ms + REPLAY_WAIT_MS
            await asyncio.sleep((UNOPENED_RETRY_MS if late else RETRY_MS) / 1000)
            now_ms = clock.monotonic_ms()
            ops, made_ms = _aged(ops, now_ms - made_ms), now_ms


def _add(
    by_key: dict[LedgerKey, _Parts], key: LedgerKey, incarnation: int, ops: Sequence[Op]
) -> None:  # fmt: skip
    if ops:
        by_key.setdefault(key, {}).setdefault(incarnation, []).extend(ops)


def _ops(epoch: int, offsets: Sequence[int], *, acked: bool = True) -> list[Op]:
    mark = epoch_mark(epoch)
    if acked:
        return [ReplayAck(offset, mark=mark) for offset in offsets]
    return [ReplayFinished(offset, mark) for offset in offsets]


def _unrepaired(ops: list[Op], results: Sequence[OpResult]) -> list[Op]:
    """Return the leases whose origin records another sidecar must restore first."""
    pairs = zip(ops, results, strict=True)
    return [op for op, result in pairs if result.outcome is Outcome.UNREPAIRED]


def _aged(ops: list[Op], passed_ms: int) -> list[Op]:
    """Shorten replayed leases by the time that passed, so each ends when its holder expects."""
    aged: list[Op] = []
    for op in ops:
        if not isinstance(op, Settle):
            aged.append(op)
        elif op.for_ms > passed_ms:
            aged.append(op._replace(for_ms=op.for_ms - passed_ms))
    return aged
