"""A token bucket: `rate_per_s` messages a second on average, up to `burst` at once after a pause.

The store keeps one bucket per subscription and uses its own clock, so that all sidecars together
keep the rate. A rollback of the store or a jump of its clock fills the bucket at most once.
"""

from __future__ import annotations

from math import ceil, floor
from typing import NamedTuple


class TokensTaken(NamedTuple):
    """The answer to a take. `wait_ms`: time until the next token, if `granted` is 0."""

    granted: int
    wait_ms: int


class Bucket(NamedTuple):
    """The tokens left at `seen_us` (the store's clock). A new bucket is full."""

    tokens: float
    seen_us: int

    def take(
        self, wanted: int, rate_per_s: float, burst: int, now_us: int
    ) -> tuple[Bucket, TokensTaken]:
        """Add tokens for the time that has passed, then take whole ones. A clock that went back
        adds none. The rate must be above 0.
        """
        passed_us = max(now_us - self.seen_us, 0)
        tokens = min(float(burst), self.tokens + passed_us * rate_per_s / 1_000_000)
        granted = min(wanted, floor(tokens))
        tokens -= granted
        wait_ms = 0 if granted else max(ceil((1 - tokens) * 1000 / rate_per_s), 1)
        return Bucket(tokens, now_us), TokensTaken(granted, wait_ms)
