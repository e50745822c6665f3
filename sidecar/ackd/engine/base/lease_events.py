"""Lease events: the engine signals to streams and push that leases of a subscription may have begun
or ended; they report why they hold messages back, for `explain`.
"""

from __future__ import annotations

import asyncio


class LeaseEvents:
    """Events and reasons by subscription. All calls come from one event loop."""

    def __init__(self) -> None:
        self._listening: dict[str, set[asyncio.Event]] = {}
        self._reasons: dict[str, dict[str, str]] = {}

    def tell(self, subscription: str) -> None:
        """Set the listeners' events; nearly free without listeners."""
        for event in self._listening.get(subscription, ()):
            event.set()

    def listen(self, subscription: str) -> asyncio.Event:
        """Return an event that is set at every change from now on; give it back with `forget`."""
        event = asyncio.Event()
        self._listening.setdefault(subscription, set()).add(event)
        return event

    def forget(self, subscription: str, event: asyncio.Event) -> None:
        self._listening.get(subscription, set()).discard(event)

    def hold_back(self, subscription: str, source: str, why: str | None) -> None:
        """Report in words why `source` delivers nothing now; None when it delivers."""
        reasons = self._reasons.setdefault(subscription, {})
        reasons.pop(source, None)
        if why is not None:
            reasons[source] = why

    def reasons(self, subscription: str) -> list[str]:
        """Return `source: why` of each source that holds back."""
        return [f"{source}: {why}" for source, why in self._reasons.get(subscription, {}).items()]
