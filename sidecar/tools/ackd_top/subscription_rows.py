"""PURE: adds up what several sidecars reported, to one row for each subscription."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ackd_top.scrape import SubscriptionFigures

Json = dict[str, Any]


@dataclass(slots=True)
class SubscriptionReport:
    """One subscription as one sidecar reported it in one look.

    `messages`: in flight for longer than asked for, oldest first; None when nobody asked.
    """

    view: Json
    figures: SubscriptionFigures | None = None
    limits: Sequence[str] = ()
    messages: Sequence[Json] | None = None


@dataclass(slots=True)
class SeenBefore:
    """One look at one sidecar; `at_s` is this machine's monotonic time.

    `error`: nobody answered, and the rest is from the last answer. `reasons`: why the sidecar is
    not ready.
    """

    name: str
    at_s: float = 0
    identity: str = ""
    version: str = ""
    error: str = ""
    since_s: float = 0
    reasons: Sequence[str] = ()
    subscriptions: dict[str, SubscriptionReport] = field(default_factory=dict)


@dataclass(slots=True)
class BoardRow:
    """One subscription over all sidecars. None = not known."""

    name: str
    state: str = ""
    gauges: dict[str, float] = field(default_factory=dict)
    oldest_s: float | None = None
    stuck: int | None = None
    dead: float | None = None
    out_s: float | None = None
    acked_s: float | None = None
    failed_s: float | None = None
    limits: list[str] = field(default_factory=list)
    messages: list[Json] = field(default_factory=list)

    def of(self, gauge: str) -> float | None:
        """A gauge's sum; None when no sidecar reports it."""
        return self.gauges.get(gauge)


def rows(before: Mapping[str, SeenBefore], now: Mapping[str, SeenBefore]) -> list[BoardRow]:
    """Sorted by name. `before`: the looks that rates are counted from, by sidecar."""
    found: dict[str, BoardRow] = {}
    states: dict[str, list[str]] = {}
    for where, seen in now.items():
        earlier = before.get(where)
        for name, report in seen.subscriptions.items():
            row = found.setdefault(name, BoardRow(name))
            states.setdefault(name, []).append("lost" if seen.error else _state(report))
            if seen.error:
                continue  # Its last report is no longer current.
            _add(row, report)
            if earlier is not None and not earlier.error:
                _add_rates(row, earlier.subscriptions.get(name), report, seen.at_s - earlier.at_s)
    for name, row in found.items():
        row.state = _worst(states[name])
        row.messages.sort(key=lambda each: (each["since_ms"], each["id"]))
    return [found[name] for name in sorted(found)]


def _state(report: SubscriptionReport) -> str:
    state = str(report.view.get("state", ""))
    return "breaker" if any("circuit-breaker" in each for each in report.limits) else state


_ORDER = ("running", "idle", "paused", "breaker")


def _worst(states: Iterable[str]) -> str:
    """The most notable state. One running sidecar beside idle ones is normal; any other state
    outranks it.
    """
    known = set(states)
    if known <= {"running", "idle"}:
        return "running" if "running" in known else "idle"
    if known == {"lost"}:
        return "lost"
    odd = sorted(known - {"running", "idle", "lost"}, key=_rank)
    return odd[-1] if odd else "part lost"


def _rank(state: str) -> int:
    return _ORDER.index(state) if state in _ORDER else len(_ORDER)


def _add(row: BoardRow, report: SubscriptionReport) -> None:
    figures = report.figures
    if figures is not None:
        for name, value in figures.gauges.items():
            row.gauges[name] = row.gauges.get(name, 0) + value
        row.oldest_s = max(row.oldest_s or 0, figures.oldest_s)
        if figures.counted:
            row.dead = (row.dead or 0) + figures.dead
    row.limits += [each for each in report.limits if each not in row.limits]
    if report.messages is not None:
        row.stuck = (row.stuck or 0) + len(report.messages)
        row.messages += report.messages


def _add_rates(
    row: BoardRow, earlier: SubscriptionReport | None, report: SubscriptionReport, passed_s: float
) -> None:
    """Counters that fell began anew with their process: they give no rate."""
    if earlier is None or earlier.figures is None or report.figures is None or passed_s <= 0:
        return
    old, new = earlier.figures, report.figures
    if not (old.counted and new.counted):
        return
    if new.out < old.out or new.acked < old.acked or new.failed < old.failed:
        return
    row.out_s = (row.out_s or 0) + (new.out - old.out) / passed_s
    row.acked_s = (row.acked_s or 0) + (new.acked - old.acked) / passed_s
    row.failed_s = (row.failed_s or 0) + (new.failed - old.failed) / passed_s
