"""Breaches of objectives, a row each: over their windows, and of burn rates on the way there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from ackd_reports.measures import BROKEN

OBJECTIVE, BURN = "objective", "burn rate"
_CAUSES: Final = ("subscription", "outcome", "outage")


def breaches(promises: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """`value` is compliance or the highest burn rate, `bound` what it was held against."""
    rows = []
    for promise in promises:
        name = promise["name"]
        if promise["state"] == BROKEN:
            since = gone_since(promise)
            values = {"value": promise["share"], "bound": promise["objective"]}
            window = promise["window"]["text"] if "window" in promise else ""
            kind = {"kind": OBJECTIVE, "severity": "", "window": window}
            times = {"since": since, "until": None}
            rows.append({"name": name, **kind, **times, **values, **_causes(promise)})
        for alert in promise.get("alerts", ()):
            kind = {"kind": BURN, "severity": alert["severity"], "window": alert["window"]}
            times = {"since": alert["since"], "until": alert["until"]}
            values = {"value": alert["peak"], "bound": alert["bound"]}
            rows.append({"name": name, **kind, **times, **values, **_causes(promise)})
    return rows


def gone_since(promise: Mapping[str, Any]) -> str | None:
    """When its error budget was gone; it does not come back within its window."""
    return next((at for at, left in promise.get("remaining", ()) if left < 0), None)


def _causes(promise: Mapping[str, Any]) -> dict[str, str]:
    """The cause of most of its bad messages, of each sort."""
    found: dict[str, str] = {}
    for each in promise.get("causes", ()):
        found.setdefault(each["dimension"], each["value"])
    return {name: found.get(name, "") for name in _CAUSES}
