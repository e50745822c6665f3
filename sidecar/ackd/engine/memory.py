"""What this sidecar knows to be finished, kept for a while, in case the store forgets it (R10)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ackd.core.bitmap import ChunkedBitmap
from ackd.core.ids import LedgerKey
from ackd.core.states import Verb
from ackd.core.upkeep import epoch_mark
from ackd.core.wire import Op, Verdict
from ackd.errors import StoreError
from ackd.ports import Clock
from ackd.store.flusher import Flusher, LedgerHandle

KEEP_MS = 10_000
OFFSETS_MAX = 100_000
"""Most acks that are remembered, and most offsets that one let go ledger repeats."""
LEDGERS_MAX = 1_000
TOLD_MAX = 10_000
RETRY_MS = 50
REPLAY_WAIT_MS = 10_000
REPLAY_BATCH = 1_000


class _Acks(NamedTuple):
    since_ms: int
    key: LedgerKey
    epoch: int
    offsets: list[int]


class _Told(NamedTuple):
    since_ms: int
    key: LedgerKey
    ops: list[Op]


class _LetGo(NamedTuple):
    since_ms: int
    key: LedgerKey
    epoch: int
    finished: ChunkedBitmap
    homes: list[Op]

    def ops(self) -> list[Op]:
        """Homes of what was sent back, then replays; the last ones, if there are too many."""
        offsets: deque[int] = deque(maxlen=OFFSETS_MAX)
        for start, end in self.finished.ranges(0):
            offsets.extend(range(max(start, end - OFFSETS_MAX), end))
        return [*self.homes, *_ops(self.epoch, offsets, acked=False)]


class Memory:
    """Acks that were confirmed here, and what a partition's owner knew when it was superseded."""

    def __init__(self, flusher: Flusher, clock: Clock) -> None:
        self._flusher = flusher
        self._clock = clock
        self._acks: deque[_Acks] = deque()
        self._ack_count = 0
        self._let_go: deque[_LetGo] = deque()
        self._told: deque[_Told] = deque()

    def told(self, key: LedgerKey, ops: list[Op]) -> None:
        """What else was confirmed here, and may be repeated as it is."""
        now_ms = self._clock.monotonic_ms()
        self._told.append(_Told(now_ms, key, ops))
        while len(self._told) > TOLD_MAX or self._told[0].since_ms < now_ms - KEEP_MS:
            self._told.popleft()

    def acked(self, key: LedgerKey, epoch: int, offsets: list[int]) -> None:
        """Confirmed acks, of own partitions too: a rollback may forget the term."""
        now_ms = self._clock.monotonic_ms()
        self._acks.append(_Acks(now_ms, key, epoch, offsets))
        self._ack_count += len(offsets)
        while self._ack_count > OFFSETS_MAX or self._acks[0].since_ms < now_ms - KEEP_MS:
            self._ack_count -= len(self._acks.popleft().offsets)

    def let_go(
        self, key: LedgerKey, epoch: int, finished: ChunkedBitmap, homes: list[Op]
    ) -> None:  # fmt: skip
        """A ledger whose partition has another owner now; `finished` must not change any more."""
        self._let_go.append(_LetGo(self._clock.monotonic_ms(), key, epoch, finished, homes))
        self.purge()

    def purge(self) -> None:
        """Forget ledgers that were let go long ago."""
        old_ms = self._clock.monotonic_ms() - KEEP_MS
        while self._let_go and (
            len(self._let_go) > LEDGERS_MAX or self._let_go[0].since_ms < old_ms
        ):
            self._let_go.popleft()

    def _first(self) -> Iterator[_Told]:
        """What goes before all acks, of which some are for homes."""
        yield from self._told
        for each in self._let_go:
            yield _Told(each.since_ms, each.key, each.homes)

    def known(self, key: LedgerKey) -> list[Op]:
        """What is remembered of one partition, as replays."""
        ops = [op for each in self._first() if each.key == key for op in each.ops]
        for acks in self._acks:
            if acks.key == key:
                ops += _ops(acks.epoch, acks.offsets)
        for each in self._let_go:
            if each.key == key:
                ops += each.ops()
        return ops

    # --- the store's server run changed

    async def replay(self, subscription: str) -> None:
        """Repeat all that the store had confirmed to this sidecar.

        A record takes replays once its owner has re-opened it; after `REPLAY_WAIT_MS` nobody waits
        for that any more.
        """
        by_key: dict[LedgerKey, list[Op]] = {}
        for each in self._first():
            if each.key.subscription == subscription:
                by_key.setdefault(each.key, []).extend(each.ops)
        for acks in self._acks:
            if acks.key.subscription == subscription:
                by_key.setdefault(acks.key, []).extend(_ops(acks.epoch, acks.offsets))
        await self._replay_all(by_key)
        await self.replay_let_go(subscription)

    async def replay_let_go(self, subscription: str) -> None:
        """Repeat what was finished in partitions that this sidecar has let go; then forget it."""
        by_key: dict[LedgerKey, list[Op]] = {}
        kept: list[_LetGo] = []
        for each in self._let_go:
            if each.key.subscription != subscription:
                kept.append(each)
                continue
            by_key.setdefault(each.key, []).extend(each.ops())
        self._let_go = deque(kept)
        await self._replay_all(by_key)

    async def _replay_all(self, by_key: dict[LedgerKey, list[Op]]) -> None:
        end_ms = self._clock.monotonic_ms() + REPLAY_WAIT_MS
        # Side by side: a record that nobody has re-opened yet must not keep the others waiting.
        await asyncio.gather(*(self._replay(key, ops, end_ms) for key, ops in by_key.items()))

    async def _replay(self, key: LedgerKey, ops: list[Op], end_ms: int) -> None:
        for start in range(0, len(ops), REPLAY_BATCH):
            await self._send(LedgerHandle(key), ops[start : start + REPLAY_BATCH], end_ms)

    async def _send(self, handle: LedgerHandle, ops: list[Op], end_ms: int) -> None:
        while True:
            try:
                reply = await self._flusher.submit(handle, ops)
                if reply.verdict is Verdict.OK:
                    return
            except StoreError:
                pass  # away again: the next change of the run, or the end of the wait, decides
            if self._clock.monotonic_ms() >= end_ms:
                return
            await asyncio.sleep(RETRY_MS / 1000)


def _ops(epoch: int, offsets: Sequence[int], *, acked: bool = True) -> list[Op]:
    mark = epoch_mark(epoch)
    return [Op(Verb.REPLAY, offset, group=mark, counted=acked) for offset in offsets]
