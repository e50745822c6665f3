"""Window pressure: warn while the memory for bodies fills, then move the oldest messages to the
retry topic.

Fetching pauses at `window_bytes_max` and resumes when there is some room. If then no held message
can be delivered, only messages that others work on (or that wait) fill the window, and it would
stay full.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ackd.engine.base.context import Context
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.partition.owned import OwnedPartitions

LOG = logging.getLogger("ackd.engine")

WARN_SHARE = 0.8
CALM_SHARE = 0.7
AIM_SHARE = 0.9
"""Target fill level after moving old messages out; fetching resumes below it."""


class WindowPressure:
    """Watches the window of one subscription on this sidecar."""

    def __init__(
        self,
        state: SubscriptionState,
        context: Context,
        partitions: OwnedPartitions,
        fetching_paused: Callable[[], bool],
        sending: Callable[[], bool],
    ) -> None:
        self._state = state
        self._context = context
        self._partitions = partitions
        self._fetching_paused = fetching_paused
        self._sending = sending
        self._warned = False

    def share(self) -> float:
        """Return which share of `window_bytes_max` is used."""
        _, size = self._partitions.held()
        return size / self._state.settings.window_bytes_max

    def look(self) -> None:
        """Warn, and move the oldest messages to the retry topic when nothing else makes room."""
        state = self._state
        ready, size = self._partitions.held()
        most = state.settings.window_bytes_max
        share = size / most
        if share >= WARN_SHARE and not self._warned:
            self._warned = True
            percent = round(share * 100)
            LOG.warning(
                "%s: unfinished messages fill %d %% of `window_bytes_max`",
                state.name,
                percent,
            )
            self._context.metrics.window_warnings.at(state.name).inc()
        elif share < CALM_SHARE:
            self._warned = False
        above = size - int(most * AIM_SHARE)
        halted = size >= most or self._fetching_paused()
        if halted and above > 0 and not ready and not self._sending():
            self._make_room(above)

    def _make_room(self, size: int) -> None:
        """Ask the partition whose oldest message is the oldest of all."""
        owned = self._partitions.owned.values()
        parts = [p.ledger.send_back for p in owned if p.ledger.send_back.rules]
        heads = [(e.first_s, i) for i, each in enumerate(parts) if (e := each.head()) is not None]
        if heads and not any(each.asking for each in parts):
            parts[min(heads)[1]].relieve(size)
