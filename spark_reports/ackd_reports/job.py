"""A whole run: take up files, count, judge, write every form of the report."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from ackd_reports import measures, model, plain
from ackd_reports.courses import PromiseCourse, course_of, reaches_back_to
from ackd_reports.effort import is_little
from ackd_reports.evidence import LOOK_BACK_US, Evidence, VerdictBounds
from ackd_reports.flat import TABLES
from ackd_reports.frames import signs
from ackd_reports.frames.course import course
from ackd_reports.frames.failures import explained
from ackd_reports.frames.figures import Figures, LakeSpan, figures, span_of
from ackd_reports.frames.lake import Lake, kept_from_us
from ackd_reports.frames.plain_rows import frame_of
from ackd_reports.frames.session import session
from ackd_reports.links import Presentation
from ackd_reports.model import Report
from ackd_reports.render import tables
from ackd_reports.render.html import as_html
from ackd_reports.render.prometheus import as_prometheus
from ackd_reports.targets import Target
from ackd_reports.targets_file import load
from ackd_reports.words import DAY_US

CODES: Final = {
    measures.KEPT: 0,
    measures.BROKEN: 3,
    measures.NO_DATA: 4,
    measures.INCOMPLETE: 5,
}


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """What to make. Times in microseconds since 1970; None for `until_us` = the last event, for
    `since_us` = the first message.
    """

    sources: tuple[str, ...]
    out: Path
    lake: str | None = None
    targets: Path | None = None
    since_us: int | None = None
    until_us: int | None = None
    last_us: int | None = None
    bounds: VerdictBounds = field(default_factory=VerdictBounds)
    keep_us: int | None = None
    shown: Presentation = field(default_factory=Presentation)
    compact: bool = False
    exact: bool = False
    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)


def make(order: ReportRequest, say: Callable[[str], None]) -> int:
    """Make a report; the exit code. Raises `TargetsError` and `OSError`."""
    wanted = load(order.targets) if order.targets else ()
    brief = is_little((*order.sources, _lake(order)))
    spark = session(order.master, order.conf, brief=brief)
    order.out.mkdir(parents=True, exist_ok=True)
    with explained(*order.sources, order.lake or ""):
        report = _report(spark, order, wanted, say)
    write(report, order.out)
    code = CODES[report["verdict"]]
    say(f"{report['verdict']}: {order.out / 'report.html'}")
    return code


def _lake(order: ReportRequest) -> str:
    return order.lake or str((order.out / "lake").absolute())


def _report(
    spark: SparkSession,
    order: ReportRequest,
    wanted: tuple[Target, ...],
    say: Callable[[str], None],
) -> Report:
    lake = Lake(spark, _lake(order), kept_from_us(order.keep_us))
    if order.sources:
        say("reading trace files")
        taken = lake.ingest(order.sources)
        say(f"{taken.files} files taken up, {taken.known} were known, {len(taken.cut)} end early")
    if order.keep_us is not None:
        say(f"{lake.forget()} dates removed")
    if order.compact:
        say(f"{lake.compact()} folders merged")
    say("counting")
    return build(lake, order, wanted)


def build(lake: Lake, order: ReportRequest, wanted: tuple[Target, ...]) -> Report:
    """The report as plain data; the 5-minute figures go to `out/gold` as Parquet, or where
    executors are on other hosts and the lake is no local folder, to `gold` in the lake.
    """
    known = span_of(lake.rows())
    found = known or LakeSpan(order.until_us or 0, order.until_us or 0, 0)
    until = order.until_us if order.until_us is not None else found.last_us + 1
    since = order.since_us
    if order.last_us is not None:
        since = until - order.last_us
    start = found.first_us if since is None else since
    before: Figures | None = None
    if found.first_us < start:
        earlier = 2 * start - until
        before = figures(lake.rows(_date(earlier)), earlier, start, wanted, detailed=False)
    # Executors on other hosts cannot write to this disk.
    own = lake.executors_here or not lake.elsewhere
    gold = str((order.out / "gold").absolute()) if own else lake.gold
    # What happened after the last event is not known; who fell silent is told apart.
    as_of = until if known is None else min(until, found.event_us + 1)
    rows = lake.rows(_date(start))
    now = figures(rows, start, until, wanted, gold, as_of_us=as_of, exactly=order.exact)
    evidence = _evidence(lake, now, found)
    whole = _course(lake, now, found, as_of, wanted)
    report = model.report(now, before, wanted, whole, evidence, order.bounds, order.shown)
    for name, table in TABLES.items():
        schema = ", ".join(f"`{column}` {type_}" for column, type_ in table.columns.items())
        flat = frame_of(rows.sparkSession, table.rows_of(report), schema)
        flat.write.mode("overwrite").parquet(f"{gold}/{name}")
    return report


def _course(
    lake: Lake, now: Figures, found: LakeSpan, as_of_us: int, wanted: tuple[Target, ...]
) -> PromiseCourse:
    """Over the windows of the targets, whatever the period; from the period where it has all."""
    until = now.until_us
    since = max(reaches_back_to(wanted, until), found.first_us)
    if not wanted or now.since_us <= since:
        return course_of(now.buckets, wanted, until)
    return course(lake.rows(_date(since)), since, until, wanted, as_of_us)


def _evidence(lake: Lake, now: Figures, found: LakeSpan) -> Evidence:
    until = now.until_us
    since = until - LOOK_BACK_US
    seen = signs.seen(lake.rows(_date(since)), since, until).collect()
    files, cut = lake.files()
    last = found.event_us or None
    return Evidence([row.asDict() for row in seen], now.runs, files, cut, last)


def _date(at_us: int) -> str:
    """The first date whose rows can matter: a span without its time of publishing lies later."""
    return plain.iso(max(0, at_us - DAY_US))[:10]


def write(report: Report, out: Path) -> None:
    """Every form of a report, each file whole or not at all."""
    forms: dict[str, Callable[[Report], str]] = {
        "report.json": tables.as_json,
        "report.html": as_html,
        "groups.csv": tables.as_csv,
        **{f"{name}.csv": partial(tables.as_flat_csv, name) for name in TABLES},
        "junit.xml": tables.as_junit,
        "report.prom": as_prometheus,
    }
    for name, form in forms.items():
        part = out / f".{name}.part"
        part.write_text(form(report), encoding="utf-8")
        os.replace(part, out / name)  # noqa: PTH105 -- atomic, over an old one too
