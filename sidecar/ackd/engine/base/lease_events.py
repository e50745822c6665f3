"""What those who deliver messages by themselves (streams, push) share with the engine.

The engine says that leases of a subscription may have begun or ended; they say why they hold
messages back, for `explain`.
"""

from __future__ import annotations

import asyncio


class LeaseEvents:
    """Events and reasons, by subscription. All calls are made from one event loop."""

    def __init__(self) -> None:
        self._listening: dict[str, set[asyncio.Event]] = {}
        self._reasons: dict[str, dict[str, str]] = {}

    def tell(self, subscription: str) -> None:
        """Something moved; nearly free when nobody listens."""
        for event in self._listening.get(subscription, ()):
            event.set()

    def listen(self, subscription: str) -> asyncio.Event:
        """An event that is set at every move from now on; give it back with `forget`."""
        event = asyncio.Event()
        self._listening.setdefault(subscription, set()).add(event)
        return event

    def forget(self, subscription: str, event: asyncio.Event) -> None:
        """End `listen`."""
        self._listening.get(subscription, set()).discard(event)

    def hold_back(self, subscription: str, source: str, why: str | None) -> None:
        """Why `source` delivers nothing now, in words; None when it does."""
        reasons = self._reasons.setdefault(subscription, {})
        reasons.pop(source, None)
        if why is not None:
            reasons[source] = why

    def reasons(self, subscription: str) -> list[str]:
        """`source: why` of each that holds back."""
        return [f"{source}: {why}" for source, why in self._reasons.get(subscription, {}).items()]
