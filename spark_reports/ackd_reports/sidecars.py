"""What sidecars tell of themselves: restarts, outages, commit lag, deliveries."""

from __future__ import annotations

from typing import Any, Final

from ackd_reports.outages import outages
from ackd_reports.plain import GROUP, Rows, by, iso, names

BEGAN_MAX: Final = 100
"""So many starts are drawn beside what happened to messages."""


def sidecars(rows: Rows, runs: Rows) -> dict[str, Any]:
    """Restarts and outages. A restart is one more run (boot id) of an instance."""
    starts = [row for row in rows if row["event"] == "start"]
    stops = sum(row["event"] == "stop" for row in rows)
    instances = {row["instance"] for row in runs}
    return {
        "instances": len(instances),
        "starts": len(starts),
        "stops": stops,
        "restarts": len(runs) - len(instances),
        "outages": [
            {
                "of": each["of"],
                "name": each["name"],
                "sidecars": each["sidecars"],
                "since": iso(each["start_us"]),
                "until": iso(each["end_us"]),
            }
            for each in outages(rows)
        ],
        "began": [iso(row["start_us"]) for row in starts][-BEGAN_MAX:],
    }


def commit_lag(rows: Rows) -> list[dict[str, Any]]:
    """The largest of each group."""
    return [
        {**names(GROUP, key), "lag_max": max(row["lag_max"] for row in found)}
        for key, found in by(rows, GROUP)
    ]


def batches(rows: Rows) -> list[dict[str, Any]]:
    """Deliveries and acks of each group, exact at any sample."""
    counts = ("deliveries", "redeliveries", "acks")
    return [
        {**names(GROUP, [row[name] for name in GROUP]), **{name: row[name] for name in counts}}
        for row in rows
    ]
