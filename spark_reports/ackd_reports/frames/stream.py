"""Taking up trace files as they come: Structured Streaming says which are new.

There is no state: each batch of files becomes partial rows that are appended, and merging happens
when a report is made. A batch that is told again after a crash is harmless, so at least once is
enough. Files are read as `ingest` reads them, so that one that ends in the middle ends no stream.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from ackd_reports.frames import reading
from ackd_reports.frames.failures import explained
from ackd_reports.frames.lake import Lake, kept_from_us
from ackd_reports.frames.storage import TraceFile

FILES_A_BATCH: Final = 200
"""Bounds the memory of a batch after a long pause."""
TIDIED_AFTER: Final = 50
"""Batches between two compactions."""
_FOUND: Final = "path STRING, modificationTime TIMESTAMP, length BIGINT, content BINARY"


def follow(
    spark: SparkSession,
    source: str,
    lake: str,
    every_us: int | None,
    keep_us: int | None = None,
) -> None:
    """Watch `source`; None for `every_us` = take up what is there and end.

    `keep_us`: what is older is not taken up, and removed. Where the stream stands is kept in the
    lake, so that a run goes on where the last one ended. Raises `OSError` for storage that cannot
    be used.
    """
    with explained(source, lake):
        _follow(spark, source, lake, every_us, keep_us)


def _follow(
    spark: SparkSession, source: str, lake: str, every_us: int | None, keep_us: int | None
) -> None:
    # Names only: without its content such a file is not opened.
    read = spark.readStream.format("binaryFile").schema(_FOUND).options(**reading.FILES)
    found = read.option("maxFilesPerTrigger", FILES_A_BATCH).load(source)
    names = found.select("path", "length", F.unix_millis("modificationTime").alias("changed_ms"))

    def take_up(batch: DataFrame, number: int) -> None:
        target = Lake(spark, lake, kept_from_us(keep_us))
        rows = batch.collect()
        target.take([TraceFile(row["path"], row["length"], row["changed_ms"]) for row in rows])
        if number % TIDIED_AFTER == TIDIED_AFTER - 1:
            target.forget()
            target.compact()

    write = names.writeStream.foreachBatch(take_up)
    write = write.option("checkpointLocation", f"{lake.rstrip('/')}/followed")
    if every_us is None:
        write = write.trigger(availableNow=True)
    else:
        write = write.trigger(processingTime=f"{max(1, every_us // 1000)} milliseconds")
    write.start().awaitTermination()
