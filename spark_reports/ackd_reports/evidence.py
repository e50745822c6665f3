"""What a report rests on: how much of what happened is there, how fresh it is, who fell silent.

A figure made of traces is only as good as they are. So each report says what is missing, and a
verdict of "kept" wants enough of it (`verdict`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ackd_reports.measures import BROKEN, INCOMPLETE, KEPT, NO_DATA
from ackd_reports.plain import GROUP, Rows, iso, names
from ackd_reports.words import BUCKET_US, DAY_US, HOUR_US

COMPLETE: Final = 0.99
"""Share of spans below which nothing is said to be kept."""
SILENT_LEAST_US: Final = HOUR_US
SILENT_TIMES: Final = 3
"""Silent is a subscription of which nothing was heard for so many times its longest pause."""
REGULAR_BUCKETS: Final = 12
"""With signs in fewer 5 minutes than this, nobody knows what pauses are usual."""
IRREGULAR_US: Final = DAY_US
LOOK_BACK_US: Final = 30 * DAY_US
"""A subscription of which nothing was heard for longer is forgotten."""
SIDECAR_SILENT_US: Final = 3 * BUCKET_US
"""A sidecar tells its counts every minute, in a file that is closed after five."""
LISTED_MAX: Final = 50


@dataclass(frozen=True, slots=True)
class Evidence:
    """As it comes from traces; see `frames.signs`."""

    seen: Rows
    runs: Rows
    files: int
    cut_files: Sequence[str]
    last_event_us: int | None


@dataclass(frozen=True, slots=True)
class VerdictBounds:
    """What a verdict of "kept" wants. `silent_us`: see `silent`."""

    complete: float = COMPLETE
    silent_us: int | None = None


def freshness(evidence: Evidence, until_us: int) -> dict[str, Any]:
    """When the last event before the end of the period was."""
    last = evidence.last_event_us
    age_us = None if last is None else max(0, until_us - last)
    return {
        "last_event": None if last is None else iso(min(last, until_us)),
        "age_s": None if age_us is None else round(age_us / 1_000_000, 3),
    }


def completeness(evidence: Evidence, bound: float, until_us: int) -> dict[str, Any]:
    """How much of what sidecars say they wrote is there and can be used.

    Without such a count, of an older sidecar say, each file that ends in the middle counts as lost.
    `share` is None where nothing at all is known.
    """
    total = dropped = missing = bad = 0
    for run in evidence.runs:
        written, lost = _written(run), _dropped(run)
        # Of a run that told its counts once, and not its start, what is there was written.
        total += max(written, min(run["spans"], run["written_last"] or run["spans"])) + lost
        dropped += lost
        missing += max(0, written - run["spans"])
        bad += run["bad"]
    cut = len(evidence.cut_files)
    share: float | None = None
    if any(run["written_last"] is not None for run in evidence.runs) or (total and not cut):
        share = max(0.0, 1 - (dropped + missing + bad) / max(1, total))
    elif cut:
        share = 1 - cut / max(cut, evidence.files)
    return {
        "share": share,
        "bound": bound,
        "spans_dropped": dropped,
        "spans_missing": missing,
        "spans_bad": bad,
        "files_cut": cut,
        "sidecars_silent": _silent_sidecars(evidence.runs, until_us),
    }


def _written(run: Mapping[str, Any]) -> int:
    """How many spans a run wrote in the period, as far as it says so: from nothing on if its start
    is known, else from its first count on.
    """
    last: int | None = run["written_last"]
    if last is None:
        return 0
    begun = run["started"] and run["dropped_before"] is None
    return last - (0 if begun else int(run["written_first"]))


def _dropped(run: Mapping[str, Any]) -> int:
    """How many it dropped, or lost when it was killed, which the next run tells."""
    return int(run["dropped_last"] or 0) - int(run["dropped_before"] or 0)


def _silent_sidecars(runs: Rows, until_us: int) -> list[dict[str, Any]]:
    """Sidecars that neither stopped nor began anew, and of which nothing was heard at the end."""
    latest: dict[str, Mapping[str, Any]] = {}
    for run in runs:
        known = latest.get(run["instance"])
        if run["last_us"] is not None and (known is None or _begun(run) > _begun(known)):
            latest[run["instance"]] = run
    return [
        {"instance": run["instance"], "since": iso(run["last_us"])}
        for _, run in sorted(latest.items())
        if not run["stopped"] and until_us - run["last_us"] > SIDECAR_SILENT_US
    ][:LISTED_MAX]


def _begun(run: Mapping[str, Any]) -> tuple[int, int]:
    return run["first_us"], run["last_us"]


def silent(seen: Rows, until_us: int, after_us: int | None = None) -> list[dict[str, Any]]:
    """Subscriptions that fell silent. `after_us`: a bound for all of them, 0 = none is silent;
    without it each has its own, from the pauses that it usually makes.
    """
    found = []
    for row in seen:
        quiet_us, allowed_us = until_us - row["last_us"], _allowed_us(row, after_us)
        if allowed_us and quiet_us > allowed_us:
            found.append(
                {
                    **names(GROUP, [row[name] for name in GROUP]),
                    "last": iso(row["last_us"]),
                    "quiet_s": quiet_us // 1_000_000,
                    "allowed_s": allowed_us // 1_000_000,
                }
            )
    return found


def _allowed_us(row: Mapping[str, Any], after_us: int | None) -> int:
    if after_us is not None:
        return after_us
    usual: int = SILENT_TIMES * row["gap_us"]
    if row["buckets"] < REGULAR_BUCKETS:
        return max(IRREGULAR_US, usual)
    return max(SILENT_LEAST_US, usual)


def verdict(
    states: Sequence[str], silent_ones: Sequence[object], complete: Mapping[str, Any]
) -> str:
    """One word for a report. What is broken is broken, however much is missing; nothing is kept
    of which too little is known.
    """
    if BROKEN in states:
        return BROKEN
    if NO_DATA in states or silent_ones:
        return NO_DATA
    share = complete["share"]
    return INCOMPLETE if share is not None and share < complete["bound"] else KEPT
