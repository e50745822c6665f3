"""How promises fared over their windows, which reach further back than a report's period.

Only sums leave Spark: a row for every 5 minutes of all streams, and one for each subscription.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from ackd_reports.courses import PromiseCourse, sides_of
from ackd_reports.frames.judged import judged, sides
from ackd_reports.frames.lives import lives
from ackd_reports.frames.ordered import ordered
from ackd_reports.plain import GROUP
from ackd_reports.targets import Target


def course(
    rows: DataFrame, since_us: int, until_us: int, targets: Sequence[Target], as_of_us: int
) -> PromiseCourse:
    """Good and bad of each target among the lives born in [since, until), those that are not
    finished judged as of `as_of_us`.
    """
    whole = judged(lives(rows, since_us, until_us), targets, as_of_us)
    kept = whole.groupBy(*GROUP, "bucket_us").agg(*sides(len(targets)))
    kept = kept.persist(StorageLevel.DISK_ONLY)
    try:
        named = sides_of(targets)
        by_bucket = kept.groupBy("bucket_us").agg(*[F.sum(name).alias(name) for name in named])
        within = []
        for number, target in enumerate(targets):
            begun = F.col("bucket_us") >= target.window.around(until_us)[0]
            within += [
                F.sum(F.when(begun, F.col(name)).otherwise(F.lit(0))).alias(name)
                for name in (f"good_{number}", f"bad_{number}")
            ]
        return PromiseCourse(
            [row.asDict() for row in ordered(by_bucket, "bucket_us").collect()],
            [row.asDict() for row in ordered(kept.groupBy(*GROUP).agg(*within), *GROUP).collect()],
        )
    finally:
        kept.unpersist()
