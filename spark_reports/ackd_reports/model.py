"""The report as plain data: what the JSON holds, and what every other form is drawn from.

The same traces give the same bytes: nothing here asks a clock, and every list has an order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from ackd_reports import measures, words
from ackd_reports.anomalies import incidents
from ackd_reports.breaches import breaches
from ackd_reports.courses import PromiseCourse
from ackd_reports.evidence import Evidence, VerdictBounds, completeness, freshness, silent, verdict
from ackd_reports.histogram import ERROR, merged, percentile_us
from ackd_reports.links import NOTHING_MORE, Presentation
from ackd_reports.plain import CAUSES, GROUP, by, iso, message, names, number
from ackd_reports.promises import always, attended, promise
from ackd_reports.sidecars import batches, commit_lag, sidecars
from ackd_reports.subscriptions import subscriptions
from ackd_reports.targets import Target
from ackd_reports.words import DAY_US, HOUR_US, MICRO

if TYPE_CHECKING:
    from ackd_reports.frames.figures import Figures, Rows

FORMAT: Final = 1
PERCENTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p999": 0.999}
COUNTS: Final = (
    *("messages", "given", "acked", "dead", "unfinished", "redelivered", "retried", "retries"),
    *("releases", "expires", "lates", "losts", "send_backs", "extensions", "acked_twice"),
    *("acked_again", "clock_skew", "redriven", "publish_wrong"),
)
RETRY_ATTEMPTS: Final = 5
PUBLISH_WRONG: Final = "time of publishing that cannot be, left out"

Report = dict[str, Any]


def report(
    now: Figures,
    before: Figures | None,
    targets: Sequence[Target],
    course: PromiseCourse,
    evidence: Evidence,
    bounds: VerdictBounds,
    shown: Presentation = NOTHING_MORE,
) -> Report:
    """Put a report together. `before` = figures of the period before, of the same length."""
    totals = _counts(now.buckets)
    silent_ones = silent(evidence.seen, now.until_us, bounds.silent_us)
    promises = [
        always(totals, now.again),
        *(
            {**found, **attended(found["state"], target, evidence.seen, silent_ones)}
            for found, target in zip(_promises(now, before, targets, course), targets, strict=True)
        ),
    ]
    complete = completeness(evidence, bounds.complete, now.until_us)
    places = range(len(targets))
    causes_of = {place: _causes(now, place, promises[place + 1]) for place in places}
    promises = [promises[0], *({**promises[place + 1], **causes_of[place]} for place in places)]
    return {
        "format": FORMAT,
        "period": {"since": iso(now.since_us), "until": iso(now.until_us)},
        "verdict": verdict([each["state"] for each in promises], silent_ones, complete),
        "freshness": freshness(evidence, now.until_us),
        "completeness": complete,
        "silent": silent_ones,
        "promises": promises,
        "breaches": breaches(promises),
        "subscriptions": subscriptions(now, before, promises[1:], targets, silent_ones),
        "slice_s": now.fine_us // MICRO,
        "links": {"trace": shown.trace_link, "ackd": shown.ackd_link},
        "marks": [
            {"at": iso(at), "text": text}
            for at, text in sorted(shown.marks)
            if now.since_us <= at < now.until_us
        ],
        "totals": totals,
        "durations": _exact(now, "totals", (), _durations(now.totals)),
        "groups": _groups(now),
        "hours": _slices(now, "hour", HOUR_US),
        "days": _slices(now, "day", DAY_US),
        "batches": batches(now.deliveries),
        "previous": _previous(totals, now, before),
        "anomalies": incidents(_hours(now)),
        "acked_again": [message(row) for row in now.again],
        "stuck": [message(row) for row in now.stuck],
        "sidecars": sidecars(now.process, now.runs),
        "commit_lag": commit_lag(now.commits),
        "quarantine": {
            "counts": _left_out(now, totals),
            "examples": now.bad,
            "cut_files": list(evidence.cut_files),
        },
        "percentile_error": round(ERROR, 4) if now.exact is None else 0,
    }


def _left_out(now: Figures, totals: Mapping[str, Any]) -> dict[str, Any]:
    """Reason -> lines or spans; of a time of publishing, messages."""
    counts = {row["why"]: row["n"] for row in now.bad_counts}
    wrong = totals["publish_wrong"]
    return {**counts, PUBLISH_WRONG: wrong} if wrong else counts


def _causes(now: Figures, place: int, promise: Mapping[str, Any]) -> dict[str, Any]:
    """Why a promise was broken in the period, and a message for each outcome."""
    bad = promise["period"]["bad"]
    return {
        "causes": [
            {
                "dimension": row["dimension"],
                "value": row["value"],
                "messages": number(row["n"]),
                "share": number(row["n"]) / bad if bad else None,
            }
            for row in sorted(now.causes, key=lambda each: CAUSES.index(each["dimension"]))
            if row["target"] == place
        ],
        "typical": [
            {**message(row), "outcome": row["outcome"], "took_ms": row["took_us"] / 1000}
            for row in now.typical
            if row["target"] == place
        ],
    }


def _promises(
    now: Figures, before: Figures | None, targets: Sequence[Target], course: PromiseCourse
) -> list[dict[str, Any]]:
    old = None if before is None else before.buckets
    return [
        {
            **promise(place, target, course, now.buckets, old, now.until_us),
            "examples": [
                {**message(row), "took_ms": row["took_us"] / 1000}
                for row in now.examples
                if row["target"] == place
            ],
        }
        for place, target in enumerate(targets)
    ]


def _counts(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    sums = dict.fromkeys((*COUNTS, *(f"retry_{n}" for n in range(1, RETRY_ATTEMPTS + 1))), 0)
    seen = 0
    for row in rows:
        seen += row["rows"]
        for name in sums:
            sums[name] += row[name]
    counts: dict[str, Any] = {name: number(sums[name]) for name in COUNTS}
    counts["rows"] = seen
    counts["retries_by_attempt"] = [
        number(sums[f"retry_{n}"]) for n in range(1, RETRY_ATTEMPTS + 1)
    ]
    counts["redelivery_rate"] = measures.share(sums["redelivered"], sums["messages"])
    return counts


def _cells(row: Mapping[str, Any]) -> list[tuple[int, int]]:
    return [(cell["cell"], cell["n"]) for cell in row["cells"]]


def _durations(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Duration -> {n, p50_ms..}, of the sum of histograms."""
    found: dict[str, list[list[tuple[int, int]]]] = {name: [] for name in words.DURATIONS}
    for row in rows:
        found[row["duration"]].append(_cells(row))
    return {name: _percentiles(merged(*listed)) for name, listed in found.items()}


def _percentiles(cells: list[tuple[int, int]]) -> dict[str, Any]:
    values = {name: percentile_us(cells, share) for name, share in PERCENTILES.items()}
    return {
        "n": number(sum(count for _, count in cells)),
        **{
            f"{name}_ms": None if value is None else round(value / 1000, 3)
            for name, value in values.items()
        },
    }


def _groups(now: Figures) -> list[dict[str, Any]]:
    durations = dict(by(now.totals, words.STREAM))
    return [
        {
            **names(words.STREAM, key),
            **_counts(rows),
            "durations": _exact(now, "groups", key, _durations(durations.get(key, []))),
        }
        for key, rows in by(now.buckets, words.STREAM)
    ]


def _sliced(rows: Rows, column: str, length_us: int) -> Rows:
    """Rows with the start of the hour or day that `column` lies in, as `slice_us`."""
    return [{**row, "slice_us": row[column] // length_us * length_us} for row in rows]


def _hours(now: Figures) -> Rows:
    """The hours of each subscription, with their start as a number."""
    return [
        {**row, "hour_us": round(datetime.fromisoformat(row["hour"]).timestamp()) * MICRO}
        for row in _slices(now, "hour", HOUR_US)
    ]


def _slices(now: Figures, name: str, length_us: int) -> list[dict[str, Any]]:
    """A row a group and hour or day."""
    columns = (*GROUP, "slice_us")
    durations = dict(by(_sliced(now.hours, "hour_us", length_us), columns))
    slices = []
    for key, rows in by(_sliced(now.buckets, "bucket_us", length_us), columns):
        named = names(columns, key)
        named[name] = iso(named.pop("slice_us"))
        found = _exact(now, f"{name}s", key, _durations(durations.get(key, [])))
        shown = {each: found[each] for each in ("wait", "time_to_ack")}
        slices.append({**named, **_counts(rows), "durations": shown})
    return slices


def _exact(
    now: Figures, level: str, key: tuple[Any, ...], durations: dict[str, Any]
) -> dict[str, Any]:
    """Durations with exact percentiles where they were asked for; `n` comes from the histograms."""
    if now.exact is None:
        return durations
    # Keys end in the duration; the rest is in the order of `key`.
    known = {tuple(row.values())[: len(key) + 1]: row for row in now.exact[level]}
    found = {}
    for name, was in durations.items():
        row = known.get((*key, name))
        times_ms = {} if row is None else {f"{p}_ms": row[p] / 1000 for p in PERCENTILES}
        found[name] = {**was, **times_ms}
    return found


def _previous(
    totals: Mapping[str, Any], now: Figures, before: Figures | None
) -> dict[str, Any] | None:
    if before is None:
        return None
    old = _counts(before.buckets)
    if not old["rows"]:
        return None
    was, is_ = _durations(before.totals), _durations(now.totals)
    return {
        "since": iso(before.since_us),
        "until": iso(before.until_us),
        "counts": {name: {"before": old[name], "now": totals[name]} for name in COUNTS},
        "p99_ms": {
            name: {"before": was[name]["p99_ms"], "now": is_[name]["p99_ms"]}
            for name in words.DURATIONS
        },
    }
