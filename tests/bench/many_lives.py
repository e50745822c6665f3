"""A lake several times as large: `python -m tests.bench.many_lives LAKE COPIES INTO`.

Every life is there so often, each time under another offset in the same partition, so that there
are as many more rows, keys and messages in the same streams and hours.
"""

import sys

from pyspark.sql import functions as F  # noqa: N812

from ackd_reports.frames.reading import LIFE
from ackd_reports.frames.session import session


def main() -> int:
    """Write it."""
    lake, copies, into = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    spark = session()
    rows = spark.read.parquet(f"{lake}/partials")
    life = rows.where(F.col("kind") == LIFE)
    for number in range(copies):
        # Trace ids name messages in the report's lists: they have to differ as well.
        copy = life.withColumns(
            {
                "message": F.concat(F.lit(f"{number}"), "message"),
                "trace_id": F.concat(F.lit(f"{number:02x}"), F.expr("substring(trace_id, 3)")),
            }
        )
        copy.write.mode("append").partitionBy("date", "kind").parquet(f"{into}/partials")
    others = rows.where(F.col("kind") != LIFE)
    others.write.mode("append").partitionBy("date", "kind").parquet(f"{into}/partials")
    return 0


if __name__ == "__main__":
    sys.exit(main())
