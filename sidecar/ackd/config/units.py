"""Convert durations, sizes and instants between people's text and integers.

`parse_*` raise `ValueError` with a sentence for the operator; `format_*` give the shortest exact
text, so that parsing what was formatted gives the same number.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

DURATIONS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
SIZES = {"GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10, "B": 1}
# Powers of ten as well: somebody who writes 16MB means it.
DECIMAL_SIZES = {"GB": 10**9, "MB": 10**6, "kB": 10**3, "KB": 10**3}

DIGITS_MAX = 18
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_DURATION = re.compile(r"([0-9]+)(ms|[dhms])")
_SIZE = re.compile(r"([0-9]+) ?([A-Za-z]+)")


def parse_duration(text: str) -> int:
    """Milliseconds of `500ms`, `10s`, `1m30s`: whole numbers, larger units first, each once."""
    wrong = "not a duration like 500ms, 10s or 1m30s"
    total, end, last = 0, 0, float("inf")
    for match in _DURATION.finditer(text):
        unit_ms = DURATIONS_MS[match[2]]
        if match.start() != end or unit_ms >= last or len(match[1]) > DIGITS_MAX:
            raise ValueError(wrong)
        total += int(match[1]) * unit_ms
        end, last = match.end(), unit_ms
    if end == 0 or end != len(text):
        raise ValueError(wrong)
    return total


def format_duration(ms: int) -> str:
    """Write milliseconds as the settings do: `90000` -> `1m30s`."""
    if ms == 0:
        return "0s"
    parts = []
    for unit, unit_ms in DURATIONS_MS.items():
        count, ms = divmod(ms, unit_ms)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


def parse_size(text: str) -> int:
    """Bytes of `16MiB`, `64 KiB`, `2GB`."""
    match = _SIZE.fullmatch(text)
    factor = {**SIZES, **DECIMAL_SIZES}.get(match[2]) if match else None
    if match is None or factor is None or len(match[1]) > DIGITS_MAX:
        message = "not a size like 64KiB, 16MiB or 1GiB"
        raise ValueError(message)
    return int(match[1]) * factor


def format_size(size: int) -> str:
    """`16777216` -> `16MiB`; always exact."""
    for unit, factor in SIZES.items():
        if size and size % factor == 0:
            return f"{size // factor}{unit}"
    return "0B"


def parse_instant(text: str) -> int:
    """Unix milliseconds of an ISO 8601 date-time with an offset."""
    try:
        return instant_ms(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        message = "not a date-time with an offset like 2026-01-31T08:00:00Z"
        raise ValueError(message) from None


def instant_ms(moment: datetime) -> int:
    """Unix milliseconds; without an offset the moment would depend on the machine's time zone."""
    if moment.tzinfo is None:
        message = "a date-time needs an offset like 2026-01-31T08:00:00Z"
        raise ValueError(message)
    return (moment - EPOCH) // timedelta(milliseconds=1)
