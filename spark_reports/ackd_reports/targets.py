"""What was promised: one target, read from a table whatever file that comes from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from ackd_reports.durations import duration_text, duration_us
from ackd_reports.windows import Rolling, Window, aligned, rolling
from ackd_reports.words import DAY_US, DURATIONS, HOUR_US

RATIOS: Final = ("delivered", "first_attempt")
"""delivered: acked and not dead; first_attempt: acked without a second delivery."""
MEASURES: Final = (*DURATIONS, *RATIOS)
FILTERS: Final = ("system", "cluster", "topic", "group", "application")
KEYS: Final = (
    *("name", "measure", "within", "objective", "window", "calendar", "time_zone"),
    *("finished_within", "least_messages", *FILTERS),
)
MONTH: Final = Rolling(30 * DAY_US)
LEAST_MESSAGES: Final = 100
"""Fewer messages in a window of a burn rate say nothing: one of them would be the rate."""


class TargetsError(ValueError):
    """A file of targets has mistakes; the text names each with its place, on a line of its own."""


@dataclass(frozen=True, slots=True)
class Target:
    """One promise. `within_us` is 0 for ratios; `only` holds filters as (column, value)."""

    name: str
    measure: str
    objective: float
    within_us: int = 0
    window: Window = MONTH
    only: tuple[tuple[str, str], ...] = field(default=())
    finished_within_us: int = HOUR_US
    """Of ratios: what is unfinished for longer breaks the promise."""
    least_messages: int = LEAST_MESSAGES

    def sentence(self) -> str:
        """The promise in words, say for a heading of the report."""
        share = f"{100 * self.objective:.6g} % of messages"
        where = ", ".join(f"{name} {value}" for name, value in self.only)
        what = {
            "delivered": "are acked and not given up",
            "first_attempt": "are acked at their first delivery",
            "wait": f"wait at most {duration_text(self.within_us)} for their first lease",
            "work": f"are acked within {duration_text(self.within_us)} of their lease",
            "lease_to_ack": f"are acked within {duration_text(self.within_us)} of the first lease",
            "time_to_ack": f"are acked within {duration_text(self.within_us)} of being published",
        }[self.measure]
        return f"{share} {what}" + (f" ({where})" if where else "")

    def wants(self, stream: Mapping[str, str]) -> bool:
        """Whether its filters let a stream or subscription through. A subscription says nothing
        of applications, and the group is called `grp` in some rows.
        """
        return all(
            stream.get(name, stream.get("grp", value) if name == "group" else value) == value
            for name, value in self.only
        )


def target_of(table: Mapping[str, object], place: str, mistakes: list[str]) -> Target | None:
    """One target; None with the mistakes noted, each after `place`."""
    before = len(mistakes)
    mistakes += [
        f"{place}: {name}: unknown; allowed are {', '.join(sorted(KEYS))}"
        for name in table
        if name not in KEYS
    ]
    measure = table.get("measure")
    if measure not in MEASURES:
        mistakes.append(f"{place}: measure = {measure!r}; allowed are {', '.join(MEASURES)}")
    objective = table.get("objective")
    # 1 would be a budget of nothing, in which every burn rate is infinite.
    if not (_is_number(objective) and 0 < float(str(objective)) < 1):
        mistakes.append(f"{place}: objective = {objective!r}; a number above 0 and below 1")
    within, finished = 0, HOUR_US
    if measure in DURATIONS:
        within = _duration(table.get("within"), f"{place}: within", mistakes)
        if "finished_within" in table:
            mistakes.append(f"{place}: finished_within: {measure} has a within already")
    else:
        finished = _duration(
            table.get("finished_within", "1h"), f"{place}: finished_within", mistakes
        )
        if "within" in table:
            mistakes.append(f"{place}: within: {measure} has no duration")
    least = table.get("least_messages", LEAST_MESSAGES)
    if isinstance(least, bool) or not isinstance(least, int) or least < 1:
        mistakes.append(f"{place}: least_messages = {least!r}; a whole number from 1 on")
    name = table.get("name")
    if not isinstance(name, str) or not name.strip():
        mistakes.append(f"{place}: name = {name!r}; a text")
    only = _filters(table, place, mistakes)
    window = window_of(table, place, mistakes)
    if len(mistakes) > before or window is None:
        return None
    return Target(
        str(name),
        str(measure),
        float(str(objective)),
        within,
        window,
        only,
        finished,
        int(str(least)),
    )


def _filters(
    table: Mapping[str, object], place: str, mistakes: list[str]
) -> tuple[tuple[str, str], ...]:
    only = []
    for column in FILTERS:
        value = table.get(column)
        if value is not None and not isinstance(value, str):
            mistakes.append(f"{place}: {column} = {value!r}; a text")
        elif value is not None:
            only.append((column, value))
    return tuple(only)


def window_of(table: Mapping[str, object], place: str, mistakes: list[str]) -> Window | None:
    """From a table's `window`, `calendar` and `time_zone`; None with the mistakes noted."""
    length = table.get("window", "30d")
    is_aligned = "calendar" in table
    if not is_aligned and "time_zone" in table:
        mistakes.append(f"{place}: time_zone: only with calendar, the start of its first window")
    make: Callable[[], Window] = (
        (lambda: aligned(length, table["calendar"], table.get("time_zone", "UTC")))
        if is_aligned
        else (lambda: rolling(length))
    )
    try:
        return make()
    except ValueError as error:
        mistakes.append(f"{place}: window = {error}")
        return None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _duration(value: object, place: str, mistakes: list[str]) -> int:
    try:
        found = duration_us(value if isinstance(value, str) else repr(value))
    except ValueError as error:
        mistakes.append(f"{place}: {error}")
        return 0
    if found <= 0:
        mistakes.append(f"{place}: must be above 0")
    return found
