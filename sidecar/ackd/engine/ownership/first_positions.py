"""Where a broker with individual acks was before a sidecar drew for the first time: what it gives
the group from there on is found if it gets lost (`lost_messages.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from ackd.core.ids import LedgerKey, TopicPartition
from ackd.engine.base.context import Context
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.partition.owned import Topics
from ackd.errors import BrokerError, StoreError
from ackd.ports import BrokerPositions

LOG = logging.getLogger("ackd.engine")

NOTE_KEEP_MS: Final = 30 * 86_400_000
NO_RECORD: Final = b"new"
"""At the end of a note: no owner has looked yet. Its record may be made after it."""


class FirstPositions:
    """Notes these in the store, as the sidecar may be killed before it owns a partition, or before
    it looks for the first time. `clock_of`, `keep_ms`: as in `LostMessages`.
    """

    def __init__(
        self,
        state: SubscriptionState,
        context: Context,
        topics: Topics,
        clock_of: Callable[[TopicPartition], int],
        keep_ms: int,
    ) -> None:
        self._state = state
        self._context = context
        self._topics = topics
        self._clock_of = clock_of
        self._keep_ms = keep_ms
        self._found: dict[TopicPartition, int] = {}

    def of(self, tp: TopicPartition) -> int | None:
        """Where the broker was before this sidecar drew; None: it did not say."""
        return self._found.get(tp)

    async def begins(self, partitions: Sequence[TopicPartition]) -> None:
        """Ask for those that were not asked for yet, before this sidecar draws from them."""
        positions = self._state.broker_positions
        if positions is None or not positions.on:
            return
        asked = [each for each in partitions if each not in self._found]
        answers = await asyncio.gather(
            *(next_given(positions, each) for each in asked), return_exceptions=True
        )
        new: dict[TopicPartition, int] = {}
        for tp, answer in zip(asked, answers, strict=True):
            if isinstance(answer, int):
                new[tp] = answer
            elif not isinstance(answer, BrokerError):
                raise answer
        self._found.update(new)
        await asyncio.gather(*(self._note(tp, start) for tp, start in new.items()))

    async def _note(self, tp: TopicPartition, start: int) -> None:
        """Unless there is one. Without an answer the first look makes it."""
        state, store = self._state, self._context.store
        try:
            topic_id = (await self._topics.of(tp.topic)).topic_id
            known = await store.places.look_up(
                state.name, topic_id, self._keep_ms, self._clock_of(tp), ()
            )
            note = b"%d %d %d %s" % (start, known.active_ms, start, NO_RECORD)
            key = LedgerKey(state.cluster, state.name, topic_id, tp.partition)
            await store.put_new(note_name(key), note, NOTE_KEEP_MS)
        except (StoreError, BrokerError) as error:
            LOG.debug("%s: no note of where the broker is: %s", tp, error.detail)


async def next_given(positions: BrokerPositions, tp: TopicPartition) -> int:
    """The first offset that the broker may still give the group. A new one begins with the last
    message, or earlier. Raises BrokerError.
    """
    given = await positions.group_offset(tp)
    return given if given >= 0 else max((await positions.range(tp))[1] - 1, 0)


def note_name(key: LedgerKey) -> str:
    """Under which name the store has the note of a record."""
    return f"given:{key.text()}"
