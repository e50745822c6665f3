"""Where the messages of lost leases are, also in the retry topic.

The record of their own partition knows only that they have moved there, and in which copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ackd.core.ids import LedgerKey
from ackd.core.record.operations import LookUp
from ackd.core.record.protocol import CallStatus, OpResult
from ackd.core.record.transitions import State
from ackd.engine.base.context import Context
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.partition.owned import Topics
from ackd.errors import BrokerError, StoreError
from ackd.store.flusher import LedgerHandle

HOPS_MAX = 4
"""Records that are asked for one message, at most: a copy may have moved again."""


class Whereabout(NamedTuple):
    """The state of a message, and its last attempt."""

    state: State
    attempt: int


class Step(NamedTuple):
    """What one record says of a message: where it is (`there`), and of the lease that counts for it
    in this record (`lease`). `now_ms`: the store's clock.
    """

    key: LedgerKey
    offset: int
    there: OpResult
    lease: OpResult
    now_ms: int


class Whereabouts:
    """Finds messages of one subscription. Changes nothing."""

    def __init__(
        self, state: SubscriptionState, context: Context, topics: Topics, retry_topic: str
    ) -> None:
        self._state = state
        self._context = context
        self._topics = topics
        self._retry_topic = retry_topic

    async def of(
        self, topic_id: bytes, partition: int, offsets: Sequence[int]
    ) -> list[Whereabout | None]:
        """Find these messages; None for one of which the store says nothing now."""
        found: list[Whereabout | None] = [None] * len(offsets)
        asked = {(topic_id, partition): dict(enumerate(offsets))}
        for _ in range(HOPS_MAX):
            moved: dict[tuple[bytes, int], dict[int, int]] = {}
            for (topic, number), places in asked.items():
                for index, whereabout, goes_on in await self._look(topic, number, places):
                    found[index] = whereabout
                    if goes_on is not None:
                        at, offset = goes_on
                        moved.setdefault(at, {})[index] = offset
            asked = moved
        return found

    async def trail(self, key: LedgerKey, offset: int) -> list[Step]:
        """Follow one message from this record on; nothing if there is no such record. Raises
        StoreError.
        """
        steps: list[Step] = []
        while len(steps) < HOPS_MAX:
            ops = [LookUp(offset, message=True), LookUp(offset)]
            reply = await self._context.flusher.submit(LedgerHandle(key), ops)
            if reply.verdict is CallStatus.ABSENT:
                break
            if reply.verdict is not CallStatus.OK:
                raise StoreError("the record of the message is being read again")
            there, lease = reply.results
            steps.append(Step(key, offset, there, lease, reply.now_ms))
            copy = there.copy if there.state is State.MOVING else None
            retry_id = None if copy is None else await self._retry_id()
            if copy is None or retry_id is None:
                break
            key = LedgerKey(self._state.cluster, self._state.name, retry_id, copy.partition)
            offset = copy.offset
        return steps

    async def _look(
        self, topic_id: bytes, partition: int, places: dict[int, int]
    ) -> list[tuple[int, Whereabout, tuple[tuple[bytes, int], int] | None]]:
        """Ask one record: for each index the answer, and the copy in which the message goes on."""
        key = LedgerKey(self._state.cluster, self._state.name, topic_id, partition)
        ops = [LookUp(offset, message=True) for offset in places.values()]
        try:
            reply = await self._context.flusher.submit(LedgerHandle(key), ops)
        except StoreError:
            return []
        if reply.verdict is not CallStatus.OK:
            return []
        answers = []
        for index, result in zip(places, reply.results, strict=True):
            copy = result.copy if result.state is State.MOVING else None
            goes_on = None
            retry_id = None if copy is None else await self._retry_id()
            if copy is not None and retry_id is not None:
                goes_on = (retry_id, copy.partition), copy.offset
            answers.append((index, Whereabout(result.state, result.attempt), goes_on))
        return answers

    async def _retry_id(self) -> bytes | None:
        """Return the retry topic's identity; another sidecar may have made it a moment ago."""
        try:
            return (await self._topics.of(self._retry_topic)).topic_id
        except BrokerError:
            return None
