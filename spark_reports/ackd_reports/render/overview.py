"""Which objective is breached, by which subscription, since when, and how it went."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from html import escape
from typing import Any, Final

from ackd_reports.measures import BROKEN
from ackd_reports.model import Report
from ackd_reports.plain import iso
from ackd_reports.render import panels
from ackd_reports.render.parts import (
    Raw,
    budget_text,
    count_text,
    figure,
    percent,
    section,
    state_text,
    table,
    time_text,
    where_text,
)
from ackd_reports.render.sparkline import sparkline
from ackd_reports.words import MICRO

LEVEL: Final = 0.005
"""A change that is less than this, in hundredths, is none."""


def objectives(report: Report) -> str:
    """Each objective in a row."""
    rows = [
        (
            each["name"],
            state_text(each["state"]),
            each["sentence"],
            percent(each["share"]),
            percent(each["objective"]),
            each["window"]["text"] if "window" in each else "this period",
            each["bad"],
            budget_text(each.get("spent")),
            _burning(each),
            percent(each.get("period", each)["share"]),
            percent(each.get("period", {}).get("share_before")),
        )
        for each in report["promises"]
    ]
    heads = (
        "objective",
        "state",
        "what",
        "compliance",
        "asked for",
        "over",
        "bad messages",
        "error budget left",
        "burn rate 1 h / 6 h",
        "this period",
        "before",
    )
    return section("Objectives", "promises", table("Compliance with objectives", heads, rows))


def _burning(promise: dict[str, Any]) -> str:
    found = {each["long"]: each["burn_long"] for each in promise.get("burning", ())}
    return " / ".join(f"{rate:.3g}" for rate in list(found.values())[:2]) or "–"


def subscriptions(report: Report) -> str:
    """A row for each subscription, what matters first; the worst of its objectives."""
    heads = (
        "subscription",
        "state",
        "worst objective",
        "compliance",
        "asked for",
        "error budget left",
        "burn rate 1 h / 6 h",
        "breached since",
        "bad messages by time",
        "trend",
        "messages",
        "given up",
        "not finished",
    )
    rows = [_row(report, each) for each in report["subscriptions"]]
    if not rows:
        return ""
    caption = "Subscriptions, what matters first"
    return section("Subscriptions", "subscriptions", table(caption, heads, rows))


def _row(report: Report, each: dict[str, Any]) -> tuple[object, ...]:
    worst = each["promises"][0] if each["promises"] else None
    where = Raw(f'<a href="#{_anchor(report, each)}">{escape(where_text(each))}</a>')
    bad = [float(point["bad"] if point else 0) for point in _whole(report, each)]
    most = f"bad messages of {where_text(each)}: {count_text(sum(bad))} in all"
    standing: tuple[object, ...]
    if worst is None:
        standing = ("none is for it", "–", "–", "–", "–", "–")
    else:
        others = len(each["promises"]) - 1
        breached = sum(one["state"] == BROKEN for one in each["promises"][1:])
        more = f" (and {others} more, {breached} breached)" if others else ""
        standing = (
            f"{worst['name']}{more}",
            percent(worst["share"]),
            percent(worst["objective"]),
            budget_text(worst["spent"]),
            " / ".join(f"{rate:.3g}" for rate in worst["burn"].values()),
            time_text(worst["breached_since"]) if worst["state"] == BROKEN else "–",
        )
    return (
        where if each["series"] else where_text(each),
        state_text(each["state"]),
        *standing,
        sparkline(bad, most) if sum(bad) else "–",
        _trend(each, worst),
        each["messages"],
        each["dead"],
        each["unfinished"],
    )


def _trend(each: dict[str, Any], worst: dict[str, Any] | None) -> str:
    """Against the period before: compliance where there is an objective, else how many came."""
    if worst and worst["share_before"] is not None and worst["share_period"] is not None:
        points = 100 * (worst["share_period"] - worst["share_before"])
        return f"{_arrow(points)} {points:+.2f} points"
    before = each["messages_before"]
    if not before:
        return "–"
    change = 100 * (each["messages"] - before) / before
    return f"{_arrow(change)} {change:+.0f} % messages"


def _arrow(change: float) -> str:
    return "→" if abs(change) < LEVEL else "↗" if change > 0 else "↘"


def _anchor(report: Report, each: dict[str, Any]) -> str:
    return f"over-time-{report['subscriptions'].index(each) + 1}"


def _whole(report: Report, each: dict[str, Any]) -> list[dict[str, Any] | None]:
    """Its points, and None for each slice in which there was nothing."""
    points = {point["at"]: point for point in each["series"]}
    return [points.get(at) for at in slices(report)]


def slices(report: Report) -> list[str]:
    """The begin of each slice of the period."""
    step = report["slice_s"]
    since, until = (
        datetime.fromisoformat(report["period"][name]).timestamp() for name in ("since", "until")
    )
    first = int(since) // step
    return [iso(at * step * MICRO) for at in range(first, int(-(-until // step)) or first + 1)]


def courses(report: Report) -> str:
    """The drawings of each subscription, all on the same axis of time."""
    drawn = [each for each in report["subscriptions"] if each["series"]]
    if not drawn:
        return ""
    step = "5 minutes" if report["slice_s"] == panels.FINE_S else "an hour"
    text = (
        f"<p>Each point is {step}. Band: median to 95th and to 99th percentile of published to"
        " ack, with the limit of its objective as a dotted line. Shaded: an outage that sidecars"
        " saw. Dotted upright: a sidecar started. Dashed upright: a mark, as a deploy.</p>\n"
    )
    figures = "".join(_figures(report, drawn))
    return section(
        "Each subscription over time", "over-time", f'{text}<div class="many">{figures}</div>'
    )


def _figures(report: Report, drawn: list[dict[str, Any]]) -> Iterator[str]:
    at = slices(report)
    events = panels.PlotEvents(
        [(each["name"], each["since"], each["until"]) for each in report["sidecars"]["outages"]],
        report["sidecars"]["began"],
        [(each["at"], each["text"]) for each in report["marks"]],
    )
    for each in drawn:
        limits = [one["within_ms"] for one in each["promises"] if one["within_ms"]]
        title = where_text(each)
        svg = panels.panel(
            title, at, _whole(report, each), events, min(limits, default=None), report["slice_s"]
        )
        states = "; ".join(
            f"{escape(one['name'])}: {state_text(one['state'])} {percent(one['share'])} of"
            f" {percent(one['objective'])}"
            for one in each["promises"]
        )
        yield (
            f'<div id="{_anchor(report, each)}">'
            + figure(title, svg, f"<br>{states}" if states else "")
            + "</div>"
        )
