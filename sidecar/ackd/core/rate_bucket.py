"""A token bucket: so many messages a second on average, `burst` at once after a pause.

The store keeps one per subscription and decides by its own clock, so that all sidecars together
keep the rate. What is forgotten (a rollback, a clock that jumps) fills it up at most once.
"""

from __future__ import annotations

from math import ceil, floor
from typing import NamedTuple


class TokensTaken(NamedTuple):
    """The answer to a take. `wait_ms`: when there is one more, if there was none."""

    granted: int
    wait_ms: int


class Bucket(NamedTuple):
    """Tokens that were left at `seen_us` (the store's clock). A new one is full."""

    tokens: float
    seen_us: int

    def take(
        self, wanted: int, rate_per_s: float, burst: int, now_us: int
    ) -> tuple[Bucket, TokensTaken]:
        """Fill up by the time that has passed, then take whole tokens. A clock that went back fills
        nothing; the rate must be above 0.
        """
        passed_us = max(now_us - self.seen_us, 0)
        tokens = min(float(burst), self.tokens + passed_us * rate_per_s / 1_000_000)
        granted = min(wanted, floor(tokens))
        tokens -= granted
        wait_ms = 0 if granted else max(ceil((1 - tokens) * 1000 / rate_per_s), 1)
        return Bucket(tokens, now_us), TokensTaken(granted, wait_ms)
