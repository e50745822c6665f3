"""A whole run: take up files, count, judge, write every form of the report."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from ackd_reports import measures, model, plain, targets
from ackd_reports.effort import is_little
from ackd_reports.frames.failures import explained
from ackd_reports.frames.figures import Figures, figures, span_of
from ackd_reports.frames.lake import Lake
from ackd_reports.frames.session import session
from ackd_reports.model import Report
from ackd_reports.render import tables
from ackd_reports.render.html import as_html
from ackd_reports.words import DAY_US

CODES: Final = {measures.KEPT: 0, measures.BROKEN: 3, measures.NO_DATA: 4}


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """What to make. Times in microseconds since 1970; None = as the data says."""

    sources: tuple[str, ...]
    out: Path
    lake: str | None = None
    targets: Path | None = None
    since_us: int | None = None
    until_us: int | None = None
    last_us: int | None = None
    compact: bool = False
    exact: bool = False
    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)


def make(order: ReportRequest, say: Callable[[str], None]) -> int:
    """Make a report; the exit code. Raises `TargetsError` and `OSError`."""
    wanted = targets.load(order.targets) if order.targets else ()
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
    wanted: tuple[targets.Target, ...],
    say: Callable[[str], None],
) -> Report:
    lake = Lake(spark, _lake(order))
    if order.sources:
        say("reading trace files")
        taken = lake.ingest(order.sources)
        say(f"{taken.files} files taken up, {taken.known} were known, {len(taken.cut)} end early")
    if order.compact:
        say(f"{lake.compact()} folders merged")
    say("counting")
    return build(lake, order, wanted)


def build(lake: Lake, order: ReportRequest, wanted: tuple[targets.Target, ...]) -> Report:
    """The report as plain data; the 5-minute figures go to `out/gold` as Parquet, or where
    executors are on other hosts and the lake is no local folder, to `gold` in the lake.
    """
    found = span_of(lake.rows())
    first, last = found or (0, 0)
    until = order.until_us if order.until_us is not None else last + 1
    since = order.since_us
    if order.last_us is not None:
        since = until - order.last_us
    before: Figures | None = None
    if since is not None and found is not None and first < since:
        earlier = 2 * since - until
        rows = lake.rows(_date(earlier))
        before = figures(rows, earlier, since, wanted)
    start = first if since is None else since
    # Executors on other hosts cannot write to this disk.
    own = lake.executors_here or not lake.elsewhere
    gold = str((order.out / "gold").absolute()) if own else lake.gold
    rows = lake.rows(_date(start))
    now = figures(rows, start, until, wanted, gold, exactly=order.exact)
    return model.report(now, before, wanted, lake.cut())


def _date(at_us: int) -> str:
    """The first date whose rows can matter: a span without its time of publishing lies later."""
    return plain.iso(max(0, at_us - DAY_US))[:10]


def write(report: Report, out: Path) -> None:
    """Every form of a report, each file whole or not at all."""
    forms = {
        "report.json": tables.as_json,
        "report.html": as_html,
        "groups.csv": tables.as_csv,
        "junit.xml": tables.as_junit,
        "report.prom": tables.as_prometheus,
    }
    for name, form in forms.items():
        part = out / f".{name}.part"
        part.write_text(form(report), encoding="utf-8")
        os.replace(part, out / name)  # noqa: PTH105 -- atomic, over an old one too
