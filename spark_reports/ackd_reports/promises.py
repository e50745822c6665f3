"""What became of each promise: over its window, in the report's period, and how fast it burns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

from ackd_reports import measures
from ackd_reports.courses import PromiseCourse
from ackd_reports.durations import duration_text
from ackd_reports.measures import Series
from ackd_reports.plain import GROUP, Rows, iso, message, names, number
from ackd_reports.targets import Target
from ackd_reports.words import BUCKET_US, HOUR_US, MICRO

ALWAYS: Final = "no message again after its ack"
EXAMPLES_MAX: Final = 10


def always(totals: Mapping[str, Any], again: Rows) -> dict[str, Any]:
    """What is promised without being asked: never a lease after an ack."""
    bad = totals["acked_again"]
    state = measures.NO_DATA if not totals["rows"] else measures.BROKEN if bad else measures.KEPT
    return {
        "name": ALWAYS,
        "sentence": "A message that was acked is never handed to the group again",
        "objective": 1.0,
        "good": totals["acked"] - bad,
        "bad": bad,
        "share": measures.share(totals["acked"] - bad, totals["acked"]),
        "state": state,
        "examples": [message(row) for row in again[:EXAMPLES_MAX]],
    }


def promise(
    place: int, target: Target, course: PromiseCourse, now: Rows, before: Rows | None, until_us: int
) -> dict[str, Any]:
    """One target. `course` decides; `now` and `before` are the 5-minute rows of the period and of
    the one before, which only say how it went there.
    """
    since, end = target.window.around(until_us)
    whole = series_of(course.buckets, place)
    within = [each for each in whole if since <= each[0] < until_us]
    good, bad = _sums(within)
    found = measures.compliance(good, bad, target.objective)
    old = None if before is None else _sums(series_of(before, place))
    period = _sums(series_of(now, place))
    length = end - since
    return {
        "name": target.name,
        "sentence": target.sentence(),
        "objective": target.objective,
        "window": {
            "text": target.window.text(),
            "since": iso(since),
            "until": iso(min(end, until_us)),
            "ends": iso(end),
            "data_since": iso(within[0][0]) if within else None,
        },
        "good": number(good),
        "bad": number(bad),
        "share": found.share,
        "state": found.state,
        "budget": round(found.budget / MICRO, 3),
        "spent": found.spent,
        "period": {
            "good": number(period[0]),
            "bad": number(period[1]),
            "share": measures.share(period[0], sum(period)),
            "share_before": None if old is None else measures.share(old[0], sum(old)),
        },
        "burning": _burning(whole, target, length, until_us),
        "alerts": _alerts(whole, target, length, since),
        "remaining": [
            [iso(at), round(left, 6)]
            for at, left in _thinned(measures.remaining(within, target.objective))
        ],
        "subscriptions": [_subscription(row, place, target) for row in _judged_ones(course, place)],
    }


def series_of(rows: Sequence[Mapping[str, Any]], place: int) -> list[tuple[int, int, int]]:
    """(5-minute bucket, good, bad) of a target, all streams together, without empty ones."""
    sums: dict[int, list[int]] = {}
    for row in rows:
        pair = sums.setdefault(row["bucket_us"], [0, 0])
        pair[0] += row[f"good_{place}"]
        pair[1] += row[f"bad_{place}"]
    return [(at, good, bad) for at, (good, bad) in sorted(sums.items()) if good or bad]


def _sums(series: Series) -> tuple[int, int]:
    return sum(each[1] for each in series), sum(each[2] for each in series)


def _judged_ones(course: PromiseCourse, place: int) -> Rows:
    return [row for row in course.subscriptions if row[f"good_{place}"] or row[f"bad_{place}"]]


def _subscription(row: Mapping[str, Any], place: int, target: Target) -> dict[str, Any]:
    """The same promise for one subscription."""
    good, bad = row[f"good_{place}"], row[f"bad_{place}"]
    found = measures.compliance(good, bad, target.objective)
    return {
        **names(GROUP, [row[name] for name in GROUP]),
        "good": number(good),
        "bad": number(bad),
        "share": found.share,
        "state": found.state,
        "spent": found.spent,
    }


def _alerts(whole: Series, target: Target, length_us: int, since_us: int) -> list[dict[str, Any]]:
    return [
        {
            "severity": alert.severity,
            "window": duration_text(alert.long_us),
            "since": iso(alert.since_us),
            "until": iso(alert.until_us),
            "peak": round(alert.peak, 3),
            "bound": round(alert.bound, 3),
        }
        for alert in measures.alerts(
            whole, target.objective, length_us, target.least_messages, since_us
        )
    ]


def _thinned(series: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """The last point of each hour."""
    return list({at // HOUR_US: (at, value) for at, value in series}.values())


def _burning(whole: Series, target: Target, length_us: int, until_us: int) -> list[dict[str, Any]]:
    """Burn rates over the windows that end now."""
    sums = measures.Sums(whole)
    end = (until_us - 1) // BUCKET_US * BUCKET_US
    rows = []
    for window in measures.BURN_WINDOWS:
        long = sums.burn(end, window.long_us, target.objective)
        short = sums.burn(end, window.short_us, target.objective)
        limit = measures.bound(window, length_us)
        sure = long.is_sure(target.least_messages)
        rows.append(
            {
                "severity": window.severity,
                "long": duration_text(window.long_us),
                "short": duration_text(window.short_us),
                "burn_long": round(long.rate, 3),
                "burn_short": round(short.rate, 3),
                "bound": round(limit, 3),
                "messages": number(long.total),
                "burns": sure and min(long.rate, short.rate) >= limit,
            }
        )
    return rows


def attended(
    state: str, target: Target, seen: Rows, silent_ones: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """`state` and `why` of a promise once it is known of whom something was heard.

    Of a subscription that fell silent nobody knows whether its promise is kept, whatever its window
    still holds.
    """
    wanted = [names(GROUP, [row[name] for name in GROUP]) for row in seen if target.wants(row)]
    quiet = [each for each in silent_ones if target.wants(each)]
    if not wanted:
        why = _nothing_matches(target, seen)
    elif len(quiet) == len(wanted):
        why = "silent since " + min(each["last"] for each in quiet)
    elif state == measures.NO_DATA:
        why = "no message in its window"
    else:
        why = None
    return {"state": measures.NO_DATA if why and state != measures.BROKEN else state, "why": why}


def _nothing_matches(target: Target, seen: Rows) -> str:
    """What does not match, and what it may have been meant to say."""
    hints = []
    for name, value in target.only:
        column = "grp" if name == "group" else name
        known = sorted({row[column] for row in seen if column in row})
        close = get_close_matches(value, [each for each in known if each != value], n=1)
        if column in GROUP and value not in known:
            hints.append(f"{name} {value}" + (f" (is it {close[0]}?)" if close else ""))
    return "nothing was heard of " + (", ".join(hints) or "any subscription that it is for")
