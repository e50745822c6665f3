"""Parse arguments of commands. A text that does not fit is refused with an example."""

from __future__ import annotations

import argparse
import re
import time

from ackd.config.units import parse_duration, parse_instant

_OFFSET = re.compile(r"(.+)/(\d{1,9})=(\d{1,18})")
_MS_DIGITS_MAX = 15


def duration_ms(text: str) -> int:
    """Parse a duration like `1m30s` for argparse; milliseconds."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is {error}") from error


def time_ms(text: str) -> int:
    """Parse a date-time with its zone, or Unix ms; Unix ms."""
    if text.isdecimal() and text.isascii() and len(text) <= _MS_DIGITS_MAX:
        return int(text)
    try:
        return parse_instant(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is {error}") from error


def past_ms(text: str) -> int:
    """Parse a time like `time_ms`, or how long ago it was (`2h`); Unix ms."""
    if text.isdecimal() or ":" in text:
        return time_ms(text)
    return time.time_ns() // 1_000_000 - duration_ms(text)


def offset(text: str) -> dict[str, str | int]:
    """Parse `TOPIC/PARTITION=OFFSET` into a position of a request."""
    found = _OFFSET.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a position like orders/3=2101")
    return {"topic": found[1], "partition": int(found[2]), "offset": int(found[3])}
