"""Time, for timers and for what people read."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Local time, for timers. The store's clock decides deadlines."""

    def monotonic_ms(self) -> int:
        """Milliseconds that never go back, for measuring and timers."""

    def wall_ms(self) -> int:
        """Unix time in milliseconds, for people to read."""
