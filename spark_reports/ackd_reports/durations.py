"""Durations as people write and read them."""

from __future__ import annotations

import re
from typing import Final

from ackd_reports.words import DAY_US, HOUR_US, MICRO

_UNITS: Final = {"ms": 1_000, "s": MICRO, "m": 60 * MICRO, "h": HOUR_US, "d": DAY_US}
_UNITS["w"] = 7 * DAY_US


def duration_us(text: str) -> int:
    """Read "250ms", "30s", "1h30m", "7d"; `ValueError` for anything else."""
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f'"{text}" is no duration; write 250ms, 30s, 5m, 1h, 7d')
    return round(sum(float(number) * _UNITS[unit] for number, unit in parts))


def duration_text(duration: float) -> str:
    """A duration in microseconds, short, for people."""
    for unit, size in (("d", DAY_US), ("h", HOUR_US), ("min", 60 * MICRO)):
        if duration >= 2 * size or (duration >= size and duration % size == 0):
            return f"{duration / size:.3g} {unit}"
    if duration >= MICRO:
        return f"{duration / MICRO:.3g} s"
    return f"{duration / 1000:.3g} ms" if duration >= 1 else "0 ms"
