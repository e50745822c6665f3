"""The page for people: one file, no script, nothing from the network, in light, dark and on paper.

Order of what it says: what was promised and kept, what broke it, which messages to look at, then
the figures. Everything that comes from traces is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources
from typing import Any, Final

from ackd_reports import words
from ackd_reports.durations import duration_text
from ackd_reports.measures import BROKEN, INCOMPLETE, KEPT, NO_DATA
from ackd_reports.model import Report
from ackd_reports.render import plots

SIGNS: Final = {KEPT: "✓", BROKEN: "✗", NO_DATA: "–", INCOMPLETE: "?"}
"""A state is told by a word and a sign, never by colour alone."""
VERDICTS: Final = {
    KEPT: "Every promise was kept.",
    BROKEN: "A promise was broken.",
    NO_DATA: "Nobody knows: something has no data.",
    INCOMPLETE: "Too much is missing to say that promises were kept.",
}


def as_html(report: Report) -> str:
    """Render a report as one HTML page that needs no other file."""
    style = resources.files("ackd_reports.render").joinpath("style.css").read_text("utf-8")
    period = f"{_time(report['period']['since'])} to {_time(report['period']['until'])} UTC"
    sections = [
        _promises(report),
        _broken(report),
        _alerts(report),
        _messages("Given out again after their ack", "again", report["acked_again"]),
        _messages("Not finished at the end, oldest first", "stuck", report["stuck"]),
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
        '<a class="skip" href="#promises">To the promises</a>\n'
        f"<header><h1>{_state(report['verdict'])} {VERDICTS[report['verdict']]}</h1>\n"
        f"<p>{escape(period)}: {_n(report['totals']['messages'])} messages,"
        f" {_n(report['totals']['acked'])} acked, {_n(report['totals']['dead'])} given up,"
        f" {_n(report['totals']['unfinished'])} not finished.</p>\n"
        f"{_reasons(report)}{_rests_on(report)}</header>\n<main>\n"
        + "\n".join(each for each in sections if each)
        + "\n</main>\n</body>\n</html>\n"
    )


def _reasons(report: Report) -> str:
    """What the verdict rests on, each in a line."""
    lines = [
        f"{_state(each['state'])} {escape(each['name'])}: {escape(_reason(each))}"
        for each in report["promises"]
        if each["state"] != KEPT
    ]
    lines += [
        f"{_state(NO_DATA)} {escape(each['topic'])} / {escape(each['group'])}: nothing heard since"
        f" {_time(each['last'])}, {_ms(1000 * each['quiet_s'])}"
        for each in report["silent"]
    ]
    return f"<ul>{''.join(f'<li>{line}</li>' for line in lines)}</ul>\n" if lines else ""


def _reason(promise: dict[str, Any]) -> str:
    if promise["state"] == BROKEN:
        return f"{_percent(promise['share'])} of {_percent(promise['objective'])}"
    return promise.get("why") or "no message to judge it by"


def _rests_on(report: Report) -> str:
    """How fresh and how complete the traces are."""
    fresh, complete = report["freshness"], report["completeness"]
    if fresh["last_event"] is None:
        return "<p>There is no event in the lake.</p>\n"
    age = _ms(1000 * fresh["age_s"])
    parts = [
        f"The last event is from {_time(fresh['last_event'])}, {age} before the end.",
        "How many spans were written is not known."
        if complete["share"] is None
        else f"{_percent(complete['share'])} of what sidecars wrote is there"
        f" (bound {_percent(complete['bound'])}):",
    ]
    missing = (
        ("spans_missing", "spans missing"),
        ("spans_dropped", "dropped by sidecars"),
        ("spans_bad", "in quarantine"),
        ("files_cut", "files end early"),
    )
    parts.append(", ".join(f"{_n(complete[name])} {text}" for name, text in missing) + ".")
    silent = complete["sidecars_silent"]
    if silent:
        named = ", ".join(
            f"{escape(each['instance'])} since {_time(each['since'])}" for each in silent
        )
        parts.append(f"Sidecars that fell silent without a stop: {named}.")
    return f"<p>{' '.join(parts)}</p>\n"


def _section(title: str, name: str, body: str) -> str:
    return f'<section id="{name}"><h2>{escape(title)}</h2>\n{body}</section>'


def _table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; texts are escaped here, numbers are set right. `_Raw` cells stay as they are."""
    head = "".join(f'<th scope="col">{escape(each)}</th>' for each in heads)
    body = []
    for row in rows:
        cells = "".join(
            f'<th scope="row">{_cell(cell)}</th>'
            if place == 0
            else f'<td class="n">{_cell(cell)}</td>'
            if isinstance(cell, int | float) or cell is None
            else f"<td>{_cell(cell)}</td>"
            for place, cell in enumerate(row)
        )
        body.append(f"<tr>{cells}</tr>")
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape(caption)}"><table>'
        f"<caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(body)}</tbody></table></div>\n"
    )


class _Raw(str):
    """Text that is HTML already: it is not escaped again."""

    __slots__ = ()


def _cell(value: object) -> str:
    if isinstance(value, _Raw):
        return value
    if value is None:
        return "–"
    return _n(value) if isinstance(value, int | float) else escape(str(value))


def _n(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}".rstrip("0").rstrip(".")


def _time(text: str | None) -> str:
    return "–" if text is None else text[:19].replace("T", " ")


def _state(state: str) -> _Raw:
    name = state.replace(" ", "-")
    return _Raw(f'<span class="state {name}"><b>{SIGNS[state]}</b> {escape(state)}</span>')


def _percent(share: float | None) -> str:
    """Enough digits that 99.99 % does not look like all."""
    if share is None:
        return "–"
    text = f"{min(100 * share, 99.9999):.4f}" if share != 1 else "100.0"
    return f"{text.rstrip('0').rstrip('.')}\N{NO-BREAK SPACE}%"


def _ms(value: float | None) -> str:
    return "–" if value is None else duration_text(value * 1000)


def _promises(report: Report) -> str:
    rows = [
        (
            each["name"],
            _state(each["state"]),
            each["sentence"],
            _percent(each["share"]),
            _percent(each["objective"]),
            each["window"]["text"] if "window" in each else "this period",
            each["bad"],
            _spent(each.get("spent")),
            _percent(each.get("period", each)["share"]),
            _percent(each.get("period", {}).get("share_before")),
        )
        for each in report["promises"]
    ]
    heads = (
        "promise",
        "state",
        "what",
        "kept for",
        "promised",
        "over",
        "broken for",
        "budget spent",
        "in this period",
        "before",
    )
    return _section(
        "What was promised", "promises", _table("Promises and how they were kept", heads, rows)
    )


def _spent(spent: float | None) -> str:
    return _percent(spent) if spent is None or spent <= 1 else f"{spent:.1f} times"


_HEADS: Final = ("message", "group", "trace", "published", "first lease", "ended", "deliveries")


def _row(message: dict[str, Any]) -> list[object]:
    place = f"{message['topic']}/{message['partition']}/{message['message']}"
    ended = message["ack_end"] or message["dead"]
    return [
        place,
        message["group"],
        _Raw(f"<code>{escape(message['trace_id'] or '')}</code>"),
        _time(message["born"]),
        _time(message["first"]),
        _time(ended),
        message["attempts"],
    ]


def _broken(report: Report) -> str:
    parts = []
    for each in report["promises"]:
        if each["state"] == BROKEN and each["name"] and "remaining" in each:
            rows = [[*_row(found), _ms(found["took_ms"])] for found in each["examples"]]
            parts.append(_table(f"Worst cases: {each['sentence']}", (*_HEADS, "took"), rows))
            if len(each["remaining"]) > 1:
                left = {"left": [(at, 100 * share) for at, share in each["remaining"]]}
                title = f"Error budget left: {each['name']}"
                parts.append(_plot(title, plots.lines(left, title=title, unit="%", bound=0.0)))
    return _section("What broke them", "broken", "".join(parts)) if parts else ""


def _plot(title: str, svg: str) -> str:
    return f"<figure>{svg}<figcaption>{escape(title)}</figcaption></figure>\n"


def _alerts(report: Report) -> str:
    rows = [
        (
            each["name"],
            alert["severity"],
            alert["window"],
            _time(alert["since"]),
            _time(alert["until"]),
            alert["peak"],
            alert["bound"],
        )
        for each in report["promises"]
        for alert in each.get("alerts", ())
    ]
    if not rows:
        return ""
    heads = ("promise", "severity", "window", "from", "to", "highest burn rate", "bound")
    return _section(
        "When the budget burned", "burn", _table("Burn rate above its bound", heads, rows)
    )


def _messages(title: str, name: str, messages: Sequence[dict[str, Any]]) -> str:
    if not messages:
        return ""
    with_age = "age_ms" in messages[0]
    rows = [
        [*_row(each), *([_ms(each["age_ms"])] if with_age else [_time(each["last_lease"])])]
        for each in messages
    ]
    heads = (*_HEADS, "age" if with_age else "leased again")
    return _section(title, name, _table(title, heads, rows))


def _anomalies(report: Report) -> str:
    if not report["anomalies"]:
        return ""
    items = "".join(
        f"<li><time>{_time(each['since'])}</time> to <time>{_time(each['until'])}</time>,"
        f" {escape(each['where'])}: {escape(each['sentence'])}.</li>"
        for each in report["anomalies"]
    )
    return _section("Incidents: hours unlike the others", "anomalies", f"<ul>{items}</ul>")


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
    body = _plot(first, plots.lines(load, title=first, unit="messages"))
    if any(worst.values()):
        body += _plot(second, plots.lines(worst, title=second, unit="seconds", log=True))
    return _section("Course", "course", body)


def _days(report: Report) -> str:
    rows = [
        (
            each["day"][:10],
            f"{each['topic']} / {each['group']}",
            *(each[name] for name in ("messages", "acked", "dead", "unfinished")),
            _percent(each["redelivery_rate"]),
            _ms(each["durations"]["time_to_ack"]["p99_ms"]),
        )
        for each in sorted(report["days"], key=lambda each: (each["day"], each["topic"]))
    ]
    counts = ("messages", "acked", "dead", "unfinished", "redelivered")
    heads = ("day", "topic / group", *counts, "time to ack p99")
    return _section("Days", "days", _table("Each group by day", heads, rows))


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
            _percent(each["redelivery_rate"]),
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
    return _section("Groups", "groups", _table("Counts by group", heads, rows))


def _durations(report: Report) -> str:
    rows = [
        (
            f"{each['topic']} / {each['group']}",
            words.DURATION_TEXT[name],
            found["n"],
            *(_ms(found[f"{share}_ms"]) for share in ("p50", "p95", "p99", "p999")),
        )
        for each in report["groups"]
        for name, found in each["durations"].items()
    ]
    most = report["percentile_error"]
    error = f"Percentiles are off by at most {100 * most:.2g} %." if most else "They are exact."
    heads = ("topic / group", "duration", "measured", "p50", "p95", "p99", "p99.9")
    return _section(
        "Durations",
        "durations",
        f"<p>{error}</p>" + _table("Percentiles of durations", heads, rows),
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
        (f"p99, {words.DURATION_TEXT[name]}", _ms(pair["before"]), _ms(pair["now"]), _change(pair))
        for name, pair in previous["p99_ms"].items()
    ]
    caption = f"Compared with {_time(previous['since'])} to {_time(previous['until'])}"
    return _section(
        "Before and now", "previous", _table(caption, ("what", "before", "now", "change"), rows)
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
            (each["of"], each["instance"], _time(each["since"]), _time(each["until"]))
            for each in sidecars["outages"]
        ]
        text += _table("Outages as sidecars saw them", ("of", "sidecar", "from", "to"), rows)
    if report["batches"]:
        given = [
            (f"{each['topic']} / {each['group']}", each["deliveries"], each["redeliveries"])
            for each in report["batches"]
        ]
        heads = ("topic / group", "deliveries", "not the first")
        text += _table("Delivered, whatever was sampled", heads, given)
    if report["commit_lag"]:
        lags = [
            (f"{each['topic']} / {each['group']}", each["lag_max"]) for each in report["commit_lag"]
        ]
        text += _table("Largest commit lag of a partition", ("topic / group", "messages"), lags)
    return _section("Sidecars", "sidecars", text)


def _quarantine(report: Report) -> str:
    found = report["quarantine"]
    if not found["counts"] and not found["cut_files"]:
        return ""
    text = _table(
        "Left out of every figure", ("reason", "lines or spans"), list(found["counts"].items())
    )
    if found["cut_files"]:
        names = ", ".join(escape(name) for name in found["cut_files"])
        text += f"<p>Files that end in the middle; what is whole in them was used: {names}.</p>"
    rows = [
        (each["why"], each["file"], _Raw(f"<code>{escape(each['text'][:200])}</code>"))
        for each in found["examples"]
    ]
    text += _table("Some of them", ("reason", "file", "text"), rows) if rows else ""
    return _section("Quarantine", "quarantine", text)
