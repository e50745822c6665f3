"""Waiting for a condition with a bound, never for a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

STEP_S = 0.02


async def eventually(condition: Callable[[], object], what: str, timeout_s: float) -> None:
    """Return as soon as the condition is true; AssertionError past the bound."""
    until = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < until, f"not within {timeout_s} s: {what}"
        await asyncio.sleep(STEP_S)
