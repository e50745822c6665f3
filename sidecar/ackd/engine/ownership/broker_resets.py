"""Somebody moves a group back at a broker with individual acks: noticed, and never swallowed (R8).

Such a broker gives the messages of a queue in the order of their offsets. A finished message that
comes again at its own offset was not lost and is no copy: the broker went back. After a crash it
does so by itself, by what it gave in its last seconds (I2); else somebody has reset the group. A
crash explains an offset only

- if the broker may have been away: a question failed, or this sidecar has just taken the partition;
- until all has come again that had come before; and
- if the offset was first given less than `gaps.BROKEN_MS` before that.

An adapter that can ask the broker since when it runs (`BrokerPositions`) leaves no doubt. Where
there is one, the messages are settled, and readiness says so.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, NamedTuple

import msgspec

from ackd.core.ids import LedgerKey, TopicPartition
from ackd.core.record.operations import Gap, Op, Reset
from ackd.core.record.protocol import Finish
from ackd.engine.base.context import Context
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.ownership import undo
from ackd.engine.ownership.expected import Expectation, Expected
from ackd.engine.ownership.gaps import BROKEN_MS, Gaps
from ackd.engine.ownership.records import Records
from ackd.engine.partition.partition import Partition
from ackd.errors import BrokerError, StoreError
from ackd.ports import BrokerSideAcks, Condition

LOG = logging.getLogger("ackd.engine")

GATHER_MS: Final = 500
"""Suspects are judged together after this, as answers come in any order."""
ANSWERS: Final = 128
"""So many messages of pending questions may come out of order."""
PAUSE_MS: Final = 30_000
"""A known reset is over when nothing of it has come for so long."""
LOCKED: Final = 64
"""With an order, the broker gives so many messages of a queue again when a hold of one ends."""
NOTE_MS: Final = 10_000
NOTE_KEEP_MS: Final = 30 * 86_400_000
SHOWN_MS: Final = 3_600_000
RANGES_MAX: Final = 900


class _GoneBack(Enum):
    CRASH = auto()
    RESET = auto()
    UNSURE = auto()


class _Mark(NamedTuple):
    """By then (Unix time) everything below `next` had been given."""

    at_ms: int
    next: int


class _Note(msgspec.Struct):
    """What is known of a partition's queue, for the next owner. `boot_ms`: of the broker, 0 = not
    known.
    """

    marks: list[tuple[int, int]] = []
    boot_ms: int = 0


@dataclass(slots=True)
class _WatchedQueue:
    """One owned partition. `back_until`: the broker may have crashed, and gives again what lies
    below; 0: it can't have. `passed_ms`: since when it has come to that offset again. `expected`:
    what ackd's own seek lets come again, and when that came last; `brought`: the broker says that
    it handed all of it out.
    """

    term: int
    note: _Note
    floor: int
    back_until: int
    broken_ms: int
    expected: Expectation | None
    expected_ms: int
    top: int = 0
    passed_ms: int = 0
    noted_ms: int = 0
    brought: bool = False
    retaken: bool = False


@dataclass(slots=True)
class _Suspects:
    """Finished messages that came again. `top`: below it all had been given before. `crashed`: the
    broker may have crashed when the first of them came.
    """

    since_ms: int
    top: int
    crashed: bool
    offsets: dict[int, None] = field(default_factory=dict)


@dataclass(slots=True)
class _Move:
    """A reset that was noticed: the messages of [start, until) come again. `top`: so far, and
    `came_ms` when.
    """

    start: int
    until: int
    accepted: bool
    top: int
    came_ms: int


class BrokerResets:
    """Watches one subscription's partitions. `drop`: let go of one, `take`: take it anew."""

    def __init__(
        self,
        state: SubscriptionState,
        consumer: BrokerSideAcks,
        context: Context,
        records: Records,
        gaps: Gaps,
        drop: Callable[[Partition], None],
        take: Callable[[TopicPartition], None],
    ) -> None:
        self._state = state
        self._consumer = consumer
        self._context = context
        self._records = records
        self._gaps = gaps
        self._drop = drop
        self._take = take
        self._expected = Expected(context.store)
        self._watches: dict[TopicPartition, _WatchedQueue] = {}
        self._suspects: dict[Partition, _Suspects] = {}
        self._moves: dict[TopicPartition, _Move] = {}
        self._shown: deque[tuple[int, str]] = deque()

    def again(self, partition: Partition, offsets: Sequence[int], top: int) -> list[int]:
        """These are finished, and came again at their own offsets; before them the broker had given
        all below `top`. Returns those that the broker may forget now; the others are kept until it
        is clear why they came.
        """
        ordered = self._state.configured.ordering != "none"
        bound = max(top, offsets[-1] + 1) - (LOCKED if ordered else 0)
        found = [each for each in offsets if each < bound]
        if found:
            now_ms = self._context.clock.monotonic_ms()
            crashed = self._may_have_crashed(partition)
            suspects = self._suspects.setdefault(partition, _Suspects(now_ms, top, crashed))
            suspects.crashed |= crashed
            suspects.offsets.update(dict.fromkeys(found))
        return [each for each in offsets if each >= bound]

    def _may_have_crashed(self, partition: Partition) -> bool:
        watch = self._watches.get(partition.tp)
        if watch is None or (watch.term != partition.handle.term and not watch.retaken):
            return True
        broken_ms = self._gaps.seen(partition.tp.topic).broken_ms
        return watch.back_until > 0 or broken_ms != watch.broken_ms

    def suspected(self, partition: Partition, offset: int) -> bool:
        """Whether it is not yet clear why this message came again."""
        suspects = self._suspects.get(partition)
        return suspects is not None and offset in suspects.offsets

    async def look(self, partitions: Sequence[Partition]) -> None:
        """Judge what has been gathered, and note how far the queues are. Called every half
        second.
        """
        now_ms = self._context.clock.monotonic_ms()
        while self._shown and self._shown[0][0] <= now_ms:
            self._state.clear(self._shown.popleft()[1])
        try:
            for partition in partitions:
                await self._follow(partition, await self._watch(partition), now_ms)
            # Before anything new is noted: they are judged by what was known when they came.
            for partition, suspects in list(self._suspects.items()):
                if partition.closed:
                    del self._suspects[partition]  # given back to the broker
                elif now_ms - suspects.since_ms >= GATHER_MS:
                    await self._judge(partition, suspects)
                    del self._suspects[partition]
            for partition in partitions:
                watch = await self._watch(partition)
                if now_ms - watch.noted_ms >= NOTE_MS and not partition.closed:
                    watch.noted_ms = now_ms
                    await self._push(partition.tp, partition.key, watch)
                    await self._note(partition, watch)
        except (StoreError, BrokerError) as error:
            LOG.info("%s: ackd tries again: %s", self._state.name, error.detail)

    # --- whether the broker may have crashed

    async def _watch(self, partition: Partition) -> _WatchedQueue:
        """What is known of a partition. If it was just taken, nobody knows what its broker did
        before, unless this sidecar only took it anew.
        """
        tp, term = partition.tp, partition.handle.term
        watch = self._watches.get(tp)
        if watch is not None and watch.retaken:
            watch.term, watch.retaken = term, False
        if watch is not None and watch.term == term:
            return watch
        raw = await self._context.store.get(self._name(partition))
        try:
            note = _Note() if raw is None else msgspec.json.decode(raw, type=_Note)
        except msgspec.DecodeError:
            note = _Note()
        expected = await self._expected.of(partition.key)
        ledger, drew = partition.ledger, self._gaps.seen(tp.topic)
        highest = ledger.finished.highest()
        end = ledger.watermark if highest is None else max(ledger.watermark, highest + 1)
        floor = _floor(note, note.marks[-1][0] if note.marks else 0)
        now_ms = self._context.clock.monotonic_ms()
        watch = _WatchedQueue(term, note, floor, end, drew.broken_ms, expected, now_ms)
        self._watches[tp] = watch
        return watch

    async def _follow(self, partition: Partition, watch: _WatchedQueue, now_ms: int) -> None:
        drew = self._gaps.seen(partition.tp.topic)
        if drew.broken_ms != watch.broken_ms:
            at_ms = self._context.clock.wall_ms() - (now_ms - drew.broken_ms)
            watch.broken_ms, watch.passed_ms = drew.broken_ms, 0
            watch.floor = _floor(watch.note, at_ms)
            # What was given since may be taken back more than once, until it is written down.
            kept = [each for each in watch.note.marks if each[0] <= at_ms - BROKEN_MS]
            watch.note.marks = kept
            watch.back_until = max(watch.back_until, watch.top)
        since = self._gaps.since_of(partition)
        watch.top = max(watch.top, since)
        if since < watch.back_until:
            watch.passed_ms = 0
        elif watch.back_until and not watch.passed_ms:
            watch.passed_ms = now_ms
        elif drew.through_ms >= watch.passed_ms:
            watch.back_until = 0
        await self._sought(partition, watch, since, now_ms)

    async def _sought(
        self, partition: Partition, watch: _WatchedQueue, since: int, now_ms: int
    ) -> None:
        """Wait until all has come that ackd's own seek lets come again."""
        expected, code = watch.expected, f"seek/{partition.tp}"
        if expected is None:
            return
        first = self._gaps.first_of(partition)
        if expected.by_hand and first is not None and first < expected.until:
            expected = watch.expected = msgspec.structs.replace(expected, by_hand="")
            await self._expected.note(partition.key, expected)
            self._state.clear(code)
        if expected.by_hand:
            detail = (
                f"{partition.tp}: the seek waits for the broker, which has to go back to offset "
                f"{expected.start}, too: run {expected.by_hand}"
            )
            if self._state.report(Condition(code, detail, warning=True)):
                LOG.warning("%s: %s", self._state.name, detail)
        if since < expected.until and not watch.brought:
            watch.expected_ms = now_ms
        elif now_ms - watch.expected_ms >= PAUSE_MS:
            await self._expected.over(partition.key)
            self._state.clear(code)
            watch.expected = None

    async def _push(self, tp: TopicPartition, key: LedgerKey, watch: _WatchedQueue) -> None:
        """See how far the broker is with ackd's own seek. One that was started again meanwhile may
        have forgotten where it had to begin.
        """
        expected, positions = watch.expected, self._state.broker_positions
        if expected is None or positions is None or not positions.on:
            return
        boot_ms = await positions.booted_ms(tp)
        if expected.boot_ms and boot_ms != expected.boot_ms and watch.top < expected.until:
            await positions.move({tp: max(expected.start, watch.top)})
            expected = watch.expected = msgspec.structs.replace(expected, boot_ms=boot_ms)
            await self._expected.note(key, expected)
        watch.brought = await positions.group_offset(tp) >= expected.until

    async def _note(self, partition: Partition, watch: _WatchedQueue) -> None:
        """Note how far the queue is, unless the broker may have gone back."""
        boot_ms = await self._boot_ms(partition.tp)
        if watch.back_until or not watch.top or partition in self._suspects:
            return
        note, mark = watch.note, (self._context.clock.wall_ms(), watch.top)
        last_ms, last = note.marks[-1] if note.marks else (0, 0)
        if note.boot_ms == boot_ms and last == watch.top and mark[0] - last_ms < BROKEN_MS:
            return
        note.boot_ms = boot_ms
        note.marks = [*note.marks[-2 * BROKEN_MS // NOTE_MS :], mark]
        raw = msgspec.json.encode(note)
        await self._context.store.put(self._name(partition), raw, NOTE_KEEP_MS)

    async def _boot_ms(self, tp: TopicPartition) -> int:
        """When the broker was started; 0: it can't be asked."""
        positions = self._state.broker_positions
        return await positions.booted_ms(tp) if positions is not None and positions.on else 0

    def _name(self, partition: Partition) -> str:
        return f"given:{partition.key.text()}"

    # --- what comes again

    async def _judge(self, partition: Partition, suspects: _Suspects) -> None:
        tp, watch = partition.tp, await self._watch(partition)
        offsets = sorted(suspects.offsets)
        offsets = self._unexpected(partition, watch, offsets)
        if not offsets:
            return
        first = offsets[0]
        verdict = await self._why(partition, watch, offsets, crashed=suspects.crashed)
        if verdict is _GoneBack.RESET:
            await self._was_reset(partition, watch, offsets, suspects.top)
            return
        if verdict is _GoneBack.UNSURE:
            self._tell(
                f"came-again/{tp}",
                f"{tp}: {len(offsets)} finished messages came again from offset {first} on, after "
                "the broker or ackd was away; ackd took them for those that the broker forgets in "
                "a crash and settled them: if somebody reset the group, `ackd seek` brings them",
            )
        self._settle(partition, offsets)

    def _unexpected(
        self, partition: Partition, watch: _WatchedQueue, offsets: Sequence[int]
    ) -> list[int]:
        """Settle what a known reset brings, and return the rest."""
        now_ms = self._context.clock.monotonic_ms()
        known = [] if watch.expected is None else watch.expected.finished
        expected = {o for o in offsets if any(a <= o < b for a, b in known)}
        move = self._moves.get(partition.tp)
        if move is not None and not move.accepted and now_ms - move.came_ms < PAUSE_MS:
            first = max(move.start, move.top - ANSWERS)
            brought = {o for o in offsets if first <= o < move.until}
            if brought:
                move.top, move.came_ms = max(move.top, *brought), now_ms
            expected |= brought
        self._settle(partition, sorted(expected))
        return [each for each in offsets if each not in expected]

    async def _why(
        self,
        partition: Partition,
        watch: _WatchedQueue,
        offsets: Sequence[int],
        *,
        crashed: bool,
    ) -> _GoneBack:
        tp, offset = partition.tp, offsets[0]
        move = self._moves.get(tp)
        if move is not None and self._goes_on(move, partition, offsets):
            return _GoneBack.RESET
        if not crashed or offset < watch.floor:
            return _GoneBack.RESET
        boot_ms = await self._boot_ms(tp)
        if not boot_ms or not watch.note.boot_ms:
            return _GoneBack.UNSURE
        return _GoneBack.RESET if boot_ms == watch.note.boot_ms else _GoneBack.CRASH

    def _goes_on(self, move: _Move, partition: Partition, offsets: Sequence[int]) -> bool:
        """Whether a reset that was accepted brings this, too: another answer of it came first."""
        if not move.accepted or offsets[-1] >= move.start:
            return False
        lately = self._context.clock.monotonic_ms() - move.came_ms < PAUSE_MS
        return lately or self._gaps.next_of(partition) < move.until

    async def _was_reset(
        self, partition: Partition, watch: _WatchedQueue, offsets: Sequence[int], top: int
    ) -> None:
        """Somebody reset the group: go on from there, or keep what is finished, as is set."""
        tp, name, first = partition.tp, self._state.name, offsets[0]
        accepted = self._state.settings.external_commit == "accept"
        before = self._moves.get(tp)
        if before is not None and not self._goes_on(before, partition, offsets):
            before = None
        until = max(top, offsets[-1] + 1) if before is None else before.until
        if accepted:
            new, watch.retaken = before is None, True
            await self._move(partition, first, until if before is None else before.start, new=new)
        now_ms = self._context.clock.monotonic_ms()
        self._moves[tp] = _Move(first, until, accepted, offsets[-1], now_ms)
        decision = "accepted" if accepted else "refused"
        self._context.metrics.external_commits.at(name, decision).inc()
        then = "all from there on comes again" if accepted else "what is finished stays finished"
        self._tell(
            f"reset/{tp}",
            f"{tp}: somebody reset the group at the broker, to offset {first} or before; by "
            f"`external_commit` that was {decision}: {then}",
        )
        if not accepted:
            self._settle(partition, offsets)

    async def _move(self, partition: Partition, offset: int, end: int, *, new: bool) -> None:
        """Forget what is finished in [offset, end): what is beyond was given after the reset.

        Let go of the partition first, as it would write its own watermark again.
        """
        self._drop(partition)
        while True:
            if await self._moved(partition.key, offset, end, new=new):
                break
            await asyncio.sleep(GATHER_MS / 1000)
        self._take(partition.tp)

    async def _moved(self, key: LedgerKey, offset: int, end: int, *, new: bool) -> bool:
        try:
            taken = await self._records.take(key, None)
            if taken is None:
                return True
            handle, snapshot = taken
            if new:
                await undo.keep(self._context.store, key, snapshot)
            kept = undo.window(snapshot)
            ranges = [(0, kept.offset), *kept.finished][:RANGES_MAX]
            ops: list[Op] = [Reset(offset)]
            ops += [Gap(max(a, end), b, Finish.SKIPPED) for a, b in ranges if max(a, end) < b]
            await self._records.decide(handle, ops)
        except StoreError as error:
            self._state.health.fails(f"{key.text()}: {error.detail}")
            return False
        return True

    def _settle(self, partition: Partition, offsets: Sequence[int]) -> None:
        if offsets:
            self._context.metrics.acked_again.at(self._state.name).inc(len(offsets))
            self._consumer.finished(partition.tp, offsets)

    def _tell(self, code: str, detail: str) -> None:
        LOG.warning("%s: %s", self._state.name, detail)
        self._state.report(Condition(code, detail, warning=True))
        self._shown.append((self._context.clock.monotonic_ms() + SHOWN_MS, code))


def _floor(note: _Note, at_ms: int) -> int:
    """No crash at this time or later brings what lies below the offset returned."""
    return max((top for marked_ms, top in note.marks if marked_ms <= at_ms - BROKEN_MS), default=0)
