"""PURE: write numbers, ages and names for a narrow column."""

from __future__ import annotations

from datetime import UTC, datetime

UNKNOWN = "-"
_STEPS = ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k"))
_UNITS_S = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))
_WHOLE = 10_000
_SHORT = 100


def clean(text: object, most: int = 500) -> str:
    """Make one line without control characters, as names and errors come from others. Cut it to
    `most`.
    """
    shown = "".join(each if each.isprintable() else "?" for each in str(text)[: most + 1])
    return cut(shown, most)


def cut(text: str, most: int) -> str:
    """Keep the beginning; a mark shows that there was more."""
    return text if len(text) <= most else text[: most - 1] + "…"


def cut_head(text: str, most: int) -> str:
    """Keep the end, after a mark: of `orders/3/2101` the numbers say more than the topic."""
    return text if len(text) <= most else "…" + text[len(text) - most + 1 :]


def count(value: float | None) -> str:
    """Write a number in at most five characters below a quadrillion: 9999, 12.3k, 456M."""
    if value is None:
        return UNKNOWN
    if value < _WHOLE:
        return str(round(value))
    for step, unit in _STEPS:
        if value >= step:
            part = value / step
            return f"{part:.1f}{unit}" if round(part, 1) < _SHORT else f"{part:.0f}{unit}"
    raise AssertionError(value)


def rate(per_s: float | None) -> str:
    """Write a rate; a small one has a digit behind the point, so that one message in ten seconds
    shows.
    """
    if per_s is None:
        return UNKNOWN
    return f"{per_s:.1f}" if 0 < per_s < _SHORT else count(per_s)


def age(seconds: float | None) -> str:
    """Write a duration in its two largest units: 45s, 3m20s, 2h5m, 4d1h."""
    if seconds is None:
        return UNKNOWN
    left = max(int(seconds), 0)
    for index, (size, unit) in enumerate(_UNITS_S):
        if left >= size:
            more = ""
            if index + 1 < len(_UNITS_S):
                below, name = _UNITS_S[index + 1]
                rest = left % size // below
                more = f"{rest}{name}" if rest else ""
            return f"{left // size}{unit}{more}"
    return "0s"


def moment(unix_ms: int) -> str:
    """Write a time as date and time in UTC, to the second."""
    at = datetime.fromtimestamp(unix_ms / 1000, UTC)
    return at.strftime("%Y-%m-%d %H:%M:%SZ")


def until(unix_ms: int, now_ms: int) -> str:
    """Write a time as `in 41s`, or `3m20s ago`."""
    away_s = (unix_ms - now_ms) / 1000
    return f"in {age(away_s)}" if away_s >= 0 else f"{age(-away_s)} ago"
