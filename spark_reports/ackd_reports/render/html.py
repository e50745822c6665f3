"""The page for people: one file, no script, nothing from the network, in light, dark and on paper.

Order of what it says: which subscription breaches which objective, since when, why, and which
messages to look at; then the figures. Everything that comes from traces is escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib import resources
from typing import Any, Final

from ackd_reports import words
from ackd_reports.breaches import gone_since
from ackd_reports.measures import BROKEN, INCOMPLETE, KEPT, NO_DATA
from ackd_reports.model import Report
from ackd_reports.render import overview, plots, why
from ackd_reports.render.parts import (
    Raw,
    count_text,
    figure,
    ms_text,
    percent,
    section,
    state_text,
    table,
    time_text,
    where_text,
)

VERDICTS: Final = {
    KEPT: "Every objective was met.",
    BROKEN: "An objective was breached.",
    NO_DATA: "Nobody knows: something has no data.",
    INCOMPLETE: "Too much is missing to say that objectives were met.",
}


def as_html(report: Report) -> str:
    """Render a report as one HTML page that needs no other file."""
    style = resources.files("ackd_reports.render").joinpath("style.css").read_text("utf-8")
    period = f"{time_text(report['period']['since'])} to {time_text(report['period']['until'])} UTC"
    links = report["links"]
    sections = [
        overview.subscriptions(report),
        overview.objectives(report),
        why.breaches(report),
        why.burns(report),
        overview.courses(report),
        why.listed("Given out again after their ack", "again", report["acked_again"], links),
        why.listed("Not finished at the end, oldest first", "stuck", report["stuck"], links),
        _anomalies(report),
        _course(report),
        _days(report),
        _groups(report),
        _durations(report),
        _previous(report),
        _sidecars(report),
        _quarantine(report),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>Report, {escape(period)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        '<a class="skip" href="#promises">To the objectives</a>\n'
        f"<header><h1>{state_text(report['verdict'])} {VERDICTS[report['verdict']]}</h1>\n"
        f"<p>{escape(period)}: {_totals(report['totals'])}.</p>\n"
        f"{_reasons(report)}{_rests_on(report)}</header>\n<main>\n"
        + "\n".join(each for each in sections if each)
        + "\n</main>\n</body>\n</html>\n"
    )


def _totals(totals: dict[str, Any]) -> str:
    names = {"messages": "messages", "acked": "acked", "dead": "given up"}
    names["unfinished"] = "not finished"
    return ", ".join(f"{count_text(totals[name])} {text}" for name, text in names.items())


def _reasons(report: Report) -> str:
    """What the verdict rests on, each in a line."""
    lines = [
        f"{state_text(each['state'])} {escape(each['name'])}: {_reason(each)}"
        for each in report["promises"]
        if each["state"] != KEPT
    ]
    lines += [
        f"{state_text(NO_DATA)} {escape(where_text(each))}: nothing heard since"
        f" {time_text(each['last'])}, {ms_text(1000 * each['quiet_s'])}"
        for each in report["silent"]
    ]
    return f"<ul>{''.join(f'<li>{line}</li>' for line in lines)}</ul>\n" if lines else ""


def _reason(promise: dict[str, Any]) -> str:
    """HTML."""
    if promise["state"] != BROKEN:
        return escape(promise.get("why") or "no message to judge it by")
    text = f"{percent(promise['share'])} of {percent(promise['objective'])}"
    gone = gone_since(promise)
    if gone is not None:
        text += f", error budget gone since {time_text(gone)}"
    because = why.reason(promise)
    return f"{text}. {because}" if because else text


def _rests_on(report: Report) -> str:
    """How fresh and how complete the traces are."""
    fresh, complete = report["freshness"], report["completeness"]
    if fresh["last_event"] is None:
        return "<p>There is no event in the lake.</p>\n"
    age = ms_text(1000 * fresh["age_s"])
    parts = [
        f"The last event is from {time_text(fresh['last_event'])}, {age} before the end.",
        "How many spans were written is not known."
        if complete["share"] is None
        else f"{percent(complete['share'])} of what sidecars wrote is there"
        f" (bound {percent(complete['bound'])}):",
    ]
    missing = (
        ("spans_missing", "spans missing"),
        ("spans_dropped", "dropped by sidecars"),
        ("spans_bad", "in quarantine"),
        ("files_cut", "files end early"),
    )
    parts.append(", ".join(f"{count_text(complete[name])} {text}" for name, text in missing) + ".")
    silent = complete["sidecars_silent"]
    if silent:
        named = ", ".join(
            f"{escape(each['instance'])} since {time_text(each['since'])}" for each in silent
        )
        parts.append(f"Sidecars that fell silent without a stop: {named}.")
    return f"<p>{' '.join(parts)}</p>\n"


def _anomalies(report: Report) -> str:
    if not report["anomalies"]:
        return ""
    items = "".join(
        f"<li><time>{time_text(each['since'])}</time> to <time>{time_text(each['until'])}</time>,"
        f" {escape(each['where'])}: {escape(each['sentence'])}.</li>"
        for each in report["anomalies"]
    )
    return section("Incidents: hours unlike the others", "anomalies", f"<ul>{items}</ul>")


def _course(report: Report) -> str:
    """Load and time to ack by hour; the slowest group stands for all."""
    hours: dict[str, list[dict[str, Any]]] = {}
    for row in report["hours"]:
        hours.setdefault(row["hour"], []).append(row)
    if len(hours) < 2:  # noqa: PLR2004 -- one point is no course
        return ""
    load = {
        name: [(at, float(sum(row[name] for row in rows))) for at, rows in hours.items()]
        for name in ("messages", "redelivered", "dead")
    }
    worst: dict[str, list[tuple[str, float]]] = {}
    for share in ("p50", "p99"):
        worst[share] = []
        for at, rows in hours.items():
            values = [row["durations"]["time_to_ack"][f"{share}_ms"] for row in rows]
            known = [value for value in values if value]
            if known:
                worst[share].append((at, max(known) / 1000))
    first, second = "Messages by hour", "Published to ack, the slowest group of each hour"
    body = figure(first, plots.lines(load, title=first, unit="messages"))
    if any(worst.values()):
        body += figure(second, plots.lines(worst, title=second, unit="seconds", log=True))
    return section("Course", "course", body)


def _days(report: Report) -> str:
    rows = [
        (
            each["day"][:10],
            f"{each['topic']} / {each['group']}",
            *(each[name] for name in ("messages", "acked", "dead", "unfinished")),
            percent(each["redelivery_rate"]),
            ms_text(each["durations"]["time_to_ack"]["p99_ms"]),
        )
        for each in sorted(report["days"], key=lambda each: (each["day"], each["topic"]))
    ]
    counts = ("messages", "acked", "dead", "unfinished", "redelivered")
    heads = ("day", "topic / group", *counts, "time to ack p99")
    return section("Days", "days", table("Each group by day", heads, rows))


def _groups(report: Report) -> str:
    names = (
        "messages",
        "acked",
        "dead",
        "unfinished",
        "retries",
        "expires",
        "extensions",
        "lates",
        "send_backs",
        "redriven",
    )
    rows = [
        (
            f"{each['topic']} / {each['group']}",
            each["application"],
            each["system"],
            *(each[name] for name in names),
            percent(each["redelivery_rate"]),
        )
        for each in report["groups"]
    ]
    heads = (
        "topic / group",
        "application",
        "system",
        *(name.replace("_", " ") for name in names),
        "redelivered",
    )
    return section("Groups", "groups", table("Counts by group", heads, rows))


def _durations(report: Report) -> str:
    rows = [
        (
            f"{each['topic']} / {each['group']}",
            words.DURATION_TEXT[name],
            found["n"],
            *(ms_text(found[f"{share}_ms"]) for share in ("p50", "p95", "p99", "p999")),
        )
        for each in report["groups"]
        for name, found in each["durations"].items()
    ]
    most = report["percentile_error"]
    error = f"Percentiles are off by at most {100 * most:.2g} %." if most else "They are exact."
    heads = ("topic / group", "duration", "measured", "p50", "p95", "p99", "p99.9")
    return section(
        "Durations",
        "durations",
        f"<p>{error}</p>" + table("Percentiles of durations", heads, rows),
    )


def _previous(report: Report) -> str:
    previous = report["previous"]
    if previous is None:
        return ""
    rows: list[Sequence[object]] = [
        (name.replace("_", " "), pair["before"], pair["now"], _change(pair))
        for name, pair in previous["counts"].items()
    ]
    rows += [
        (
            f"p99, {words.DURATION_TEXT[name]}",
            ms_text(pair["before"]),
            ms_text(pair["now"]),
            _change(pair),
        )
        for name, pair in previous["p99_ms"].items()
    ]
    caption = f"Compared with {time_text(previous['since'])} to {time_text(previous['until'])}"
    return section(
        "Before and now", "previous", table(caption, ("what", "before", "now", "change"), rows)
    )


def _change(pair: dict[str, float | None]) -> str:
    before, now = pair["before"], pair["now"]
    if before is None or now is None or before == 0:
        return "–"
    return f"{100 * (now - before) / before:+.1f} %"


def _sidecars(report: Report) -> str:
    sidecars = report["sidecars"]
    text = f"<p>{sidecars['instances']} sidecars, {sidecars['restarts']} restarts.</p>"
    if sidecars["outages"]:
        rows = [
            (each["of"], each["sidecars"], time_text(each["since"]), time_text(each["until"]))
            for each in sidecars["outages"]
        ]
        text += table("Outages as sidecars saw them", ("of", "sidecars", "from", "to"), rows)
    if report["batches"]:
        given = [
            (f"{each['topic']} / {each['group']}", each["deliveries"], each["redeliveries"])
            for each in report["batches"]
        ]
        heads = ("topic / group", "deliveries", "not the first")
        text += table("Delivered, whatever was sampled", heads, given)
    if report["commit_lag"]:
        lags = [
            (f"{each['topic']} / {each['group']}", each["lag_max"]) for each in report["commit_lag"]
        ]
        text += table("Largest commit lag of a partition", ("topic / group", "messages"), lags)
    return section("Sidecars", "sidecars", text)


def _quarantine(report: Report) -> str:
    found = report["quarantine"]
    if not found["counts"] and not found["cut_files"]:
        return ""
    text = table(
        "Left out of every figure", ("reason", "lines or spans"), list(found["counts"].items())
    )
    if found["cut_files"]:
        names = ", ".join(escape(name) for name in found["cut_files"])
        text += f"<p>Files that end in the middle; what is whole in them was used: {names}.</p>"
    rows = [
        (each["why"], each["file"], Raw(f"<code>{escape(each['text'][:200])}</code>"))
        for each in found["examples"]
    ]
    text += table("Some of them", ("reason", "file", "text"), rows) if rows else ""
    return section("Quarantine", "quarantine", text)
