"""The time over which a promise is judged: rolling, or aligned to a calendar with a time zone.

Durations are OpenSLO's shorthand: a whole number and one of m, h, d, w, M (months), Q (quarters),
Y (years). A calendar's windows follow each other from its start: minutes and hours by the clock
that never jumps, everything longer by the wall clock of its time zone, so that a day of 25 hours
is one day.
"""

from __future__ import annotations

import calendar
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from ackd_reports.durations import duration_text
from ackd_reports.words import BUCKET_US, DAY_US, HOUR_US, MICRO

_SHORTHAND: Final = re.compile(r"([1-9]\d{0,4})([mhdwMQY])")
_EXACT: Final = {"m": 60 * MICRO, "h": HOUR_US, "d": DAY_US, "w": 7 * DAY_US}
_MONTHS: Final = {"M": 1, "Q": 3, "Y": 12}
_NAMES: Final = {
    "m": "minute",
    "h": "hour",
    "d": "day",
    "w": "week",
    "M": "month",
    "Q": "quarter",
    "Y": "year",
}
_STEP_US: Final = {**_EXACT, "M": 30 * DAY_US, "Q": 91 * DAY_US, "Y": 365 * DAY_US}
"""About how long a unit is: where to begin to look for a window."""
START_FORMAT: Final = "%Y-%m-%d %H:%M:%S"
_BUCKET: Final = "a multiple of 5 minutes"


@dataclass(frozen=True, slots=True)
class Rolling:
    """The last `length_us` before whatever moment is asked for."""

    length_us: int

    def around(self, until_us: int) -> tuple[int, int]:
        """[since, until); `since` is the begin of a 5-minute bucket."""
        return (until_us - self.length_us) // BUCKET_US * BUCKET_US, until_us

    def text(self) -> str:
        """For people: `30 d`."""
        return duration_text(self.length_us)


@dataclass(frozen=True, slots=True)
class Calendar:
    """`count` of `unit`, again and again from `start` (local time of `zone`) on."""

    count: int
    unit: str
    start: datetime
    zone: str

    def around(self, until_us: int) -> tuple[int, int]:
        """[since, end) of the window that the moment before `until_us` lies in; before the start,
        the first window.
        """
        number = max(0, (until_us - self._edge_us(0)) // (_STEP_US[self.unit] * self.count))
        while number > 0 and self._edge_us(number) >= until_us:
            number -= 1
        while self._edge_us(number + 1) < until_us:
            number += 1
        return self._edge_us(number), self._edge_us(number + 1)

    def text(self) -> str:
        """For people: `calendar month (Europe/Berlin)`."""
        name = _NAMES[self.unit]
        length = name if self.count == 1 else f"{self.count} {name}s"
        return f"calendar {length} ({self.zone})"

    def _edge_us(self, number: int) -> int:
        """Begin of window `number`."""
        steps = number * self.count
        local = self.start
        if self.unit in _MONTHS:
            local = _months_on(local, steps * _MONTHS[self.unit])
        elif self.unit in "dw":
            local += timedelta(days=steps * (7 if self.unit == "w" else 1))
        at = round(local.replace(tzinfo=ZoneInfo(self.zone)).timestamp()) * MICRO
        return at + (steps * _EXACT[self.unit] if self.unit in "mh" else 0)


Window = Rolling | Calendar


def _months_on(at: datetime, months: int) -> datetime:
    """The same day of a later month, or that month's last."""
    years, month = divmod(at.month - 1 + months, 12)
    last = calendar.monthrange(at.year + years, month + 1)[1]
    return at.replace(year=at.year + years, month=month + 1, day=min(at.day, last))


def rolling(text: object) -> Rolling:
    """A rolling window from shorthand; `ValueError`."""
    count, unit = _shorthand(text)
    if unit in _MONTHS:
        raise ValueError(f'"{text}": a rolling window has no fixed number of days in it; say 30d')
    return Rolling(_whole_buckets(count * _EXACT[unit], text))


def aligned(text: object, start: object, zone: object) -> Calendar:
    """A calendar-aligned window: shorthand, local start, name of a time zone; `ValueError`."""
    count, unit = _shorthand(text)
    if unit in _EXACT:
        _whole_buckets(count * _EXACT[unit], text)
    if not isinstance(zone, str):
        raise ValueError(f"time zone = {zone!r}; a name such as Europe/Berlin")  # noqa: TRY004
    try:
        ZoneInfo(zone)
    except (KeyError, ValueError, OSError):
        raise ValueError(f'there is no time zone "{zone}" (names such as Europe/Berlin)') from None
    return Calendar(count, unit, _start(start), zone)


def _start(start: object) -> datetime:
    at = start
    if isinstance(at, str):
        try:
            at = datetime.strptime(at, START_FORMAT)  # noqa: DTZ007 -- the zone stands beside it
        except ValueError:
            raise ValueError(f'start = "{start}"; write 2026-01-01 00:00:00') from None
    if not isinstance(at, datetime) or at.tzinfo is not None:
        raise ValueError(f"start = {start}; write 2026-01-01 00:00:00, without a time zone")
    if at.minute * 60 * MICRO % BUCKET_US or at.second or at.microsecond:
        raise ValueError(f"start = {start}: {_BUCKET}")
    return at


def _shorthand(text: object) -> tuple[int, str]:
    found = _SHORTHAND.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise ValueError(f"{text!r} is no length of a window; write 12h, 30d, 4w, 1M, 1Q, 1Y")
    return int(found[1]), found[2]


def _whole_buckets(length_us: int, text: object) -> int:
    if length_us % BUCKET_US:
        raise ValueError(f'"{text}": {_BUCKET}')
    return length_us
