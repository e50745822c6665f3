"""Time, for timers and for what people read."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Local time for timers. Deadlines themselves are decided with the store's clock."""

    def monotonic_ms(self) -> int:
        """Milliseconds that never go back; for measuring and waking up."""

    def wall_ms(self) -> int:
        """Unix time in milliseconds; for what people read."""
