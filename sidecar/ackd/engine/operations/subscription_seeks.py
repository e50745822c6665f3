"""Looks at the progress of one subscription's group, and starts seeks of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from ackd.api.dead_letters import OperationView
from ackd.api.progress import (
    PartitionPlan,
    PartitionProgress,
    Position,
    ProgressExport,
    SeekPlan,
    SeekRequest,
    SeekTo,
)
from ackd.core.bitmap import ChunkedBitmap
from ackd.core.ids import LedgerKey, TopicPartition
from ackd.core.log_generations import GENERATIONS_MAX, partition_of
from ackd.core.record.protocol import Snapshot
from ackd.core.record.transitions import State
from ackd.engine.base.context import Context
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.control.control import Control
from ackd.engine.operations.operation_runner import Operations
from ackd.engine.operations.seek_document import SeekDocument, SeekTarget
from ackd.engine.ownership import undo
from ackd.engine.ownership.expected import Expected
from ackd.engine.ownership.records import Records
from ackd.errors import (
    BadParameterError,
    BrokerError,
    NothingToUndoError,
    NotPausedError,
    NotSupportedError,
)
from ackd.ports import TopicInfo

AT_ONCE = 16
"""Partitions that are queried at the same time."""
FORM = 1


@dataclass(slots=True)
class SeekPlace:
    """A partition of the group: its topic, its log, its record, and where the seek would put it."""

    info: TopicInfo
    tp: TopicPartition
    first: int = 0
    end: int = 0
    snapshot: Snapshot | None = None
    to: Position | None = None


class SubscriptionSeeks:
    """Reads records and logs as they are. `retry_topic`: its name; a seek leaves it out."""

    def __init__(
        self,
        state: SubscriptionState,
        context: Context,
        control: Control,
        records: Records,
        retry_topic: str,
        operations: Operations,
    ) -> None:
        self._state = state
        self._context = context
        self._control = control
        self._records = records
        self._retry_topic = retry_topic
        self._operations = operations

    def export(self, places: Sequence[SeekPlace]) -> ProgressExport:
        """The progress in the form that an import takes."""
        return ProgressExport(
            FORM,
            self._state.name,
            self._state.cluster,
            self._context.clock.wall_ms(),
            [_progress(place, place.snapshot) for place in places if place.snapshot is not None],
        )

    def check_possible(self, request: SeekRequest) -> None:
        """Refuse what needs to know the log of a broker that can't be asked. Raises
        NotSupportedError.
        """
        state = self._state
        if state.broker_side_acks is None:
            return
        positions = state.broker_positions
        if positions is None:
            raise NotSupportedError(
                f"the broker of {state.name} keeps no position of a group, only an ack for "
                "each message: there is none to move, to export or to take over"
            )
        if request.to in (SeekTo.TIME, SeekTo.LATEST) and not positions.on:
            raise NotSupportedError(
                f"only the broker of {state.name} knows which offset that is, and its options "
                "don't say how to ask it: set `name_servers`, or name the offsets (`--position`)"
            )

    async def check_paused(self) -> None:
        """Read the newest live value and refuse if the group is not paused. Raises NotPausedError,
        StoreError.
        """
        await self._control.ask()
        if not self._control.group_paused:
            name = self._state.name
            raise NotPausedError(
                f"{name} is not paused: pause it for the group first, then seek, then resume"
            )

    async def start(self, request: SeekRequest, places: Sequence[SeekPlace]) -> OperationView:
        """Begin the seek. Raises OperationRunningError, StoreError."""
        document = SeekDocument(
            kind="import" if request.imported else "seek",
            id=self._operations.new_id(),
            subscription=self._state.name,
            to=request.to.value,
            increase_only=request.increase_only,
            targets=[
                _target(place, place.to.offset, place.to.finished)
                for place in places
                if place.to is not None
            ],
            created_ms=self._context.clock.wall_ms(),
        )
        return await self._operations.start(document)

    # --- looking

    async def places(self, request: SeekRequest) -> list[SeekPlace]:
        """Read the requested partitions, and where each would go."""
        state = self._state
        if not state.health.joined or not state.cluster:
            raise BrokerError("the broker is not connected yet")
        own = self._retry_topic
        infos = [each for each in await state.consumer.topics() if each.topic != own]
        found = {
            tp: SeekPlace(info, tp)
            for info in sorted(infos, key=lambda each: each.topic)
            for tp in self._partitions_of(info)
        }
        if state.broker_side_acks is not None:
            for place in list(found.values()):
                found.update({each.tp: each for each in await self._later(place)})
        wanted = {TopicPartition(each.topic, each.partition): each for each in request.positions}
        unknown = [f"{tp.topic}/{tp.partition}" for tp in wanted if tp not in found]
        if unknown:
            raise BadParameterError(f"not of this subscription: {', '.join(unknown[:10])}")
        others = [
            f"{tp.topic}/{tp.partition}"
            for tp, each in wanted.items()
            if each.topic_id not in (None, found[tp].info.topic_id.hex())
        ]
        if others:
            raise BadParameterError(f"these are other topics now: {', '.join(others[:10])}")
        places = list(found.values())
        if request.to is SeekTo.POSITIONS:
            places = [found[tp] for tp in sorted(wanted)]
        limit = asyncio.Semaphore(AT_ONCE)

        async def fill(place: SeekPlace) -> None:
            async with limit:
                await self._fill(place, request, wanted.get(place.tp))

        await asyncio.gather(*(fill(place) for place in places))
        if request.to is SeekTo.BEFORE_RESET:
            places = [place for place in places if place.to is not None]
            if not places:
                raise NothingToUndoError
        return places

    def _partitions_of(self, info: TopicInfo) -> Sequence[TopicPartition]:
        positions = self._state.broker_positions
        if positions is not None:
            return positions.queues(info.topic)
        return [TopicPartition(info.topic, number) for number in range(info.partitions)]

    async def _later(self, place: SeekPlace) -> list[SeekPlace]:
        """The partitions in which a log goes on that was cut (`ackd.core.log_generations`)."""
        found = []
        for generation in range(1, GENERATIONS_MAX):
            number = partition_of(place.tp.partition, generation)
            later = SeekPlace(place.info, TopicPartition(place.tp.topic, number))
            key = _target(later, 0).key(self._state.cluster, self._state.name)
            if await self._records.peek(key) is None:
                break
            found.append(later)
        return found

    async def _range(self, place: SeekPlace, key: LedgerKey) -> tuple[int, int]:
        """First and end offset of the log; if that can't be asked, what the store knows of it."""
        positions = self._state.broker_positions
        if positions is None:
            return await self._state.consumer.log_range(place.tp)
        if positions.on:
            return await positions.range(place.tp)
        ends, snapshot = [0], place.snapshot
        if snapshot is not None:
            highest = ChunkedBitmap.of(snapshot.chunks).highest()
            ends += [snapshot.watermark, *(each.offset + 1 for each in snapshot.slots)]
            ends += [] if highest is None else [highest + 1]
        # A seek back makes the record forget what lies beyond.
        before = await undo.kept(self._context.store, key)
        if before is not None:
            ends += [before.offset, *(end for _, end in before.finished)]
        expected = await Expected(self._context.store).of(key)
        return 0, max(ends if expected is None else [*ends, expected.until])

    def _check_known(self, place: SeekPlace, wanted: Position) -> None:
        """Refuse a place beyond all that came where the broker can't be asked if it is in the log:
        it would skip what is published there later. Raises NotSupportedError.
        """
        positions = self._state.broker_positions
        if positions is None or positions.on:
            return
        furthest = max([wanted.offset, *(end for _, end in wanted.finished)])
        if furthest > place.end:
            raise NotSupportedError(
                f"{place.tp}: nothing from offset {place.end} on has come yet, and only the "
                f"broker knows if its log has an offset {furthest}: set `name_servers`"
            )

    async def _fill(self, place: SeekPlace, request: SeekRequest, wanted: Position | None) -> None:
        tp, info, state = place.tp, place.info, self._state
        key = _target(place, 0).key(state.cluster, state.name)
        place.snapshot = await self._records.peek(key)
        place.first, place.end = await self._range(place, key)
        match request.to:
            case SeekTo.EARLIEST:
                offset = place.first
            case SeekTo.LATEST:
                offset = place.end
            case SeekTo.TIME:
                offset = await state.consumer.offset_at(tp, request.time_ms or 0)
            case SeekTo.POSITIONS:
                offset = place.end
                if wanted is not None:
                    self._check_known(place, wanted)
                    offset = wanted.offset
            case SeekTo.BEFORE_RESET:
                before = await undo.kept(self._context.store, key)
                if before is None:
                    return
                wanted = Position(info.topic, tp.partition, before.offset, tuple(before.finished))
                offset = before.offset
        offset = min(max(offset, place.first), place.end)
        ranges = () if wanted is None else wanted.finished
        kept = tuple((max(a, offset), min(b, place.end)) for a, b in ranges)
        place.to = Position(
            info.topic, tp.partition, offset, tuple((a, b) for a, b in kept if a < b)
        )


def plan(places: Sequence[SeekPlace], request: SeekRequest) -> SeekPlan:
    """Sum up what a seek would do."""
    plans = [_plan(place, request) for place in places]
    return SeekPlan(
        sum(each.again for each in plans),
        sum(each.skipped for each in plans),
        sum(each.leases_kept for each in plans),
        plans,
    )


def _progress(place: SeekPlace, snapshot: Snapshot) -> PartitionProgress:
    window, (topic, number) = undo.window(snapshot), place.tp
    topic_id = place.info.topic_id.hex()
    return PartitionProgress(topic, topic_id, number, window.offset, window.epoch, window.finished)


def _plan(place: SeekPlace, request: SeekRequest) -> PartitionPlan:
    """What would happen to one partition. It counts offsets, so a gap in the log counts as
    messages.
    """
    to = place.to or Position(place.tp.topic, place.tp.partition, place.end)
    snapshot, end = place.snapshot, place.end
    if snapshot is None:
        return PartitionPlan(to.topic, to.partition, -1, to.offset, 0, 0, 0)
    finished, stays = ChunkedBitmap.of(snapshot.chunks), ChunkedBitmap()
    mark = finished.first_clear(snapshot.watermark)
    target = max(mark, to.offset) if request.increase_only else to.offset
    for start, stop in to.finished:
        stays.add_range(start, stop)
    if request.increase_only:
        again = 0
    else:
        # Finished now, at or above the target, and not finished after the seek.
        again = max(min(mark, end) - target, 0) - stays.count_between(target, max(mark, target))
        first = max(mark, target)
        again += finished.count_between(first, end)
        again -= _both(finished, stays, first, end)
    skipped = max(target - mark, 0) - finished.count_between(mark, max(target, mark))
    first = max(mark, target)
    skipped += stays.count_between(first, end) - _both(finished, stays, first, end)
    kept = sum(
        slot.state is State.LEASED and slot.when_ms > snapshot.now_ms and slot.offset >= target
        for slot in snapshot.slots
    )
    return PartitionPlan(to.topic, to.partition, mark, target, max(again, 0), max(skipped, 0), kept)


def _both(one: ChunkedBitmap, other: ChunkedBitmap, start: int, end: int) -> int:
    """How many offsets of [start, end) are in both bitmaps."""
    return sum(
        one.count_between(max(a, start), min(b, end)) for a, b in other.ranges(start) if a < end
    )


def _target(place: SeekPlace, offset: int, finished: Sequence[tuple[int, int]] = ()) -> SeekTarget:
    topic_id = place.info.topic_id.hex()
    topic, number = place.tp
    return SeekTarget(topic, topic_id, number, offset, list(finished), end=place.end)
