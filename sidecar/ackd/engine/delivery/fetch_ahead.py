"""How many messages to fetch ahead from a broker that hides each of them for this sidecar."""

from __future__ import annotations

from typing import Final

from ackd.ports import Clock

FIRST: Final = 256
LEAST: Final = 64
FAST_MS: Final = 500
SLOW_MS: Final = 2_000


class FetchAhead:
    """As many as applications take within a few seconds.

    Such a broker gives a message to nobody else while it waits here, wants a call for each of them
    every few seconds, and delivers it again late if this sidecar dies: 10,000 messages in front of
    a slow worker cost a sidecar a quarter of a core, and the broker more. So the bound halves when
    half of it took long to be delivered, and doubles when that was fast. Fetching goes on at half,
    long before it is empty.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._full_ms: int | None = None
        self.limit = FIRST

    def full(self) -> None:
        """So many wait that fetching pauses now."""
        if self._full_ms is None:
            self._full_ms = self._clock.monotonic_ms()

    def half(self, limit_max: int) -> None:
        """Half of them were delivered since. The bound never passes `limit_max`."""
        if self._full_ms is None:
            return
        took_ms = self._clock.monotonic_ms() - self._full_ms
        self._full_ms = None
        if took_ms <= FAST_MS:
            self.limit = min(self.limit * 2, limit_max)
        elif took_ms >= SLOW_MS:
            self.limit = max(self.limit // 2, LEAST)
