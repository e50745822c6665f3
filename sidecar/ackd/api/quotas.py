"""Bounds for publishers, and what is left of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Quota:
    """One bound. `unit`: of the registry of the draft on RateLimit fields (`requests`,
    `content-bytes`, `concurrent-requests`). `window_ms`: for how long a unit counts, 0 = while its
    request runs. `reset_ms`: when there is more again, if nothing is left.
    """

    name: str
    unit: str
    most: int
    left: int
    window_ms: int = 0
    reset_ms: int = 0
