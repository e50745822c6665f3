"""Why objectives were breached, and which messages to look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

from ackd_reports.measures import BROKEN
from ackd_reports.model import Report
from ackd_reports.render import plots
from ackd_reports.render.parts import (
    Raw,
    count_text,
    figure,
    ms_text,
    place_cell,
    section,
    share_text,
    table,
    time_text,
    trace_cell,
    where_text,
)

TELLS_MIN: Final = 0.2
"""A cause of fewer of the bad messages than this is not in the head of the page."""
_HEADS: Final = ("message", "group", "trace", "published", "first lease", "ended", "history")
_COUNTED: Final = {
    "retries": ("retry", "retries"),
    "expires": ("lease ran out", "leases ran out"),
    "losts": ("lease lost", "leases lost"),
    "lates": ("late settle", "late settles"),
    "releases": ("release", "releases"),
    "extensions": ("extension", "extensions"),
    "send_backs": ("send back", "send backs"),
}
"""What is counted in a history: one of it, several."""


def _row(message: Mapping[str, Any], links: Mapping[str, str]) -> list[object]:
    return [
        place_cell(message, links),
        message["group"],
        trace_cell(message, links),
        time_text(message["born"]),
        time_text(message["first"]),
        time_text(message["ack_end"] or message["dead"]),
        history(message),
    ]


def history(message: Mapping[str, Any]) -> str:
    """What happened to a message, in one line."""
    attempts = message["attempts"] or 0
    parts = [_counted(attempts, ("delivery", "deliveries"))]
    counts = message["counts"]
    parts += [_counted(counts[name], text) for name, text in _COUNTED.items() if counts.get(name)]
    if not message["ack_end"] and message["last_lease"]:
        parts.append(f"last leased {time_text(message['last_lease'])}")
    if message["sidecar"]:
        parts.append(f"at {message['sidecar']}")
    if message["dead"]:
        parts.append(f"given up {time_text(message['dead'])} ({message['reason'] or 'no reason'})")
    return ", ".join(parts)


def _counted(count: int, text: tuple[str, str]) -> str:
    return f"{count} {text[count != 1]}"


def reason(promise: Mapping[str, Any]) -> str:
    """By whom and why an objective was breached, for the head of the page; HTML."""
    breaching = [each for each in promise.get("subscriptions", ()) if each["bad"]]
    parts = []
    if breaching:
        worst = max(breaching, key=lambda each: (each["bad"], where_text(each)))
        parts.append(
            f"{escape(where_text(worst))} has {count_text(worst['bad'])} of"
            f" {count_text(promise['bad'])} bad messages"
        )
    for name in ("outcome", "outage"):
        found = [each for each in promise.get("causes", ()) if each["dimension"] == name]
        if found and (found[0]["share"] or 0) >= TELLS_MIN and found[0]["value"] != "no outage":
            what = "amid the outage of" if name == "outage" else "mostly:"
            parts.append(f"{what} {escape(found[0]['value'])} ({share_text(found[0]['share'])})")
    return "; ".join(parts)


def breaches(report: Report) -> str:
    """For each objective that is breached: causes, a message for each, the longest, the budget."""
    links = report["links"]
    parts = []
    for each in report["promises"]:
        if each["state"] != BROKEN or "causes" not in each:
            continue
        parts.append(f"<h3>{escape(each['name'])}</h3><p>{escape(each['sentence'])}.</p>\n")
        parts.append(_causes(each))
        parts.append(_typical(each, links))
        rows = [[*_row(found, links), ms_text(found["took_ms"])] for found in each["examples"]]
        if rows:
            parts.append(table(f"{each['name']}: the longest", (*_HEADS, "took"), rows))
        if len(each["remaining"]) > 1:
            left = {"left": [(at, 100 * share) for at, share in each["remaining"]]}
            title = f"Error budget left: {each['name']}"
            parts.append(figure(title, plots.lines(left, title=title, unit="%", bound=0.0)))
    return section("Why objectives were breached", "broken", "".join(parts)) if parts else ""


def _causes(promise: Mapping[str, Any]) -> str:
    rows = [
        (
            each["dimension"],
            each["value"],
            each["messages"],
            share_text(each["share"]),
            Raw(f'<i class="bar" style="width:{6 * (each["share"] or 0):.2f}rem"></i>'),
        )
        for each in promise["causes"]
    ]
    if not rows:
        return "<p>None of its bad messages is from this period.</p>\n"
    heads = ("by", "what", "bad messages", "share", "")
    return table(f"{promise['name']}: its bad messages of this period", heads, rows)


def _typical(promise: Mapping[str, Any], links: Mapping[str, str]) -> str:
    rows = [
        [each["outcome"], *_row(each, links), ms_text(each["took_ms"])]
        for each in promise["typical"]
    ]
    if not rows:
        return ""
    return table(f"{promise['name']}: a typical message of each", ("what", *_HEADS, "took"), rows)


def burns(report: Report) -> str:
    """When error budgets went too fast."""
    rows = [
        (
            each["name"],
            alert["severity"],
            alert["window"],
            time_text(alert["since"]),
            time_text(alert["until"]),
            alert["peak"],
            alert["bound"],
        )
        for each in report["promises"]
        for alert in each.get("alerts", ())
    ]
    if not rows:
        return ""
    heads = ("objective", "severity", "window", "from", "to", "highest burn rate", "bound")
    return section(
        "When error budgets burned too fast",
        "burn",
        table("Burn rate above its bound", heads, rows),
    )


def listed(title: str, name: str, messages: Sequence[dict[str, Any]], links: Any) -> str:
    """Messages that are worth a look."""
    if not messages:
        return ""
    with_age = "age_ms" in messages[0]
    rows = [
        [
            *_row(each, links),
            ms_text(each["age_ms"]) if with_age else time_text(each["last_lease"]),
        ]
        for each in messages
    ]
    heads = (*_HEADS, "age" if with_age else "leased again")
    return section(title, name, table(title, heads, rows))
