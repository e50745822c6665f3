"""Red when it should be: what a report must not call kept, each by its exit code.

The traces end now, as those of a system that runs; a report ends now by default.
"""

import gzip
import json
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

from ackd.cli.main import main
from ackd_reports import words
from ackd_reports.generate import GenerationPlan, generate
from ackd_reports.generate_spans import Span, Value, as_json, attributes_json
from ackd_reports.words import BUCKET_US, DAY_US, HOUR_US, MICRO

pytestmark = pytest.mark.usefixtures("spark")

KEPT, USAGE, BROKEN, NO_DATA, INCOMPLETE = 0, 2, 3, 4, 5
TARGETS: Final = """
[[target]]
name = "orders delivered"
measure = "delivered"
objective = 0.99
topic = "orders"

[[target]]
name = "orders at once"
measure = "first_attempt"
objective = 0.5
topic = "orders"
"""
HEALTHY: Final = GenerationPlan(
    messages=900, seed=3, hours=24, streams=2, poison=0, stuck=0, slow=0, fails=0.01, bad_lines=0
)


def now_us() -> int:
    """The clock that `--until now` asks."""
    return time.time_ns() // 1000


def made(folder: Path, end_us: int, **changed: Any) -> list[Path]:
    """Files of a day that ends at a time."""
    fields = {name: getattr(HEALTHY, name) for name in HEALTHY.__slots__} | changed
    plan = GenerationPlan(**{**fields, "start_us": end_us - HEALTHY.hours * HOUR_US})
    return generate(folder, plan).files


def message(
    event: str, offset: int, born_us: int, took_us: int = MICRO, attempt: int = 1, **more: Value
) -> Span:
    """A span of a message of `orders`, published at a time and leased a second after."""
    start = born_us + MICRO
    fields: dict[str, Value] = {
        words.EVENT: event,
        words.SYSTEM: "kafka",
        words.TOPIC: "orders",
        words.PARTITION: "0",
        words.OFFSETS[0]: offset,
        words.GROUP: "orders-workers",
        words.PUBLISHED: born_us // 1000,
        words.ATTEMPT: attempt,
        words.EXTENSIONS: 0,
    }
    return Span(f"{event} orders", 5, start, start + took_us, {**fields, **more})


def write(path: Path, spans: Iterable[Span], boot: str = "b") -> Path:
    """A trace file of one sidecar."""
    run = {"service.name": "ackd", words.INSTANCE: "s", words.BOOT: boot, words.CLUSTER: "demo"}
    listed = ",".join(as_json(each) for each in spans)
    line = f'{{"resourceSpans":[{{"resource":{{"attributes":{attributes_json({**run})}}}'
    line += f',"scopeSpans":[{{"spans":[{listed}]}}]}}]}}\n'
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(line.encode()))
    return path


class Reporter:
    """Makes reports of one test: `code` and `report` of the last one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.report: dict[str, Any] = {}
        self.head = ""

    def make(self, *words_: object, targets: str = TARGETS, ending: str = "toml") -> int:
        """`ackd report make`; the exit code."""
        path = self._folder / f"targets.{ending}"
        path.write_text(targets)
        out = self._folder / "out"
        code = main(
            ["report", "make", *map(str, words_), "--targets", str(path), "--out", str(out)]
        )
        if code != USAGE:
            self.report = json.loads((out / "report.json").read_text())
            self.head = (out / "report.html").read_text().partition("<main>")[0]
        return code

    def states(self) -> dict[str, str]:
        """Promise -> state."""
        return {each["name"]: each["state"] for each in self.report["promises"]}


@pytest.fixture
def reporter(tmp_path: Path) -> Reporter:
    return Reporter(tmp_path)


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Path:
    """A lake of a good day that ends now."""
    folder = tmp_path_factory.mktemp("healthy")
    made(folder / "traces", now_us())
    assert spark.version
    words_ = [str(folder / "traces"), "--lake", str(folder / "lake"), "--out", str(folder / "out")]
    assert main(["report", "make", *words_]) == KEPT
    return folder / "lake"


def test_a_good_day_is_kept_and_ends_now(healthy: Path, reporter: Reporter) -> None:
    assert reporter.make("--lake", healthy) == KEPT
    assert set(reporter.states().values()) == {"kept"}
    complete = reporter.report["completeness"]
    assert (complete["share"], complete["spans_missing"], complete["files_cut"]) == (1, 0, 0)
    assert "100 % of what sidecars wrote is there" in reporter.head.replace(
        "\N{NO-BREAK SPACE}", " "
    )


@pytest.mark.parametrize("name", ["topic", "group"])
def test_a_target_that_matches_nothing_has_no_data(
    healthy: Path, reporter: Reporter, name: str
) -> None:
    target = TARGETS.replace('topic = "orders"', f'{name} = "ordrs"')
    assert reporter.make("--lake", healthy, targets=target) == NO_DATA
    assert reporter.states()["orders delivered"] == "no data"
    assert f"nothing was heard of {name} ordrs" in reporter.head


def test_a_misspelt_filter_of_openslo_makes_no_report(healthy: Path, reporter: Reporter) -> None:
    slo = """
apiVersion: openslo/v1
kind: SLO
metadata: {name: orders}
spec:
  service: orders
  budgetingMethod: Occurrences
  indicator:
    spec:
      ratioMetric:
        rawType: success
        raw: {metricSource: {type: ackd, spec: {metric: delivered, tpoic: orders}}}
  objectives: [{target: 0.99}]
"""
    assert reporter.make("--lake", healthy, targets=slo, ending="yaml") == USAGE
    right = slo.replace("tpoic", "topic")
    assert reporter.make("--lake", healthy, targets=right, ending="yaml") == KEPT


def test_messages_that_are_never_finished_break_delivered(
    tmp_path: Path, reporter: Reporter
) -> None:
    """Two that were leased 12 and 23 hours ago, and never again: each promise that wants an end of
    them is broken, unless it allows for more time.
    """
    now = now_us()
    good = [message("ack", n, now - n * BUCKET_US) for n in range(1, 98)]
    hung = [message("expire", 900 + n, now - n * HOUR_US) for n in (12, 23)]
    fresh = [message("retry", 800, now - 10 * 60 * MICRO)]
    write(tmp_path / "traces" / "a.jsonl.gz", [*good, *hung, *fresh])
    lake = ("--lake", tmp_path / "lake")
    strict = TARGETS.replace("0.5", "0.99")
    assert reporter.make(tmp_path / "traces", *lake, targets=strict) == BROKEN
    assert {each["bad"] for each in reporter.report["promises"][1:]} == {2}
    patient = strict.replace("[[target]]", '[[target]]\nfinished_within = "1d"')
    assert reporter.make(*lake, targets=patient) == KEPT


def test_traces_that_stopped_are_no_good_day(tmp_path: Path, reporter: Reporter) -> None:
    """Three days ago; the report of that day is to be had by asking for it."""
    made(tmp_path / "traces", now_us() - 3 * DAY_US)
    lake = ("--lake", tmp_path / "lake")
    assert reporter.make(tmp_path / "traces", *lake, "--last", "24h") == NO_DATA
    assert reporter.report["totals"]["messages"] == 0
    assert reporter.report["freshness"]["age_s"] > 2.9 * 86_400
    assert "silent since" in reporter.head
    assert "3 d before the end" in reporter.head
    told = (tmp_path / "out" / "report.prom").read_text()
    assert 'ackd_report_verdict{verdict="no data"} 1' in told
    assert "ackd_report_last_event_timestamp_seconds" in told
    assert reporter.make(*lake, "--last", "24h", "--until", "last") == KEPT


def test_a_subscription_that_fell_silent_has_no_data(tmp_path: Path, reporter: Reporter) -> None:
    """One of two stopped in the middle of the day; no target names it."""
    now = now_us()
    for name, until in (("orders", 0), ("mail", 12 * HOUR_US)):
        spans = [message("ack", n, now - n * BUCKET_US) for n in range(1, 280)]
        named = {words.TOPIC: name, words.GROUP: f"{name}-workers"}
        for each in spans:
            each.attributes.update(named)
        kept = [each for each in spans if each.end_us < now - until]
        write(tmp_path / "traces" / f"{name}.jsonl.gz", kept, boot=name)
    lake = ("--lake", tmp_path / "lake")
    assert reporter.make(tmp_path / "traces", *lake) == NO_DATA
    assert [each["group"] for each in reporter.report["silent"]] == ["mail-workers"]
    assert "mail / mail-workers: nothing heard since" in reporter.head
    assert reporter.make(*lake, "--silent", "1d") == KEPT
    assert reporter.make(*lake, "--silent", "never") == KEPT


def test_one_wrong_clock_moves_nothing(tmp_path: Path, reporter: Reporter) -> None:
    """A span of the year 2096, one of 1970, and two messages that say they were published then or
    at no time: quarantined and counted, and the other figures are as if they were not there.
    """
    now = now_us()
    good = [message("ack", n, now - n * BUCKET_US) for n in range(1, 100)]
    far = 4_000_000_000 * MICRO
    wrong = [
        message("ack", 500, far),
        message("ack", 501, 0),
        Span("status ackd", 1, far, far, {words.EVENT: "status", words.SPANS_WRITTEN: 1}),
        message("ack", 502, now - HOUR_US, **{words.PUBLISHED: 0}),
        message("ack", 503, now - HOUR_US, **{words.PUBLISHED: far // 1000}),
    ]
    write(tmp_path / "traces" / "a.jsonl.gz", [*good, *wrong])
    lake = ("--lake", tmp_path / "lake")
    found: dict[str, Any] = {}
    for last in ((), ("--last", "24h")):
        assert reporter.make(tmp_path / "traces", *lake, *last, "--complete", "0.9") == KEPT
        found = reporter.report
        assert found["totals"]["messages"] == found["totals"]["acked"] == 101
        assert found["durations"]["time_to_ack"]["n"] == 99
        assert found["quarantine"]["counts"] == {
            "span is a year older than its file": 1,
            "span is later than its file": 2,
            "time of publishing that cannot be, left out": 2,
        }
        assert found["freshness"]["age_s"] < 600
    assert found["period"]["since"] > "2026"
    assert not [path.name for path in (tmp_path / "lake" / "partials").glob("date=[!2]*")]
    assert not list((tmp_path / "lake" / "partials").glob("date=209*"))
    # Three of 104 spans are more than one in a hundred.
    assert reporter.make(*lake) == INCOMPLETE


def damaged_by_cut(files: list[Path]) -> None:
    """Every sixth file ends in its middle."""
    for path in files[::6]:
        whole = path.read_bytes()
        kept = path.stat().st_mtime
        path.write_bytes(whole[: len(whole) // 2])
        os.utime(path, (kept, kept))


def damaged_by_loss(files: list[Path]) -> None:
    """Every sixth file never came."""
    for path in files[:-1:6]:
        path.unlink()


@pytest.mark.parametrize("damage", [damaged_by_cut, damaged_by_loss])
def test_too_much_missing_is_incomplete(
    tmp_path: Path, reporter: Reporter, damage: Callable[[list[Path]], None]
) -> None:
    """The sidecars' own counts tell, whatever was lost with the files."""
    damage(made(tmp_path / "traces", now_us(), messages=3_000))
    lake = ("--lake", tmp_path / "lake")
    loose = TARGETS.replace("0.99", "0.5").replace("0.5", "0.05")
    assert reporter.make(tmp_path / "traces", *lake, targets=loose) == INCOMPLETE
    complete = reporter.report["completeness"]
    assert 0.5 < complete["share"] < 0.95
    assert complete["spans_missing"] > 100
    assert "spans missing" in reporter.head
    assert reporter.make(*lake, "--complete", "0.5", targets=loose) == KEPT


def test_promises_do_not_depend_on_what_the_report_shows(
    tmp_path: Path, reporter: Reporter
) -> None:
    """The same lake and end: windows and burn rates reach back past the period, and are the same
    whether counted by Spark from the lake or from the period's own figures.
    """
    made(tmp_path / "traces", now_us(), fails=0.1, slow=0.1, stuck=0.01)
    lake, until = ("--lake", tmp_path / "lake"), ("--until", "last")
    slow = TARGETS.replace('measure = "delivered"', 'measure = "time_to_ack"\nwithin = "5s"')
    # Messages of the period, and what became of them.
    of_period = ("period", "examples", "causes", "typical")
    told = []
    for period in ((tmp_path / "traces",), ("--last", "4h"), ("--last", "2d")):
        assert reporter.make(*period, *lake, *until, targets=slow) == BROKEN
        told.append(
            [
                {name: each[name] for name in each if name not in of_period}
                for each in reporter.report["promises"][1:]
            ]
        )
    assert told[0] == told[1] == told[2]
    assert all(each["subscriptions"] and each["burning"] for each in told[0])
