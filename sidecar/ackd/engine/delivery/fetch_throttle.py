"""Fetch throttle: pause fetching while the buffers are full (I8)."""

from __future__ import annotations

from collections.abc import Iterable

from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.delivery.fetch_ahead import FetchAhead
from ackd.engine.partition.owned import OwnedPartitions
from ackd.engine.partition.partition import Partition

RESUME_SHARE = 2
"""Fetching resumes when buffers have fallen to one part in this many (a pause drops a prefetch)."""


class FetchThrottle:
    """Pauses and resumes what one subscription fetches, all partitions together.

    `ahead`: for a broker that hides each message it gave, a bound below `buffer_max`.
    """

    def __init__(
        self, state: SubscriptionState, partitions: OwnedPartitions, ahead: FetchAhead | None = None
    ) -> None:
        self._state = state
        self._partitions = partitions
        self._ahead = ahead
        self._paused: dict[Partition, int] = {}  # with the fetch session that is paused

    @property
    def paused(self) -> bool:
        """Whether fetching is paused until there is room again."""
        return bool(self._paused)

    def adjust(self) -> None:
        """Pause fetching when the buffers are full, resume when half of that is gone."""
        owned = self._partitions.owned.values()
        size = sum(each.ledger.bytes for each in owned)
        ready = sum(each.ledger.buffered for each in owned)
        settings = self._state.settings
        ready_max, bytes_max = settings.buffer_max, settings.window_bytes_max
        if self._ahead is not None:
            ready_max = min(ready_max, self._ahead.limit)
        if any(each.ledger.must_fetch for each in owned):
            ready = size = 0  # only fetching can make room
        room = ready <= ready_max // RESUME_SHARE and size <= bytes_max - bytes_max // 10
        if self._paused and room:
            if self._ahead is not None:
                self._ahead.half(settings.buffer_max)
            self._resume()
        elif self._paused or ready >= ready_max or size >= bytes_max:
            if self._ahead is not None and ready >= ready_max:
                self._ahead.full()
            self._pause(owned)

    def _pause(self, owned: Iterable[Partition]) -> None:
        """Pause every owned partition, including those that were taken, or began a new fetch
        session, since the last pause.
        """
        for partition in owned:
            session = partition.ledger.intake.session
            if self._paused.get(partition) != session:
                self._state.consumer.pause(partition.tp)
                self._paused[partition] = session
        for partition in [each for each in self._paused if each.closed]:
            del self._paused[partition]

    def _resume(self) -> None:
        for partition in self._paused:
            if not partition.closed:
                self._state.consumer.resume(partition.tp)
        self._paused.clear()
