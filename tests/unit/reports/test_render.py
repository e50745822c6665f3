"""Names come from traces, so from anybody: no form of a report takes one for its own language."""

import csv
import html
import io
import json
import subprocess
import sys
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree as ET

from prometheus_client.parser import text_string_to_metric_families

from ackd_reports import model
from ackd_reports.courses import course_of
from ackd_reports.evidence import Evidence, VerdictBounds
from ackd_reports.frames.figures import Figures
from ackd_reports.frames.lives import COUNTS
from ackd_reports.links import Presentation
from ackd_reports.plain import HAPPENED
from ackd_reports.render import tables
from ackd_reports.render.html import as_html
from ackd_reports.render.prometheus import as_prometheus
from ackd_reports.targets import Target
from ackd_reports.words import HOUR_US, MICRO

HOSTILE = '=<script>alert("1")</script>\\\n&'
START_US = 1_790_000_000 * MICRO // HOUR_US * HOUR_US
STREAM = {
    "system": "kafka",
    "cluster": "c",
    "topic": HOSTILE,
    "grp": HOSTILE,
    "application": HOSTILE,
}
SHOWN = Presentation(
    "https://traces.example/{trace_id}", marks=((START_US + MICRO, "a deploy " + HOSTILE),)
)
TARGET = Target(HOSTILE, "delivered", 0.9)


def message(**more: object) -> dict[str, Any]:
    """A message to look at, as Spark hands it over."""
    times = ("born_us", "first_us", "ack_end_us", "dead_us", "last_lease_us", "seen_last_us")
    more = {"partition": "0", "message": HOSTILE, "epoch": 0, "trace_id": HOSTILE, **more}
    more |= {"sidecar": HOSTILE, **{f"{name}_n": 1 for name in HAPPENED}}
    return {**STREAM, **dict.fromkeys(times, START_US), "attempt_max": 2, "reason": None, **more}


def figures() -> Figures:
    """Two hours of ten messages, two of which were given up."""
    buckets = []
    for hour in range(2):
        row: dict[str, Any] = dict.fromkeys((*COUNTS, *(f"retry_{n}" for n in range(1, 6))), 0)
        row |= {"messages": 10 * MICRO, "acked": 8 * MICRO, "dead": 2 * MICRO, "rows": 10}
        row |= {"good_0": 8 * MICRO, "bad_0": 2 * MICRO, "bucket_us": START_US + hour * HOUR_US}
        buckets.append({**STREAM, **row})
    cells = [{"cell": 640, "n": 16 * MICRO}]
    totals = [{**STREAM, "duration": "time_to_ack", "cells": cells}]
    hours = [{**totals[0], "hour_us": START_US + hour * HOUR_US} for hour in range(2)]
    bad = [{"why": "line is no OTLP JSON", "file": HOSTILE, "text": HOSTILE, "id": "1"}]
    return Figures(
        START_US,
        START_US + 2 * HOUR_US,
        buckets,
        totals,
        hours,
        stuck=[message(age_us=5 * MICRO)],
        again=[],
        examples=[message(target=0, took_us=MICRO, rank=1)],
        deliveries=[{**STREAM, "deliveries": 21, "redeliveries": 1, "acks": 16}],
        commits=[{**STREAM, "hour_us": START_US, "lag_max": 3}],
        process=[],
        bad=bad,
        bad_counts=[{"why": "line is no OTLP JSON", "n": 1}],
        runs=[],
        causes=[
            {"target": 0, "dimension": name, "value": HOSTILE, "n": 3 * MICRO, "rank": 1}
            for name in ("outcome", "outage", "sidecar")
        ],
        fine=[{**totals[0], "bucket_us": START_US}],
        typical=[message(target=0, outcome=HOSTILE, took_us=MICRO)],
    )


def report(**changed: Any) -> model.Report:
    """Of those figures; the last event is a minute before the end."""
    now = figures()
    last = now.until_us - 60 * MICRO
    signs = {"first_us": START_US, "last_us": last, "gap_us": HOUR_US, "buckets": 3}
    given = {"seen": [{**STREAM, **signs}], "runs": [run()], "files": 12, "cut_files": [HOSTILE]}
    evidence = Evidence(**{**given, "last_event_us": last, **changed})
    course = course_of(now.buckets, (TARGET,), now.until_us)
    return model.report(now, figures(), (TARGET,), course, evidence, VerdictBounds(), SHOWN)


def run(**changed: Any) -> dict[str, Any]:
    """A run of a sidecar of whose 1,000 spans 999 are there."""
    told = {"written_first": 0, "written_last": 1_000, "dropped_last": 0, "dropped_before": None}
    times = {"first_us": START_US, "last_us": START_US + 2 * HOUR_US}
    flags = {"started": 1, "stopped": 0, "spans": 999, "bad": 0}
    return {"instance": HOSTILE, "boot": "b", **told, **times, **flags, **changed}


REPORT = report()


def test_the_page_shows_names_and_runs_none() -> None:
    page = as_html(REPORT)
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert page == as_html(REPORT)


def test_the_page_answers_which_since_when_why_and_which_messages() -> None:
    """In its head and in the first table; messages lead to their traces."""
    page = as_html(REPORT)
    head = page.partition("<main>")[0]
    assert f"{html.escape(HOSTILE)} has 4 of 4 bad messages" in head
    assert "error budget gone since" in head
    assert "(75\N{NO-BREAK SPACE}%)" in head
    first = page.partition("<main>")[2].partition("</section>")[0]
    assert 'id="subscriptions"' in first
    assert 'class="spark"' in first
    assert f'href="https://traces.example/{quote(HOSTILE, safe="")}"' in page
    assert "1 lease ran out" in page
    assert "a deploy" in page


def test_a_spreadsheet_takes_no_name_for_a_formula() -> None:
    row = next(csv.DictReader(io.StringIO(tables.as_csv(REPORT))))
    assert row["topic"] == "'" + HOSTILE
    assert (row["messages"], row["dead"]) == ("20", "4")
    for name, rows in (("promises", 3), ("breaches", 1), ("hours", 2)):
        found = list(csv.DictReader(io.StringIO(tables.as_flat_csv(name, REPORT))))
        assert len(found) >= rows, name
        assert "'" + HOSTILE in [text for row in found for text in row.values()], name


def test_junit_and_prometheus_hold_names_whole() -> None:
    suite = ET.fromstring(tables.as_junit(REPORT))  # noqa: S314  our own
    case = next(each for each in suite if each.find("failure") is not None)
    # XML makes a space of a newline in an attribute that does not say otherwise.
    assert case.get("name") == HOSTILE
    families = text_string_to_metric_families(as_prometheus(REPORT))
    samples = [each for family in families for each in family.samples]
    assert {each.labels.get("topic", HOSTILE) for each in samples} == {HOSTILE}
    told = {each.name: each.value for each in samples}
    assert told["ackd_report_complete_ratio"] == 0.999
    age = (
        told["ackd_report_end_timestamp_seconds"] - told["ackd_report_last_event_timestamp_seconds"]
    )
    assert age == 60
    assert told["ackd_report_subscription_compliance"] == 0.8
    assert told["ackd_report_breaches"] == 1
    verdicts = {e.labels["verdict"]: e.value for e in samples if "verdict" in e.labels}
    assert verdicts == {"broken": 1, "kept": 0, "no data": 0, "incomplete": 0}


def test_what_is_missing_is_told_in_the_head() -> None:
    """Not at the end of the page, where nobody looks."""
    lost = run(spans=829, dropped_last=20, last_us=START_US)
    head = as_html(report(runs=[lost])).partition("<main>")[0]
    assert "81.2745\N{NO-BREAK SPACE}% of what sidecars wrote is there" in head
    for part in ("171 spans missing", "20 dropped", "1 files end early", "fell silent"):
        assert part in head
    assert "1 min before the end" in head


def test_nothing_known_looks_green_nowhere() -> None:
    """In JUnit a skipped case does, so what has no data is an error."""
    quiet = {**STREAM, "first_us": 0, "last_us": START_US, "gap_us": MICRO, "buckets": 99}
    found = report(seen=[quiet])
    suite = ET.fromstring(tables.as_junit(found))  # noqa: S314  our own
    assert (suite.get("failures"), suite.get("errors")) == ("1", "1")
    assert not suite.findall(".//skipped")
    page = as_html(found).partition("<main>")[0]
    assert "nothing heard since" in page


def test_json_has_the_verdict_and_numbers_only() -> None:
    report = json.loads(tables.as_json(REPORT))
    assert report["verdict"] == "broken"
    promise = report["promises"][1]
    assert (promise["good"], promise["bad"], promise["share"]) == (16, 4, 0.8)
    assert abs(promise["spent"] - 2.0) < 1e-9
    assert promise["period"]["share_before"] == 0.8
    assert promise["window"]["text"] == "30 d"
    assert [each["bad"] for each in promise["subscriptions"]] == [4]


def test_the_command_loads_spark_only_to_work() -> None:
    """`ackd report --help`, and a mistake, are told at once."""
    code = "import sys, ackd.cli.commands.report; print(*sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    )
    loaded = set(done.stdout.split())
    assert "ackd_reports.command" in loaded
    assert not loaded & {"pyspark", "matplotlib", "yaml"}
