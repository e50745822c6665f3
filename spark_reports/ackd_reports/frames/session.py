"""A Spark session with the settings that the job counts on."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Final

from pyspark.sql import SparkSession

LOCAL: Final = "local[*]"

NEEDED: Final = {
    # Buckets and dates are UTC wherever the driver runs.
    "spark.sql.session.timeZone": "UTC",
    # Else a file that could not be fetched is passed over without a word. `reading` says where not.
    "spark.sql.files.ignoreCorruptFiles": "false",
    # A line may name an attribute twice; one such line must not fail the job.
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    # Dates in folder names are compared as text.
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
}
"""Set on every session, a caller's own too."""


FORGETFUL: Final = {
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "20",
}
"""Spark keeps a thousand jobs and plans for a page that nobody sees; `follow` runs for weeks."""


UNTRACED: Final = {"spark.python.sql.dataFrameDebugging.enabled": "false"}
"""PySpark 4 notes for each column which line of Python made it, with several calls to Java and a
search for IPython: a tenth of the processor time of a small report, and more of each later one.
"""


BRIEF: Final = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""For work of seconds: plans of a hundred columns take longer to compile than a few thousand rows
to read. Of many rows each would cost more.
"""


def session(
    master: str | None = None, conf: Mapping[str, str] | None = None, *, brief: bool = False
) -> SparkSession:
    """The running session, or a new one.

    Without `master`, spark-submit's (its settings are in the environment), else all local cores.
    In local mode shuffles have two partitions a core: a kept plan is not coalesced by Spark, and
    the default of 200 costs three times the CPU. `brief`: there is little to read.
    """
    # Spark starts "python3" from PATH otherwise, which is not this environment.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    running = SparkSession.getActiveSession() is not None
    submitted = "SPARK_ENV_LOADED" in os.environ or running
    builder = SparkSession.builder.appName("ackd-report")
    for name, value in ({} if running else UNTRACED).items():
        builder = builder.config(name, value)
    local = not submitted and (master is None or master.startswith("local"))
    if local or master is not None:
        builder = builder.master(master or LOCAL)
    if local:
        builder = (
            builder.config("spark.ui.enabled", "false")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.ui.showConsoleProgress", str(sys.stderr.isatty()).lower())
            .config("spark.sql.shuffle.partitions", str(2 * _cores(master or LOCAL)))
            # So few partitions need no planning anew between two stages.
            .config("spark.sql.adaptive.enabled", "false")
            .config("spark.driver.memory", os.environ.get("ACKD_REPORT_MEMORY", "2g"))
        )
        for name, value in {**FORGETFUL, **(BRIEF if brief else {})}.items():
            builder = builder.config(name, value)
    for name, value in (conf or {}).items():
        builder = builder.config(name, value)
    spark: SparkSession = builder.getOrCreate()
    for name, value in NEEDED.items():
        spark.conf.set(name, value)
    if local:
        # Warnings about this machine's libraries would bury what the report has to say.
        spark.sparkContext.setLogLevel("ERROR")
    return spark


def _cores(master: str) -> int:
    inside = master.removeprefix("local").strip("[]").partition(",")[0]
    return int(inside) if inside.isdigit() else (os.cpu_count() or 1) if inside == "*" else 1
