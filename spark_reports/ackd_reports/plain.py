"""Small things of a report's plain data: times and counts as people read them, rows by key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, Final

from ackd_reports import words
from ackd_reports.words import MICRO

GROUP: Final = words.STREAM[:4]
CAUSES: Final = (
    *("outcome", "outage", "subscription", "application", "sidecar", "partition", "reason"),
)
"""By what bad messages are told apart, in the order in which it is asked."""
HAPPENED: Final = (
    *("retries", "releases", "expires", "lates", "losts", "send_backs", "extensions"),
)
"""What is counted of each message that is shown."""

Rows = list[dict[str, Any]]


def iso(at_us: int) -> str:
    """Microseconds since 1970 as UTC text with milliseconds."""
    at = datetime.fromtimestamp(at_us // MICRO, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at_us % MICRO // 1000:03d}Z"


def number(weighted: int) -> float | int:
    """A count from its millionths: whole where it is whole."""
    return weighted // MICRO if weighted % MICRO == 0 else round(weighted / MICRO, 3)


def by(rows: Rows, columns: Sequence[str]) -> list[tuple[tuple[Any, ...], Rows]]:
    """Rows by the values of some columns, ascending."""

    def key(row: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(row[name] for name in columns)

    return [(named, list(found)) for named, found in groupby(sorted(rows, key=key), key)]


def names(columns: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    """Columns under the names of the report."""
    return {
        "group" if name == "grp" else name: value
        for name, value in zip(columns, values, strict=True)
    }


def message(row: Mapping[str, Any]) -> dict[str, Any]:
    """A message to look at: where it lies, its trace, and when what happened."""
    columns = (*GROUP, "partition", "message", "application", "epoch")
    times = {
        name: None if row[f"{name}_us"] is None else iso(row[f"{name}_us"])
        for name in ("born", "first", "ack_end", "dead", "last_lease", "seen_last")
    }
    more = {"age_ms": row["age_us"] / 1000} if "age_us" in row else {}
    return {
        **names(columns, [row[name] for name in columns]),
        "trace_id": row["trace_id"],
        **times,
        "attempts": row["attempt_max"],
        "reason": row["reason"],
        "sidecar": row["sidecar"],
        "counts": {name: row[f"{name}_n"] for name in HAPPENED if row[f"{name}_n"]},
        **more,
    }
