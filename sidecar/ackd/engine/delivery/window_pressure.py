"""How full the memory for bodies is: a warning in time, then the oldest leave for the retry topic.

Fetching pauses when `window_bytes_max` is reached, and goes on when there is some room. If then
nothing of what is held can be handed out, only unfinished messages that others work on (or that
wait) fill it, and it would stay so.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ackd.engine.base.context import Context
from ackd.engine.base.state import SubscriptionState
from ackd.engine.partition.owned import OwnedPartitions

LOG = logging.getLogger("ackd.engine")

WARN_SHARE = 0.8
CALM_SHARE = 0.7
AIM_SHARE = 0.9
"""Fetching goes on when so much is held."""


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
        """Which part of the bound is used."""
        _, size = self._partitions.held()
        return size / self._state.settings.window_bytes_max

    def look(self) -> None:
        """Warn, and let the oldest be sent back when nothing else makes room."""
        state = self._state
        ready, size = self._partitions.held()
        most = state.settings.window_bytes_max
        share = size / most
        if share >= WARN_SHARE and not self._warned:
            self._warned = True
            percent = round(share * 100)
            LOG.warning("%s: unfinished messages fill %d %% of the window", state.name, percent)
            self._context.metrics.window_warnings.at(state.name).inc()
        elif share < CALM_SHARE:
            self._warned = False
        above = size - int(most * AIM_SHARE)
        halted = size >= most or self._fetching_paused()
        if halted and above > 0 and not ready and not self._sending():
            self._make_room(above)

    def _make_room(self, size: int) -> None:
        """The partition whose head is the oldest is asked first."""
        owned = self._partitions.owned.values()
        parts = [p.ledger.send_back for p in owned if p.ledger.send_back.rules]
        heads = [(e.first_s, i) for i, each in enumerate(parts) if (e := each.head()) is not None]
        if heads and not any(each.asking for each in parts):
            parts[min(heads)[1]].relieve(size)
