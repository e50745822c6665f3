"""PURE: the columns of the view, as wide as there is room, and the lines of text around them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ackd.cli.figures import UNKNOWN, age, clean, count, cut, rate
from ackd.cli.message_lines import NAME_MAX, NAME_MIN
from ackd_top.subscription_rows import BoardRow, SeenBefore

_STATE_MAX = 9


@dataclass(frozen=True, slots=True)
class Column:
    """`width` includes a space before it; a column with a larger `rank` goes first when it is
    narrow.
    """

    title: str
    width: int
    rank: int
    text: Callable[[BoardRow], str]


def _gauge(name: str) -> Callable[[BoardRow], str]:
    return lambda row: count(row.of(name))


COLUMNS = (
    Column("lag", 6, 0, _gauge("lag")),
    Column("ready", 6, 2, _gauge("ready")),
    Column("leased", 7, 0, _gauge("in_flight")),
    Column("waiting", 8, 0, _gauge("waiting")),
    Column("stuck", 6, 0, lambda row: count(row.stuck)),
    Column("oldest", 8, 1, lambda row: age(row.oldest_s) if row.oldest_s else UNKNOWN),
    Column("dead", 6, 0, lambda row: count(row.dead)),
    Column("in retry topic", 15, 3, _gauge("in_retry_topic")),
    Column("out/s", 6, 0, lambda row: rate(row.out_s)),
    Column("ack/s", 6, 0, lambda row: rate(row.acked_s)),
    Column("fail/s", 7, 0, lambda row: rate(row.failed_s)),
    Column("asking", 7, 4, _gauge("waiters")),
    Column("parts", 6, 5, _gauge("partitions")),
)


@dataclass(frozen=True, slots=True)
class Table:
    """What fits into a width. The name comes first, then the state, then the columns."""

    name_width: int
    columns: tuple[Column, ...]

    @property
    def titles(self) -> list[str]:
        """Titles of all columns, padded to their widths."""
        numbers = [each.title.rjust(each.width) for each in self.columns]
        return ["subscription".ljust(self.name_width), " state".ljust(_STATE_MAX + 1), *numbers]

    def cells(self, row: BoardRow) -> list[str]:
        """One row, padded as the titles are."""
        name = cut(clean(row.name), self.name_width).ljust(self.name_width)
        state = f" {cut(clean(row.state), _STATE_MAX)}".ljust(_STATE_MAX + 1)
        return [name, state, *(each.text(row).rjust(each.width) for each in self.columns)]


def table(width: int) -> Table:
    """Leaves columns out from the highest rank on until the rest fits."""
    columns = list(COLUMNS)
    while True:
        room = width - _STATE_MAX - 1 - sum(each.width for each in columns)
        worst = max(each.rank for each in columns)
        if room >= NAME_MIN or worst == 0:
            return Table(max(min(room, NAME_MAX), NAME_MIN), tuple(columns))
        columns = [each for each in columns if each.rank < worst]


# --- lines


def headline(sidecars: Sequence[SeenBefore], at_ms: int) -> str:
    """First line of the board: the time (UTC), and how many sidecars answer, or which one it is."""
    there = sum(not each.error for each in sidecars)
    clock = time.strftime("%H:%M:%S", time.gmtime(at_ms / 1000))
    if len(sidecars) == 1:
        one = sidecars[0]
        who = " ".join(each for each in (one.identity or one.name, one.version) if each)
        return f"ackd top  {clock}Z  {who}"
    return f"ackd top  {clock}Z  {there} of {len(sidecars)} sidecars answer"


def warnings(sidecars: Iterable[SeenBefore], now_s: float) -> list[str]:
    """A line for each sidecar that does not answer, or is not ready."""
    lines = []
    for each in sidecars:
        who = each.identity or each.name
        if each.error:
            lines.append(
                f"NO ANSWER from {who} for {age(now_s - each.since_s)}: {each.error}; trying on"
            )
        lines += [f"NOT READY {who}: {reason}" for reason in each.reasons]
    return lines


def limits(row: BoardRow) -> str:
    """What holds the whole subscription back, in one line."""
    return "; ".join(clean(each) for each in row.limits)
