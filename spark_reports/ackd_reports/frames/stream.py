"""Taking up trace files as they come, with Structured Streaming over the same code as in batch.

There is no state: each batch of files becomes partial rows that are appended, and merging happens
when a report is made. A batch that is told again after a crash is harmless, so at least once is
enough.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, SparkSession

from ackd_reports.frames import reading
from ackd_reports.frames.failures import explained
from ackd_reports.frames.lake import Lake

FILES_A_BATCH: Final = 200
"""Bounds the memory of a batch after a long pause."""


def follow(spark: SparkSession, source: str, lake: str, every_us: int | None) -> None:
    """Watch `source`; None for `every_us` = take up what is there and end.

    Where it stands is kept in the lake, so that a run goes on where the last one ended. Raises
    `OSError` for storage that cannot be used.
    """
    with explained(source, lake):
        _follow(spark, source, lake, every_us)


def _follow(spark: SparkSession, source: str, lake: str, every_us: int | None) -> None:
    target = Lake(spark, lake)
    read = spark.readStream.schema(reading.LINE_SCHEMA).options(**reading.options(source))
    incoming = reading.with_file(read.option("maxFilesPerTrigger", FILES_A_BATCH).json(source))

    def take_up(batch: DataFrame, _: int) -> None:
        target.add(reading.events(batch))

    write = incoming.writeStream.foreachBatch(take_up)
    write = write.option("checkpointLocation", f"{lake.rstrip('/')}/followed")
    if every_us is None:
        write = write.trigger(availableNow=True)
    else:
        write = write.trigger(processingTime=f"{max(1, every_us // 1000)} milliseconds")
    write.start().awaitTermination()
