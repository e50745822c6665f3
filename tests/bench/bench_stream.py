"""Memory of `ackd report follow` over many batches: `python -m tests.bench.bench_stream`.

One process takes up made-up traces, one file a batch. At ten moments it says how much is resident
(Python and Java) and how much of Java's heap is alive after a full collection, which is what a leak
shows in: how much is resident says only how much Java was allowed to take (`ACKD_REPORT_MEMORY`).
"""

import argparse
import json
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import SparkSession

from ackd_reports.frames import stream
from ackd_reports.frames.lake import IngestResult, Lake
from ackd_reports.frames.session import session
from ackd_reports.frames.storage import TraceFile
from ackd_reports.generate import GenerationPlan, generate
from tests.support.paths import REPO

MOMENTS = 10


def memory(spark: SparkSession) -> dict[str, float]:
    """Megabytes: resident in all, and what Java's heap holds after a full collection."""
    context: Any = spark.sparkContext
    runtime = context._jvm.java.lang.Runtime.getRuntime()
    runtime.gc()
    alive = runtime.totalMemory() - runtime.freeMemory()
    root = psutil.Process()
    family = [root, *root.children(recursive=True)]
    resident = sum(each.memory_info().rss for each in family)
    return {"resident_mb": round(resident / 1e6), "heap_alive_mb": round(alive / 1e6, 1)}


def main() -> int:
    """Measure; prints a JSON object at each moment."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--messages", type=int, default=100, help="of one batch")
    parser.add_argument("--master", default="local[2]")
    arguments = parser.parse_args()
    folder = REPO / ".cache" / "bench" / f"stream-{time.time_ns()}"
    (folder / "source").mkdir(parents=True)
    made = generate(
        folder / "made", GenerationPlan(messages=arguments.messages, hours=1, streams=2)
    )
    for number in range(arguments.batches):
        # The same messages again and again: only the number of files and batches grows.
        _link(made.files[number % len(made.files)], folder / "source", number)
    stream.FILES_A_BATCH = 1  # type: ignore[misc]  # a batch for each file
    spark = session(arguments.master)
    every = max(1, arguments.batches // MOMENTS)
    take, done = Lake.take, 0

    def counted(self: Lake, found: Sequence[TraceFile]) -> IngestResult:
        nonlocal done
        result = take(self, found)
        done += 1
        if done % every == 0:
            print(json.dumps({"batches": done, **memory(spark)}), flush=True)  # noqa: T201
        return result

    Lake.take = counted  # type: ignore[method-assign]
    stream.follow(spark, str(folder / "source"), str(folder / "lake"), None)
    shutil.rmtree(folder)
    return 0


def _link(file: Path, source: Path, number: int) -> None:
    (source / f"{number:06}-{file.name}").hardlink_to(file)


if __name__ == "__main__":
    raise SystemExit(main())
