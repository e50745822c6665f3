"""Signs of life: what was heard of subscriptions and sidecars, and how much of what they wrote.

A row a subscription, and one a run of a sidecar; what they mean is decided in `evidence`.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from ackd_reports import words
from ackd_reports.frames.ordered import ordered
from ackd_reports.frames.partials import merged
from ackd_reports.frames.reading import BAD, BATCH, COMMIT, LIFE, PROCESS, TALLY
from ackd_reports.plain import GROUP


def seen(rows: DataFrame, since_us: int, until_us: int) -> DataFrame:
    """GROUP -> `first_us`, `last_us`: when something was heard in [since, until); `gap_us`: the
    longest time without between two signs; `buckets`: in how many 5 minutes there was a sign.
    """
    of_group = F.col("kind").isin(LIFE, BATCH, COMMIT)
    last, first = F.col("seen_last_us"), F.col("seen_first_us")
    at = F.when(last < until_us, last).otherwise(first)
    reported = rows.where(of_group).select(*GROUP, at.alias("at_us"))
    within = reported.where((F.col("at_us") >= since_us) & (F.col("at_us") < until_us))
    bucket = F.expr(f"at_us div {words.BUCKET_US}").alias("bucket")
    found = within.groupBy(*GROUP, bucket).agg(
        F.min("at_us").alias("first_us"), F.max("at_us").alias("last_us")
    )
    before = F.lag("last_us").over(Window.partitionBy(*GROUP).orderBy("bucket"))
    gaps = found.withColumn("gap_us", F.col("first_us") - before)
    signs = gaps.groupBy(*GROUP).agg(
        F.min("first_us").alias("first_us"),
        F.max("last_us").alias("last_us"),
        F.coalesce(F.max("gap_us"), F.lit(0).cast("bigint")).alias("gap_us"),
        F.count(F.lit(1)).alias("buckets"),
    )
    return ordered(signs, *GROUP)


def runs(rows: DataFrame, since_us: int, until_us: int) -> DataFrame:
    """(instance, boot) -> what that run told of itself in [since, until), and what came of it.

    `started`: 1 if its start is known, before the period too; `stopped`: 0 or 1. `written_first`,
    `written_last`, `dropped_last`: its own counts of spans, at the first and the last time that it
    told them; `dropped_before`: at the last time before the period. `spans`: how many are there, of
    which `bad` are in quarantine.
    """
    key = (F.col("partition").alias("instance"), F.col("message").alias("boot"))
    first, last = F.col("seen_first_us"), F.col("seen_last_us")
    seen = ("seen_first_us", "seen_last_us")
    reported = merged(rows.where(F.col("kind") == PROCESS), (*seen, "value_1", "value_2"))
    event, within = F.col("topic"), last >= since_us
    process = reported.where(first < until_us).select(
        *key,
        (event == "start").cast("bigint").alias("started"),
        F.when(within, (event == "stop").cast("bigint")).alias("stopped"),
        F.when(within, F.col("value_1")).alias("written"),
        F.when(within, F.col("value_2")).alias("dropped"),
        F.when(~within, F.col("value_2")).alias("before"),
        *[F.when(within, F.col(name)).alias(name) for name in seen],
        *_none("spans", "bad"),
    )
    counted = merged(rows.where(F.col("kind") == TALLY), (*seen, "tally"))
    tallies = counted.where((last >= since_us) & (first < until_us)).select(
        *key,
        *_none(*_REPORTED),
        *seen,
        F.col("tally").alias("spans"),
        *_none("bad"),
    )
    batched = merged(rows.where(F.col("kind") == BATCH), (*seen, "value_1"))
    parts = F.split("message", "/")
    batches = batched.where((last >= since_us) & (first < until_us)).select(
        F.array_join(F.slice(parts, _INSTANCE, F.size(parts) - _AROUND), "/").alias("instance"),
        F.element_at(parts, -2).alias("boot"),
        *_none(*_REPORTED),
        *seen,
        # Sidecars count a batch for each of its messages.
        (F.col("value_1") - 1).alias("spans"),
        *_none("bad"),
    )
    wrong = merged(rows.where(F.col("kind") == BAD), ("seen_first_us",))
    bad = wrong.where((first >= since_us) & (first < until_us) & (F.col("grp") != "")).select(
        F.col("partition").alias("instance"),
        F.col("grp").alias("boot"),
        *_none(*_REPORTED, *seen, "spans"),
        F.lit(1).cast("bigint").alias("bad"),
    )
    every = process.unionByName(tallies).unionByName(batches).unionByName(bad)
    found = every.groupBy("instance", "boot").agg(
        _or_zero(F.max("started")).alias("started"),
        _or_zero(F.max("stopped")).alias("stopped"),
        F.min("written").alias("written_first"),
        F.max("written").alias("written_last"),
        F.max("dropped").alias("dropped_last"),
        F.max("before").alias("dropped_before"),
        F.min("seen_first_us").alias("first_us"),
        F.max("seen_last_us").alias("last_us"),
        _or_zero(F.sum("spans")).alias("spans"),
        _or_zero(F.sum("bad")).alias("bad"),
    )
    return ordered(found.where(F.col("first_us").isNotNull()), "instance", "boot")


_INSTANCE, _AROUND = 5, 6
"""In the key of a batch (`partials`): where the instance begins, and how many parts are not of
it.
"""
_REPORTED: Final = ("started", "stopped", "written", "dropped", "before")


def _none(*names: str) -> list[Column]:
    return [F.lit(None).cast("bigint").alias(name) for name in names]


def _or_zero(value: Column) -> Column:
    return F.coalesce(value, F.lit(0).cast("bigint"))
