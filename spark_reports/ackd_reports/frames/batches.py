"""Batches: what was handed out and acked, told of many messages at once and never sampled.

So what was acked and then handed out again shows at any sample, with every message named.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from ackd_reports import words
from ackd_reports.frames.ordered import ordered
from ackd_reports.frames.partials import COLUMNS, KEY, merged
from ackd_reports.frames.reading import BATCH, LIFE

_PLACE: Final = ("system", "cluster", "topic", "topic_id", "partition", "grp", "epoch")
SETTLED_APART_US: Final = 1_000
"""A settle is told of in milliseconds, a lease in microseconds."""


def batches(rows: DataFrame) -> DataFrame:
    """Each batch once: its partition, `event`, `offsets`, `messages`, `again`, first, last."""
    found = merged(
        rows.where(F.col("kind") == BATCH),
        ("reason", "text", "value_1", "value_2", "seen_first_us", "seen_last_us"),
    )
    return found.select(
        *_PLACE,
        F.col("reason").alias("event"),
        F.col("text").alias("offsets"),
        F.col("value_1").alias("messages"),
        F.col("value_2").alias("again"),
        "seen_first_us",
        "seen_last_us",
    )


def counted(rows: DataFrame, since_us: int, until_us: int) -> DataFrame:
    """(system, cluster, topic, grp) -> `deliveries`, `redeliveries`, `acks` in [since, until)."""
    within = (F.col("seen_last_us") >= since_us) & (F.col("seen_first_us") < until_us)
    received, settled = F.col("event") == "receive", F.col("event") == "settle"

    def total(where: Column, name: str) -> Column:
        return F.coalesce(F.sum(F.when(where, F.col(name))), F.lit(0).cast("bigint"))

    key = ("system", "cluster", "topic", "grp")
    found = batches(rows).where(within).groupBy(*key)
    counts = found.agg(
        total(received, "messages").alias("deliveries"),
        total(received, "again").alias("redeliveries"),
        total(settled, "messages").alias("acks"),
    )
    return ordered(counts, *key)


def acked_again(rows: DataFrame) -> DataFrame:
    """Partial rows of messages that were handed out after their ack, as batches tell it.

    They merge with what else is known of the message; of one that was not sampled they are all.
    """
    named = batches(rows).where(F.col("offsets").isNotNull())
    ranges = named.withColumn("range", F.explode(F.split("offsets", ",")))
    first = F.expr("CAST(element_at(split(range, '-'), 1) AS BIGINT)")
    last = F.expr("CAST(element_at(split(range, '-'), -1) AS BIGINT)")
    each = ranges.withColumn("offset", F.explode(F.sequence(first, last)))
    acked = F.when(F.col("event") == "settle", F.col("seen_last_us"))
    given = F.when(F.col("event") == "receive", F.col("seen_first_us"))
    found = each.groupBy(*_PLACE, "offset").agg(
        F.min(acked).alias("ack_end_us"), F.max(given).alias("last_lease_us")
    )
    again = found.where(F.col("last_lease_us") > F.col("ack_end_us") + SETTLED_APART_US)
    known = {
        "kind": F.lit(LIFE),
        "message": F.col("offset").cast("string"),
        "seen_first_us": F.col("ack_end_us"),
        "seen_last_us": F.col("last_lease_us"),
        "weight": F.lit(words.MICRO).cast("bigint"),
        "date": F.date_format(F.timestamp_micros("ack_end_us"), "yyyy-MM-dd"),
    }
    columns = [(name, "string") for name in KEY if name not in (*_PLACE, *known)]
    columns += [(name, type_) for name, (_, type_) in COLUMNS.items() if name not in known]
    empty = {
        name: F.lit(None).cast(type_)
        for name, type_ in columns
        if name not in ("ack_end_us", "last_lease_us")
    }
    return again.withColumns({**known, **empty}).select(*KEY, *COLUMNS, "date")
