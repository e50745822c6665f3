"""The whole job on Spark 3.5, the oldest that reports know; `make test-spark35` runs all tests."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ackd_reports.render import tables
from tests.integration.reports.conftest import World
from tests.integration.reports.test_cluster import TARGETS
from tests.support.other import SPARK35, packages
from tests.support.require import require
from tests.support.spark import JAVA_OPTIONS

MAIN = """
import sys, pyspark
print(pyspark.__version__)
from ackd_reports.command import main
sys.exit(main())
"""


@pytest.mark.timeout(900)
def test_the_oldest_spark_tells_the_same(world: World, tmp_path: Path) -> None:
    """To the byte: from files to a report, taken up and counted by Spark 3.5."""
    require("" if shutil.which("java") else "reports need Java 17: java is not in PATH")
    (tmp_path / "targets.toml").write_text(TARGETS)
    command = [sys.executable, "-c", MAIN, "make", str(world.folder), "--master", "local[2]"]
    command += [
        "--until",
        "last",
        "--out",
        str(tmp_path / "out"),
        "--targets",
        str(tmp_path / "targets.toml"),
    ]
    for setting in ("spark.sql.codegen.wholeStage=false", "spark.sql.shuffle.partitions=2"):
        command += ["--conf", setting]
    environ = {
        **os.environ,
        "PYTHONPATH": str(packages(SPARK35)),
        "JDK_JAVA_OPTIONS": JAVA_OPTIONS,
        "ACKD_REPORT_MEMORY": "768m",
    }
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 3, done.stderr
    assert done.stdout.startswith("3.5.")
    assert (tmp_path / "out" / "report.json").read_text() == tables.as_json(world.report)
