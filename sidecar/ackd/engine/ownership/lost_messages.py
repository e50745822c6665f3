"""Messages that a broker with individual acks gave, lost, and will not bring again: found by their
offsets, read from its log, and delivered (I1).

RocketMQ loses some of what a poll draws that is broken off, as by the kill of a sidecar. Such an
offset is below what the broker has given the group, unfinished, in nobody's memory, and does not
come as a copy either. Reading it is safe whenever it is done (I2), as its message id is asked for:

- The store answers one place for an id. If the message came as a copy under another place, that
  place says whether it is finished. If it comes later, it comes under the place given here.
- That holds while the store knows all ids that came since the broker gave the message. So each look
  notes in the record's note how much of the time had passed that counts for ids. A message that was
  missing for longer, while nobody could look, is not delivered but named.

Offsets below the note's start are nobody's here: what the group had before ackd came.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakKeyDictionary

from ackd.core.ids import TopicPartition
from ackd.core.ledger.unordered import UnorderedLedger
from ackd.core.log_generations import partition_of, split
from ackd.core.sources import COPIES
from ackd.engine.base.context import Context
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.ownership.first_positions import (
    NO_RECORD,
    NOTE_KEEP_MS,
    FirstPositions,
    next_given,
    note_name,
)
from ackd.engine.partition.owned import OwnedPartitions, Topics
from ackd.engine.partition.partition import Partition
from ackd.errors import BrokerError, StoreError
from ackd.ports import Arrival, AssignedPlace, BrokerPositions, Condition, KnownAt, LogPart, Record

LOG = logging.getLogger("ackd.engine")

LOST_MS: Final = 30_000
"""What is missing for a hold and so much longer will not come by itself: a copy comes some seconds
after the hold.
"""
LOOK_MS: Final = 10_000
HURRIED_MS: Final = 5_000
"""Ids are asked for so often, and not only after `LOST_MS`, once a third of the time is over for
which the store knows them: an owner was killed before it could look.
"""
READS_MAX: Final = 32
"""Questions to the broker for messages, of one partition at a time (I8)."""
KEPT_MAX: Final = 10_000
"""Messages that were read and are unfinished; while there are more, none is read (I8)."""


@dataclass(frozen=True, slots=True)
class _Mark:
    """How far the broker had given when, and the time of ids (`KnownAt.active_ms`) then."""

    at_ms: int
    given: int
    active_ms: int


@dataclass(slots=True)
class _Watched:
    """Since this sidecar owns it. `start`: what is missing from here on is found. `active_ms`: when
    all that was missing was looked up last. [`doubted`, `start`): may have been given for so long
    that ids of copies are forgotten. `next`: where a look goes on that took too long.
    """

    start: int
    active_ms: int
    doubted: int
    done_ms: int
    noted: bytes = b""
    looked_ms: int = 0
    next: int = 0
    hurried: bool = False
    marks: deque[_Mark] = field(default_factory=deque)


# tidy: long-class attributes=16 -- what it is given, and what it knows of partitions
class LostMessages:
    """Looks for them in one subscription's partitions. `take` gives messages to their ledger;
    `waits`: whether a seek may bring messages of a partition; `clock_of`: a partition in whose
    block ids of a partition's copies are known; `keep_ms`: for how long.
    """

    def __init__(
        self,
        state: SubscriptionState,
        context: Context,
        partitions: OwnedPartitions,
        topics: Topics,
        waits: Callable[[Partition], bool],
        take: Callable[[Partition, list[Record]], None],
        clock_of: Callable[[TopicPartition], int],
        keep_ms: int,
        hold_ms: int,
    ) -> None:
        self._state = state
        self._context = context
        self._partitions = partitions
        self._waits = waits
        self._take = take
        self._clock_of = clock_of
        self._keep_ms = keep_ms
        self._lost_ms = hold_ms + LOST_MS
        self._watches: WeakKeyDictionary[Partition, _Watched] = WeakKeyDictionary()
        self._came: WeakKeyDictionary[Partition, int] = WeakKeyDictionary()
        self._ends: WeakKeyDictionary[Partition, deque[tuple[int, int]]] = WeakKeyDictionary()
        self._read: dict[TopicPartition, dict[int, bytes]] = {}
        self._reported: set[TopicPartition] = set()
        self._first = FirstPositions(state, context, topics, clock_of, keep_ms)
        self._failed: WeakKeyDictionary[Partition, str] = WeakKeyDictionary()

    async def begins(self, found: Sequence[TopicPartition]) -> None:
        """Note where the broker is before this sidecar draws from these."""
        await self._first.begins(found)

    def came(self, partition: Partition, offsets: Iterable[int]) -> None:
        """The broker gave these at their own offsets: from there on all is the group's."""
        lowest = min(offsets, default=None)
        if lowest is not None:
            self._came[partition] = min(lowest, self._came.get(partition, lowest))

    def kept(self, topic: str) -> list[tuple[bytes, AssignedPlace]]:
        """Messages that were read here and are unfinished: no hold of the broker stands for them,
        and their ids have to stay known.
        """
        found = []
        for tp, read in list(self._read.items()):
            partition = self._partitions.owned.get(tp)
            if partition is None:
                del self._read[tp]
            elif tp.topic == topic:
                for offset in [each for each in read if partition.ledger.over(each)]:
                    del read[offset]
                found += [(id_, AssignedPlace(tp.partition, each)) for each, id_ in read.items()]
        return found

    def owes(self, partition: Partition) -> bool:
        """Whether something may be missing that this could not look for lately."""
        positions = self._state.broker_positions
        if positions is None or not positions.on or not self._is_watched(partition):
            return False
        watch = self._watches.get(partition)
        now_ms = self._context.clock.monotonic_ms()
        late_ms = self._lost_ms + 6 * LOOK_MS
        return watch is None or now_ms - watch.done_ms > late_ms

    def _is_watched(self, partition: Partition) -> bool:
        """Not where an order is kept: there the broker comes back to what has no ack. Nor copies,
        whose originals are looked for, nor a log that goes on in another partition.
        """
        number, generation = split(partition.tp.partition)
        if self._state.configured.ordering != "none" or number >= COPIES:
            return False
        later = TopicPartition(partition.tp.topic, partition_of(number, generation + 1))
        return later not in self._partitions.owned

    async def look(self, partitions: Sequence[Partition]) -> None:
        """Find what is due. Called about every half second."""
        positions = self._state.broker_positions
        if positions is None:
            return
        owned = {each.tp for each in partitions}
        for tp in self._reported - owned:
            self._clear(tp)
        for partition in partitions:
            now_ms = self._context.clock.monotonic_ms()
            ledger = partition.ledger
            if (
                not isinstance(ledger, UnorderedLedger)
                or not self._is_watched(partition)
                or self._waits(partition)
            ):
                self._clear(partition.tp)
                continue
            reason = "" if positions.on else "it can't be asked for them: set `name_servers`"
            if positions.on:
                try:
                    if await self._look(partition, ledger, positions, now_ms):
                        self._failed.pop(partition, None)
                except (StoreError, BrokerError) as error:
                    LOG.debug("%s: ackd looks again: %s", partition.tp, error.detail)
                    self._failed[partition] = error.detail
                if partition in self._failed and self.owes(partition):
                    reason = f"it can't be asked for them now: {self._failed[partition]}"
            self._tell(partition, ledger, now_ms, reason)

    # --- what is missing

    async def _look(
        self,
        partition: Partition,
        ledger: UnorderedLedger[Record],
        positions: BrokerPositions,
        now_ms: int,
    ) -> bool:
        """Returns whether it was time for it."""
        watch = self._watches.get(partition)
        if watch is not None:
            pause_ms = HURRIED_MS if watch.hurried else LOOK_MS
            if not watch.next and now_ms - watch.looked_ms < pause_ms:
                return False
            watch.looked_ms = now_ms
        given = await positions.group_offset(partition.tp)
        active_ms = (await self._look_up(partition, ())).active_ms
        if watch is None:
            watch = await self._begin(partition, positions, active_ms, now_ms)
        came = self._came.pop(partition, watch.start)
        watch.start, watch.doubted = min(watch.start, came), min(watch.doubted, came)
        if not self._is_sure(watch, active_ms):
            self._doubt(partition, watch, given, active_ms)
        watch.marks.append(_Mark(now_ms, given, active_ms))
        while len(watch.marks) > 1 and watch.marks[1].at_ms <= now_ms - self._lost_ms:
            watch.marks.popleft()
        usual_ms = max(self._keep_ms // 3, self._lost_ms + 2 * LOOK_MS)
        watch.hurried = active_ms - watch.active_ms > usual_ms
        after_ms = HURRIED_MS if watch.hurried else self._lost_ms
        due = [each for each in watch.marks if each.at_ms <= now_ms - after_ms]
        if next(ledger.missing(watch.start, given), None) is None:
            watch.active_ms, watch.done_ms, watch.next = active_ms, now_ms, 0
        elif due and await self._read_missing(partition, ledger, positions, watch, due[-1]):
            watch.active_ms, watch.done_ms = due[-1].active_ms, now_ms
        await self._note(partition, watch)
        return True

    async def _begin(
        self,
        partition: Partition,
        positions: BrokerPositions,
        active_ms: int,
        now_ms: int,
    ) -> _Watched:
        """What the owner of before has noted. A record that was made anew says nothing of what is
        finished below what the broker has given.
        """
        raw = await self._context.store.get(note_name(partition.key))
        made_anew = partition.created and not (raw and raw.endswith(NO_RECORD))
        if raw is None or made_anew or partition.data_lost:
            raw = None
            start = self._first.of(partition.tp) if partition.created else None
            if start is None or partition.data_lost:
                start = await next_given(positions, partition.tp)
            doubted = start
        else:
            start, active_ms, doubted = map(int, raw.split()[:3])
        watch = _Watched(start, active_ms, doubted, now_ms, raw or b"", now_ms)
        self._watches[partition] = watch
        return watch

    def _is_sure(self, watch: _Watched, active_ms: int) -> bool:
        """Whether the store still knows all ids that came since the last look."""
        return 0 <= active_ms - watch.active_ms <= self._keep_ms

    def _doubt(self, partition: Partition, watch: _Watched, given: int, active_ms: int) -> None:
        LOG.warning(
            "%s: %s: ackd could not look for so long what the broker has lost that it can't tell "
            "any more for offsets %d to %d",
            self._state.name,
            partition.tp,
            watch.start,
            given - 1,
        )
        watch.start, watch.active_ms, watch.next = max(watch.start, given), active_ms, 0
        watch.marks.clear()

    async def _note(self, partition: Partition, watch: _Watched) -> None:
        raw = b"%d %d %d" % (watch.start, watch.active_ms, watch.doubted)
        if raw != watch.noted:
            await self._context.store.put(note_name(partition.key), raw, NOTE_KEEP_MS)
            watch.noted = raw

    async def _look_up(
        self, partition: Partition, asked: Sequence[tuple[bytes, AssignedPlace]]
    ) -> KnownAt:
        """Where these are known, and the time that counts for ids of copies."""
        return await self._context.store.places.look_up(
            self._state.name,
            partition.key.topic_id,
            self._keep_ms,
            self._clock_of(partition.tp),
            asked,
        )

    async def _read_missing(
        self,
        partition: Partition,
        ledger: UnorderedLedger[Record],
        positions: BrokerPositions,
        watch: _Watched,
        due: _Mark,
    ) -> bool:
        """Read what is missing below where the broker was then; False: there is more."""
        end = min(due.given, watch.marks[-1].given)
        lost = min(watch.marks[0].given, end)
        if watch.marks[0].at_ms > watch.marks[-1].at_ms - self._lost_ms:
            lost = 0
        for _ in range(READS_MAX):
            start = max(watch.next, watch.start)
            gap = next(ledger.missing(start, end), None)
            if gap is None:
                watch.next = 0
                return True
            if sum(map(len, self._read.values())) >= KEPT_MAX:
                return False
            part = await positions.read(partition.tp, gap[0])
            watch.next = max(part.next, gap[0] + 1, part.first)
            await self._found(partition, ledger, watch, part, (gap[0], end), lost)
            if self._partitions.owned.get(partition.tp) is not partition:
                return False
        return False

    async def _found(
        self,
        partition: Partition,
        ledger: UnorderedLedger[Record],
        watch: _Watched,
        part: LogPart,
        within: tuple[int, int],
        lost: int,
    ) -> None:
        """Deliver what is lost of a part of the log; finish what came as a copy and is finished."""
        start, end = within
        asked = [
            each
            for each in part.messages
            if each.id and start <= each.place.offset < end and ledger.lacks(each.place.offset)
        ]
        number = partition.tp.partition
        ids = [(each.id, AssignedPlace(number, each.place.offset)) for each in asked]
        known = await self._look_up(partition, ids)
        if not self._is_sure(watch, known.active_ms):
            raise BrokerError("it took too long to look for messages")  # the next look says more
        if self._partitions.owned.get(partition.tp) is not partition:
            return
        for arrival, place in zip(asked, known.places, strict=True):
            self._settle(partition, ledger, arrival, place, due=arrival.place.offset < lost)
        upto = min(watch.next, lost, ledger.position)
        if part.first > start:
            self._pass(partition, ledger, (start, min(part.first, upto)), "are not in the log now")

    def _settle(
        self,
        partition: Partition,
        ledger: UnorderedLedger[Record],
        arrival: Arrival,
        place: AssignedPlace,
        *,
        due: bool,
    ) -> None:
        offset = arrival.place.offset
        tp = TopicPartition(partition.tp.topic, place.partition)
        there = self._partitions.owned.get(tp)
        if there is None or not isinstance(there.ledger, UnorderedLedger):
            return  # it is looked up again
        if there.ledger.over(place.offset):
            if there is not partition and ledger.pass_over(offset, offset + 1):
                partition.perform()
        elif due and there.ledger.lacks(place.offset):
            self._read.setdefault(tp, {})[place.offset] = arrival.id
            self._context.metrics.recovered.at(self._state.name).inc()
            LOG.warning(
                "%s: the broker gave %s/%d, and lost it; it was read from the log and is delivered "
                "now",
                self._state.name,
                partition.tp,
                offset,
            )
            arrival.record.offset = place.offset
            self._take(there, [arrival.record])

    def _pass(
        self,
        partition: Partition,
        ledger: UnorderedLedger[Record],
        offsets: tuple[int, int],
        why: str,
    ) -> None:
        if offsets[0] < offsets[1] and (count := ledger.pass_over(*offsets)):
            LOG.info("%s: %d messages of %s %s", self._state.name, count, partition.tp, why)
            partition.perform()

    # --- what can't be found

    def _tell(
        self, partition: Partition, ledger: UnorderedLedger[Record], now_ms: int, reason: str
    ) -> None:
        """Name what is missing for so long that it may be lost, and can't be found."""
        watch = self._watches.get(partition)
        ends = self._ends.setdefault(partition, deque())
        if not ends or now_ms - ends[-1][0] >= LOOK_MS:
            ends.append((now_ms, ledger.position))
        while len(ends) > 1 and ends[1][0] <= now_ms - self._lost_ms:
            ends.popleft()
        start = end = 0
        filtered = bool(self._state.configured.filter)
        if filtered and not (reason and partition in self._failed):
            pass  # a gap says nothing: most of them are what the filter leaves out
        elif reason:
            start = _lowest(ledger) if watch is None else watch.start
            end = ends[0][1] if ends[0][0] <= now_ms - self._lost_ms else 0
        elif watch is not None and watch.doubted < watch.start and not reason:
            reason = "it could not be asked in time, so copies of them may have been finished"
            start, end = watch.doubted, watch.start
        missing = list(ledger.missing(start, end))
        if not missing:
            if watch is not None and start == watch.doubted:
                watch.doubted = watch.start
            self._clear(partition.tp)
            return
        first, count = missing[0][0], sum(end - start for start, end in missing)
        detail = (
            f"{partition.tp}: the broker gave {count} messages that did not come, of offsets "
            f"{first} to {missing[-1][1] - 1}: they came as copies, "
            f"{'do not pass the filter, ' * filtered}or it lost them, and {reason}; if they "
            "do not come they count as finished after an hour, and `ackd seek "
            f"{self._state.name} --position {partition.tp.topic}/{partition.tp.partition}={first}` "
            "delivers all from there on again"
        )
        self._reported.add(partition.tp)
        if self._state.report(Condition(_code(partition.tp), detail, warning=True)):
            LOG.warning("%s: %s", self._state.name, detail)

    def _clear(self, tp: TopicPartition) -> None:
        self._reported.discard(tp)
        self._state.clear(_code(tp))


def _lowest(ledger: UnorderedLedger[Record]) -> int:
    """The lowest offset that ackd knows to be the group's."""
    if ledger.watermark:
        return ledger.watermark
    finished = next((first for first, _ in ledger.finished.ranges(0)), ledger.position)
    return min(finished, *ledger.entries, ledger.position)


def _code(tp: TopicPartition) -> str:
    return f"missing/{tp}"
