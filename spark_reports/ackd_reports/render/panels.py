"""Small multiples: one drawing of three for each subscription, with outages, starts and marks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from ackd_reports.render.plots import (
    BAD,
    INK,
    LINES,
    OUT,
    day_of,
    drawn,
    figure_of,
    with_dates,
)

FINE_S: Final = 300
_SIZE: Final = (5.6, 4.0)
_DAY_S: Final = 86_400
_SEEN: Final = 150
_LOG_FLOOR: Final = 1e-3

Points = Sequence[dict[str, Any] | None]


@dataclass(frozen=True, slots=True)
class PlotEvents:
    """What is drawn across: outages as (name, since, until), starts, and marks as (at, text)."""

    outages: Sequence[tuple[str, str, str]]
    starts: Sequence[str]
    marks: Sequence[tuple[str, str]]


def panel(
    title: str,
    at: Sequence[str],
    points: Points,
    events: PlotEvents,
    limit_ms: float | None,
    slice_s: int,
) -> str:
    """Time to ack, messages, and what went wrong, one above the other. `points` goes with `at`;
    None where there was nothing.
    """
    days = [day_of(each) for each in at]
    # The last step needs its end.
    days.append(days[-1] + slice_s / _DAY_S)
    with figure_of(_SIZE) as figure:
        times, load, bad = figure.subplots(3, sharex=True, height_ratios=(3, 2, 2))
        _times(times, days, points, limit_ms)
        _steps(load, days, points, ("messages", "redelivered"), LINES)
        _steps(bad, days, points, ("bad", "dead"), (BAD, LINES[2]))
        times.set_ylabel("time to ack, s")
        load.set_ylabel("messages")
        bad.set_ylabel("bad, dead")
        for axes in (times, load, bad):
            axes.grid(visible=True, linewidth=0.4)
            for _, since, until in events.outages:
                # A short one in a long period must be seen too.
                ends = day_of(until), day_of(since) + (days[-1] - days[0]) / _SEEN
                axes.axvspan(day_of(since), max(ends), color=OUT, alpha=0.6, linewidth=0)
            for start in events.starts:
                axes.axvline(day_of(start), color=INK, linewidth=0.7, linestyle=(0, (1, 2)))
            for mark, _ in events.marks:
                axes.axvline(day_of(mark), color=LINES[3], linewidth=1.1, linestyle="--")
        for mark, text in events.marks:
            times.annotate(
                text,
                (day_of(mark), 1.0),
                xycoords=("data", "axes fraction"),
                rotation=0,
                fontsize=7,
                va="bottom",
                ha="center",
            )
        bad.set_xlim(days[0], days[-1])
        with_dates(bad)
        return drawn(figure, title, _described(at, points, events))


def _times(axes: Any, days: list[float], points: Points, limit_ms: float | None) -> None:
    """Bands from the middle up, as most messages are below it and nobody waits for those."""
    lines = {name: _seconds(points, name) for name in ("p50", "p95", "p99")}
    for low, high, alpha in (("p50", "p95", 0.45), ("p95", "p99", 0.2)):
        axes.fill_between(
            days, lines[low], lines[high], step="post", color=LINES[0], alpha=alpha, linewidth=0
        )
    axes.step(days, lines["p50"], where="post", color=LINES[0], linewidth=1.2)
    axes.step(days, lines["p99"], where="post", color=LINES[0], linewidth=0.5)
    if limit_ms:
        axes.axhline(limit_ms / 1000, color=BAD, linewidth=1, linestyle=":")
    if any(not math.isnan(value) for value in lines["p99"]):
        axes.set_yscale("log")


def _seconds(points: Points, name: str) -> list[float]:
    values = [None if point is None else point[f"{name}_ms"] for point in points]
    found = [math.nan if value is None else max(_LOG_FLOOR, value / 1000) for value in values]
    return [*found, found[-1]]


def _steps(
    axes: Any, days: list[float], points: Points, names: Sequence[str], colours: Sequence[str]
) -> None:
    for number, (name, colour) in enumerate(zip(names, colours, strict=False)):
        found = [0.0 if point is None else float(point[name]) for point in points]
        values = [*found, found[-1]]
        if number == 0:
            axes.fill_between(days, values, step="post", color=colour, alpha=0.35, linewidth=0)
        axes.step(
            days,
            values,
            where="post",
            color=colour,
            linewidth=1,
            linestyle="-" if number == 0 else "--",
            label=name,
        )
    axes.set_ylim(bottom=0, top=max(1.0, axes.get_ylim()[1]))
    axes.yaxis.get_major_locator().set_params(integer=True, nbins=3)
    axes.legend(loc="upper left", ncols=2, fontsize=7, borderaxespad=0.1)


def _described(at: Sequence[str], points: Points, events: PlotEvents) -> str:
    known = [(time, point) for time, point in zip(at, points, strict=True) if point is not None]
    slow = max((each for each in known if each[1]["p99_ms"]), key=_p99, default=None)
    parts = [f"{name} {sum(point[name] for _, point in known):.6g}" for name in ("messages", "bad")]
    if slow is not None:
        parts.append(f"slowest p99 {slow[1]['p99_ms'] / 1000:.3g} s at {slow[0]}")
    parts += [f"outage of {name} until {until}" for name, _, until in events.outages]
    return "; ".join(parts)


def _p99(each: tuple[str, dict[str, Any]]) -> float:
    return float(each[1]["p99_ms"])
