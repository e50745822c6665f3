"""Remember which place each broker message id got: on a server (`places.lua`) or in memory.

Some brokers name a message in several ways. All ids of a message get the place of the first one.
Some use offsets again; then it is a place in another partition (`ackd.core.log_generations`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from ackd.core.known_ids import KnownIds, digest
from ackd.core.log_generations import (
    GENERATION,
    GenerationsExhaustedError,
    LogGenerations,
    partition_of,
    split,
)
from ackd.core.sources import COPIES, SourceNumbers, SourcesExhaustedError, block_of
from ackd.errors import StoreDataError
from ackd.ports import AssignedPlace, KnownAt, KnownSource, LogCut, Placed, StoredAt
from ackd.store.keys import Keys
from ackd.store.outbox import Run, Word
from ackd.store.scripts import PLACES, SOURCES

_PARTS: Final = 3
HELD: Final = -1
"""For the script, in place of a store time: the message is held under this very place."""
TIME: Final = -2
"""It stands for no message; only the time is asked for."""


class RedisPlaces:
    """`ackd.ports.broker_side_acks.Places` on a server. A question is one script call."""

    def __init__(self, keys: Keys, run: Run) -> None:
        self._keys = keys
        self._run = run

    async def assign(
        self, subscription: str, topic_id: bytes, keep_ms: int, arrivals: Sequence[StoredAt]
    ) -> Placed:
        words: list[Word] = [keep_ms]
        for message, (partition, offset), stored_ms in arrivals:
            _check(partition)
            words += (digest(message), partition, offset, max(stored_ms, 0))
        places, cuts, _ = await self._ask(subscription, topic_id, words)
        if len(places) != len(arrivals):
            raise StoreDataError("the places of messages can't be read")
        return Placed(
            [AssignedPlace(*_numbers(each, 2)) for each in places],
            [LogCut(*_numbers(each, 3)) for each in cuts],
        )

    async def remember(
        self,
        subscription: str,
        topic_id: bytes,
        keep_ms: int,
        held: Sequence[tuple[bytes, AssignedPlace]],
    ) -> None:
        words: list[Word] = [keep_ms]
        for message, (partition, offset) in held:
            words += (digest(message), partition, offset, HELD)
        await self._ask(subscription, topic_id, words)

    async def look_up(
        self,
        subscription: str,
        topic_id: bytes,
        keep_ms: int,
        clock: int,
        asked: Sequence[tuple[bytes, AssignedPlace]],
    ) -> KnownAt:
        words: list[Word] = [keep_ms, b"", clock, 0, TIME]
        for message, (partition, offset) in asked:
            words += (digest(message), partition, offset, HELD)
        places, _, times = await self._ask(subscription, topic_id, words)
        if len(places) != len(asked) + 1:
            raise StoreDataError("the places of messages can't be read")
        return KnownAt(
            [AssignedPlace(*_numbers(each, 2)) for each in places[1:]], *_numbers(times[0], 1)
        )

    async def sources(
        self, subscription: str, topic_id: bytes, found: Sequence[tuple[str, int]]
    ) -> list[KnownSource]:
        words: list[Word] = [word for name, queues in found for word in (name, queues)]
        answer = await self._run(self._keys.places(subscription, topic_id), SOURCES, words)
        try:
            return [
                KnownSource(name.decode(), queues, silent_ms, tuple(blocks))
                for name, queues, silent_ms, blocks in answer
            ]
        except (TypeError, ValueError, AttributeError):
            raise StoreDataError("the brokers of a topic can't be read") from None

    async def _ask(
        self, subscription: str, topic_id: bytes, words: Sequence[Word]
    ) -> list[list[bytes]]:
        answer = await self._run(self._keys.places(subscription, topic_id), PLACES, words)
        if not isinstance(answer, list) or len(answer) != _PARTS:
            raise StoreDataError("the places of messages can't be read")
        return answer


def _check(partition: int) -> None:
    if partition >= GENERATION:
        raise StoreDataError(f"an adapter's partitions are below {GENERATION}, not {partition}")


def _keep(ids: KnownIds[AssignedPlace], message: bytes, place: AssignedPlace) -> None:
    ids.keep(digest(message), place, copied=split(place.partition)[0] >= COPIES)


def _numbers(text: bytes, count: int) -> list[int]:
    try:
        numbers = [int(each) for each in text.split(b":")]
    except ValueError:
        numbers = []
    if len(numbers) != count:
        raise StoreDataError("the place of a message can't be read")
    return numbers


@dataclass(slots=True)
class KnownPlaces:
    """What a store in memory knows of a subscription's topic.

    `ids`: by block. `logs`: by the adapter's partition.
    """

    ids: dict[int, KnownIds[AssignedPlace]] = field(default_factory=dict)
    logs: dict[int, LogGenerations] = field(default_factory=dict)
    sources: SourceNumbers = field(default_factory=SourceNumbers)

    def find(self, partition: int, message: bytes) -> AssignedPlace | None:
        """The place of a message (its digest), looked for in the partition's block first."""
        own = block_of(partition, GENERATION)
        for block in sorted(self.ids, key=lambda each: (each != own, each)):
            found = self.ids[block].find(message)
            if found is not None:
                return found
        return None

    def find_copied(self, message: bytes, keep_ms: int) -> AssignedPlace | None:
        """The place of one that may have come first as a copy."""
        for block in sorted(self.ids):
            if self.ids[block].has_copies(keep_ms):
                found = self.ids[block].find(message)
                if found is not None:
                    return found
        return None


class MemoryPlaces:
    """The same without a server. `known`: by subscription and topic id."""

    def __init__(
        self, known: dict[tuple[str, bytes], KnownPlaces], now_us: Callable[[], int]
    ) -> None:
        self._known = known
        self._now_us = now_us

    async def assign(
        self, subscription: str, topic_id: bytes, keep_ms: int, arrivals: Sequence[StoredAt]
    ) -> Placed:
        known = self._known.setdefault((subscription, topic_id), KnownPlaces())
        placed, came = Placed([], []), dict[int, list[tuple[int, int, int]]]()
        turned: dict[int, KnownIds[AssignedPlace]] = {}
        for message, (number, offset), stored_ms in arrivals:
            _check(number)
            log = known.logs.setdefault(number, LogGenerations())
            ids = self._turned(known, turned, number, keep_ms, tick=True)
            if number >= COPIES or not log.is_usual(offset, stored_ms):
                place = known.find(number, digest(message))
            else:
                place = known.find_copied(digest(message), keep_ms)
            if place is None:
                try:
                    generation, cut = log.of(offset, stored_ms)
                except GenerationsExhaustedError as error:
                    raise StoreDataError(str(error)) from None
                if cut:
                    placed.cuts.append(LogCut(number, offset, generation))
                came.setdefault(number, []).append((generation, offset, stored_ms))
                place = AssignedPlace(partition_of(number, generation), offset)
            _keep(ids, message, place)
            placed.places.append(place)
        for number, messages in came.items():
            log = known.logs[number]
            log.seen((at, ms) for generation, at, ms in messages if generation == log.current)
        return placed

    async def remember(
        self,
        subscription: str,
        topic_id: bytes,
        keep_ms: int,
        held: Sequence[tuple[bytes, AssignedPlace]],
    ) -> None:
        known = self._known.setdefault((subscription, topic_id), KnownPlaces())
        turned: dict[int, KnownIds[AssignedPlace]] = {}
        for message, place in held:
            ids = self._turned(known, turned, place.partition, keep_ms, tick=False)
            there = known.find(place.partition, digest(message))
            _keep(ids, message, place if there is None else there)

    async def look_up(
        self,
        subscription: str,
        topic_id: bytes,
        keep_ms: int,
        clock: int,
        asked: Sequence[tuple[bytes, AssignedPlace]],
    ) -> KnownAt:
        known = self._known.setdefault((subscription, topic_id), KnownPlaces())
        turned: dict[int, KnownIds[AssignedPlace]] = {}
        active_ms = self._turned(known, turned, clock, keep_ms, tick=False).active_ms
        places = []
        for message, place in asked:
            ids = self._turned(known, turned, place.partition, keep_ms, tick=False)
            there = known.find(place.partition, digest(message)) or place
            _keep(ids, message, there)
            places.append(there)
        return KnownAt(places, active_ms)

    async def sources(
        self, subscription: str, topic_id: bytes, found: Sequence[tuple[str, int]]
    ) -> list[KnownSource]:
        known = self._known.setdefault((subscription, topic_id), KnownPlaces())
        now_ms = self._now_us() // 1000
        try:
            known.sources.seen(found, known.logs, now_ms)
        except SourcesExhaustedError as error:
            raise StoreDataError(str(error)) from None
        return [
            KnownSource(name, each.queues, max(now_ms - each.seen_ms, 0), tuple(each.blocks))
            for name, each in known.sources.known.items()
        ]

    def _turned(
        self,
        known: KnownPlaces,
        turned: dict[int, KnownIds[AssignedPlace]],
        partition: int,
        keep_ms: int,
        *,
        tick: bool,
    ) -> KnownIds[AssignedPlace]:
        """The ids of a partition's block, turned once in a call."""
        block = block_of(partition, GENERATION)
        if block not in turned:
            turned[block] = known.ids.setdefault(block, KnownIds())
            turned[block].turn(self._now_us() // 1000, keep_ms, tick=tick)
        return turned[block]
