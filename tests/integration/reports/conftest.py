"""The traces that most tests of reports read."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ackd_reports.frames.lake import Lake
from ackd_reports.generate import GenerationPlan, Made, generate
from ackd_reports.job import ReportRequest, build
from ackd_reports.model import Report
from ackd_reports.targets import Target
from ackd_reports.words import MICRO

TARGETS = (
    Target("in time", "time_to_ack", 0.99, 5 * MICRO),
    Target("orders delivered", "delivered", 0.999, only=(("topic", "orders"),)),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here is marked `spark` and may take its time on a busy machine."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.timeout(600))


@dataclass(frozen=True, slots=True)
class World:
    """Generated traces, a lake that has them, and the report that is made from it."""

    folder: Path
    made: Made
    lake: Path
    out: Path
    report: Report


PLAN = GenerationPlan(
    messages=1_500, seed=7, hours=8, streams=3, fails=0.05, stuck=0.004, slow=0.03, again=2
)


@pytest.fixture(scope="session")
def world(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    """Read once for all tests."""
    root = tmp_path_factory.mktemp("reports")
    made = generate(root / "traces", PLAN)
    lake = Lake(spark, str(root / "lake"))
    lake.ingest([str(root / "traces")])
    return World(root / "traces", made, root / "lake", root / "out", report(lake, root / "out"))


def report(lake: Lake, out: Path, until_us: int | None = None) -> Report:
    """The report of a lake with `TARGETS`, until its last event if not told otherwise."""
    return build(lake, ReportRequest(sources=(), out=out, until_us=until_us), TARGETS)
