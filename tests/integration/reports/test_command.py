"""`ackd report` as a user runs it: files in, forms of a report out, and its exit codes."""

import csv
import json
import re
from collections import defaultdict
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession

from ackd.cli.main import main
from ackd_reports.frames.session import UNTRACED
from tests.integration.reports.conftest import World
from tests.integration.reports.test_figures import SHARES
from tests.support import plain_report

TARGET = """
[[target]]
name = "delivered"
measure = "delivered"
objective = {objective}
"""


def make(*words: object) -> int:
    """`ackd report make`; the exit code."""
    return main(["report", "make", *map(str, words)])


def test_mistakes_are_1_and_2_and_no_messages_4(world: World, tmp_path: Path) -> None:
    targets = tmp_path / "targets.toml"
    targets.write_text(TARGET.format(objective=7))
    assert make("--lake", world.lake, "--targets", targets, "--out", tmp_path / "a") == 2
    assert make() == 2
    assert make(tmp_path / "nowhere", "--out", tmp_path / "b") == 1
    assert make("--lake", world.lake, "--out", tmp_path / "c", "--since", "2031-01-01") == 4


def test_a_kept_promise_is_0_and_the_period_before_is_told(world: World, tmp_path: Path) -> None:
    """The last four hours beside the four before; the cases above lie where the seed put them."""
    born = sorted(each["born"] for each in world.report["acked_again"])
    until = world.report["period"]["until"]
    out = tmp_path / "out"
    code = make("--lake", world.lake, "--out", out, "--last", "4h", "--until", until)
    found = json.loads((out / "report.json").read_text())
    assert code == (3 if born[-1] >= found["period"]["since"] else 0)
    previous = found["previous"]
    assert previous["until"] == found["period"]["since"]
    both = previous["counts"]["messages"]["before"] + found["totals"]["messages"]
    assert both == world.report["totals"]["messages"]


class _Page(HTMLParser):
    """What a page has: open tags, ids, addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.ids: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        if tag not in ("meta", "link", "br", "img"):
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in ("href", "src", "xlink:href"):
                self.addresses.append(value or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def broken(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with two broken promises and exact percentiles; 3 says so."""
    out = tmp_path_factory.mktemp("broken")
    targets = out / "targets.toml"
    targets.write_text(TARGET.format(objective=0.9999))
    given = ("--out", out, "--targets", targets, "--exact", "--until", "last")
    assert make("--lake", world.lake, *given) == 3
    return out


def test_percentiles_are_exact_on_demand(world: World, broken: Path) -> None:
    """In all, in each group and on each day; `histogram.ERROR` is for those who do not ask."""
    values = defaultdict(list)
    for key, life in plain_report.lives(world.made.files).items():
        day = datetime.fromtimestamp(life.born() / 1e6, UTC).date().isoformat()
        for name, duration in plain_report.durations(life).items():
            for place in ((), key[:3], (*key[:3], day)):
                values[place, name].append((duration, life.weight))
    report = json.loads((broken / "report.json").read_text())
    assert report["percentile_error"] == 0
    found: dict[tuple[str, ...], Any] = {(): report["durations"]}
    for row in report["groups"]:
        found[row["system"], row["topic"], row["group"]] = row["durations"]
    for row in report["days"]:
        place = row["system"], row["topic"], row["group"], row["day"][:10]
        found[place] = row["durations"]
    assert len(found) > 4
    for place, durations in found.items():
        for name, told in durations.items():
            for share, part in SHARES.items():
                exact = plain_report.percentile(values[place, name], part) / 1000
                assert told[share] == exact, (place, name, share)


def test_every_form_says_the_same(spark: SparkSession, broken: Path) -> None:
    report = json.loads((broken / "report.json").read_text())
    states = [each["state"] for each in report["promises"]]
    suite = ET.parse(broken / "junit.xml").getroot()  # noqa: S314  our own
    assert suite.get("failures") == str(states.count("broken")) == "2"
    rows = list(csv.DictReader((broken / "groups.csv").read_text().splitlines()))
    assert sum(int(row["messages"]) for row in rows) == report["totals"]["messages"]
    samples = [
        sample
        for family in text_string_to_metric_families((broken / "report.prom").read_text())
        for sample in family.samples
    ]
    told = [each.value for each in samples if each.labels.get("what") == "messages"]
    assert sum(told) == report["totals"]["messages"]
    assert spark.read.parquet(str(broken / "gold" / "counts")).count() > 0


def test_the_page_stands_alone(broken: Path) -> None:
    """Well-formed, no script, nothing from elsewhere, each plot with a name and a description."""
    text = (broken / "report.html").read_text()
    page = _Page()
    page.feed(text)
    assert page.open == []
    assert "script" not in page.seen
    assert len(page.ids) == len(set(page.ids))
    assert all(each.startswith("#") for each in page.addresses)
    # Names of XML are no addresses; nothing else may look like one.
    assert set(re.findall(r"https?://[^\s\"'<]+", text)) <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }
    sparklines = re.findall(r'<svg class="spark"[^>]*>', text)
    assert all(re.search(r'aria-label="[^"]+"', each) for each in sparklines)
    assert page.seen.count("svg") - len(sparklines) == page.seen.count("desc") >= 2
    for label in re.findall(r'aria-labelledby="([^"]+)"', text):
        assert set(label.split()) <= set(page.ids)
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text


def test_columns_are_made_without_a_look_at_the_stack(spark: SparkSession) -> None:
    """PySpark asks Java for this once, when the first column is made."""
    assert {name: spark.conf.get(name) for name in UNTRACED} == UNTRACED


@pytest.mark.parametrize("words", [("make",), ("make", "x", "--last", "soon"), ("dance",)])
def test_wrong_usage_needs_no_spark(words: tuple[str, ...]) -> None:
    try:
        code: object = main(["report", *words])
    except SystemExit as end:
        code = end.code
    assert code == 2
