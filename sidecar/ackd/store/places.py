"""Remember which offset each broker message id got: on a server (`places.lua`) or in memory.

Some brokers name a message in several ways. All ids of a message get the place of the first one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ackd.errors import StoreDataError
from ackd.ports import AssignedPlace
from ackd.store.keys import Keys
from ackd.store.outbox import Run, Word
from ackd.store.scripts import PLACES


class RedisPlaces:
    """`ackd.ports.broker_side_acks.Places` on a server. A question is one script call."""

    def __init__(self, keys: Keys, run: Run) -> None:
        self._keys = keys
        self._run = run

    async def assign(
        self,
        subscription: str,
        topic_id: bytes,
        keep_ms: int,
        arrivals: Sequence[tuple[bytes, AssignedPlace]],
    ) -> list[AssignedPlace]:
        words: list[Word] = [keep_ms]
        for message, place in arrivals:
            words += (message, f"{place.partition}:{place.offset}")
        answer = await self._run(self._keys.places(subscription, topic_id), PLACES, words)
        if not isinstance(answer, list) or len(answer) != len(arrivals):
            raise StoreDataError("the places of messages can't be read")
        return [_place(each) for each in answer]


def _place(text: bytes) -> AssignedPlace:
    partition, _, offset = text.partition(b":")
    try:
        return AssignedPlace(int(partition), int(offset))
    except ValueError:
        raise StoreDataError("the place of a message can't be read") from None


class MemoryPlaces:
    """The same without a server.

    `known`: by subscription and topic id, then by period (`keep_ms` long), then by message id. The
    newest two periods are kept.
    """

    def __init__(
        self,
        known: dict[tuple[str, bytes], dict[int, dict[bytes, AssignedPlace]]],
        now_us: Callable[[], int],
    ) -> None:
        self._known = known
        self._now_us = now_us

    async def assign(
        self,
        subscription: str,
        topic_id: bytes,
        keep_ms: int,
        arrivals: Sequence[tuple[bytes, AssignedPlace]],
    ) -> list[AssignedPlace]:
        index = self._now_us() // 1000 // keep_ms
        known = self._known.setdefault((subscription, topic_id), {})
        for old in [each for each in known if each < index - 1]:
            del known[old]
        current, before = known.setdefault(index, {}), known.get(index - 1, {})
        return [current.setdefault(one, before.get(one, place)) for one, place in arrivals]
