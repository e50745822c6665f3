"""Outages as sidecars saw them, put together: many sidecars see one outage of one store."""

from __future__ import annotations

from typing import Any, Final

from ackd_reports.plain import Rows, iso
from ackd_reports.words import MICRO

APART_US: Final = 60 * MICRO
"""Outages of one thing that are nearer to each other are one."""
OUTAGES_MAX: Final = 20


def outages(process: Rows) -> list[dict[str, Any]]:
    """Rows of sidecars' events -> `of`, `start_us`, `end_us`, `sidecars`, `name`, the longest first
    if there are more than `OUTAGES_MAX`, in order of time.
    """
    merged: dict[str, list[dict[str, Any]]] = {}
    for row in sorted(process, key=lambda each: (each["start_us"], each["end_us"])):
        if row["event"] != "outage":
            continue
        of = merged.setdefault(row["of"], [])
        if of and row["start_us"] <= of[-1]["end_us"] + APART_US:
            of[-1]["end_us"] = max(of[-1]["end_us"], row["end_us"])
            of[-1]["seen_by"].add(row["instance"])
        else:
            seen_by = {row["instance"]}
            times = {"start_us": row["start_us"], "end_us": row["end_us"]}
            of.append({"of": row["of"], **times, "seen_by": seen_by})
    every = [each for listed in merged.values() for each in listed]
    longest = sorted(every, key=lambda each: each["start_us"] - each["end_us"])[:OUTAGES_MAX]
    return [
        {
            "of": each["of"],
            "start_us": each["start_us"],
            "end_us": each["end_us"],
            "sidecars": len(each["seen_by"]),
            "name": f"{each['of']} {iso(each['start_us'])[:16].replace('T', ' ')}",
        }
        for each in sorted(longest, key=lambda each: (each["start_us"], each["of"]))
    ]
