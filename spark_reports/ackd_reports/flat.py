"""Objectives, breaches and hours of a report as flat rows, for CSV and Parquet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ackd_reports.model import COUNTS, PERCENTILES, Report

_TEXT, _NUMBER = "STRING", "DOUBLE"
_SUBSCRIPTION: Final = ("system", "cluster", "topic", "group")
_SHOWN: Final = ("wait", "time_to_ack")


@dataclass(frozen=True, slots=True)
class FlatTable:
    """Columns with their types of Spark, and what makes the rows."""

    columns: Mapping[str, str]
    rows_of: Callable[[Report], Sequence[Mapping[str, Any]]]


def _promises(report: Report) -> list[dict[str, Any]]:
    """A row for each objective, and one for each of its subscriptions."""
    rows = []
    for each in report["promises"]:
        period = each.get("period", each)
        whole = {
            **dict.fromkeys(_SUBSCRIPTION, ""),
            "objective": each["objective"],
            "window": each["window"]["text"] if "window" in each else "",
            **{name: each.get(name) for name in ("name", "state", "share", "good", "bad", "spent")},
            **{f"period_{name}": period[name] for name in ("good", "bad", "share")},
        }
        rows.append(whole)
        for one in each.get("subscriptions", ()):
            own = {name: one[name] for name in (*_SUBSCRIPTION, "state", "share", "good", "bad")}
            nothing = dict.fromkeys(("period_good", "period_bad", "period_share"))
            rows.append({**whole, **nothing, **own, "spent": one["spent"]})
    return rows


def _hours(report: Report) -> list[dict[str, Any]]:
    return [
        {
            "hour": each["hour"],
            **{name: each[name] for name in (*_SUBSCRIPTION, *COUNTS)},
            **{
                f"{name}_{share}_ms": each["durations"][name][f"{share}_ms"]
                for name in _SHOWN
                for share in PERCENTILES
            },
        }
        for each in report["hours"]
    ]


TABLES: Final[Mapping[str, FlatTable]] = {
    "promises": FlatTable(
        {
            "name": _TEXT,
            **dict.fromkeys(_SUBSCRIPTION, _TEXT),
            "state": _TEXT,
            "objective": _NUMBER,
            "window": _TEXT,
            **dict.fromkeys(("share", "good", "bad", "spent"), _NUMBER),
            **dict.fromkeys(("period_share", "period_good", "period_bad"), _NUMBER),
        },
        _promises,
    ),
    "breaches": FlatTable(
        {
            **dict.fromkeys(("name", "kind", "severity", "window", "since", "until"), _TEXT),
            **dict.fromkeys(("value", "bound"), _NUMBER),
            **dict.fromkeys(("subscription", "outcome", "outage"), _TEXT),
        },
        lambda report: list(report["breaches"]),
    ),
    "hours": FlatTable(
        {
            "hour": _TEXT,
            **dict.fromkeys(_SUBSCRIPTION, _TEXT),
            **dict.fromkeys(COUNTS, _NUMBER),
            **{f"{name}_{share}_ms": _NUMBER for name in _SHOWN for share in PERCENTILES},
        },
        _hours,
    ),
}
