"""How full the memory for bodies is: a warning in time, then the oldest leave for the retry topic.

Fetching pauses when `window_bytes_max` is reached, and goes on when there is some room. If then
nothing of what is held can be handed out, only unfinished messages that others work on (or that
wait) fill it, and it would stay so.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ackd.engine.base.context import Context

if TYPE_CHECKING:
    from ackd.engine.subscription import Subscription

LOG = logging.getLogger("ackd.engine")

WARN_SHARE = 0.8
CALM_SHARE = 0.7
AIM_SHARE = 0.9
"""Fetching goes on when so much is held."""


class Filling:
    """Watches the window of one subscription on this sidecar."""

    def __init__(self, subscription: Subscription, context: Context) -> None:
        self._subscription = subscription
        self._context = context
        self._warned = False

    def share(self) -> float:
        """Which part of the bound is used."""
        _, size = self._subscription.hand_out.held()
        return size / self._subscription.settings.window_bytes_max

    def look(self) -> None:
        """Warn, and let the oldest be sent back when nothing else makes room."""
        subscription = self._subscription
        ready, size = subscription.hand_out.held()
        most = subscription.settings.window_bytes_max
        share = size / most
        if share >= WARN_SHARE and not self._warned:
            self._warned = True
            percent = round(share * 100)
            LOG.warning(
                "%s: unfinished messages fill %d %% of the window", subscription.name, percent
            )
            self._context.metrics.window_warnings.at(subscription.name).inc()
        elif share < CALM_SHARE:
            self._warned = False
        above = size - int(most * AIM_SHARE)
        halted = size >= most or subscription.hand_out.paused
        if halted and above > 0 and not ready and not subscription.send_back:
            self._make_room(above)

    def _make_room(self, size: int) -> None:
        """The partition whose head is the oldest is asked first."""
        owned = self._subscription.owned.values()
        parts = [p.ledger.send_back for p in owned if p.ledger.send_back.rules]
        heads = [(e.first_s, i) for i, each in enumerate(parts) if (e := each.head()) is not None]
        if heads and not any(each.asking for each in parts):
            parts[min(heads)[1]].relieve(size)
