"""Whole lives: merged partial rows with what follows from them."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from ackd_reports import words
from ackd_reports.frames.batches import acked_again
from ackd_reports.frames.partials import ATTEMPTS_APART, COLUMNS, KEY, merged
from ackd_reports.frames.reading import LIFE, PUBLISH_WRONG
from ackd_reports.histogram import NUDGE, STEPS, ZERO

COUNTS = (
    "messages",
    "acked",
    "dead",
    "unfinished",
    "redelivered",
    "retried",
    "retries",
    "releases",
    "expires",
    "lates",
    "losts",
    "send_backs",
    "extensions",
    "acked_twice",
    "acked_again",
    "clock_skew",
    "given",
    "redriven",
    "publish_wrong",
)
"""Per life: 0 or 1 for what it is, and how often what happened. A dead letter that was redriven is
unfinished until its ack. `given` = deliveries;
`acked_again` = a lease was granted after an ack; `clock_skew` = a duration below zero;
`publish_wrong` = a time of publishing that cannot be was left out."""


def lives(rows: DataFrame, since_us: int | None = None, until_us: int | None = None) -> DataFrame:
    """Partial rows -> one row a message and group, born in [since, until) where those are given.

    A message is born when it was published, else when it was first leased, else first seen.
    """
    spans = rows.where(F.col("kind") == LIFE).select(*KEY, *COLUMNS, "date")
    whole = merged(spans.unionByName(acked_again(rows)))
    born = F.coalesce("publish_us", "first_us", "seen_first_us")
    frame = (
        whole.withColumn("born_us", born)
        .withColumn("application", F.coalesce("application", F.lit("")))
        .withColumn("bucket_us", F.expr(f"(born_us div {words.BUCKET_US}) * {words.BUCKET_US}"))
    )
    if since_us is not None:
        frame = frame.where(F.col("born_us") >= since_us)
    if until_us is not None:
        frame = frame.where(F.col("born_us") < until_us)
    return frame.withColumns(_durations()).withColumns(_flags())


def _durations() -> dict[str, Column]:
    ack, first, published = F.col("ack_end_us"), F.col("first_us"), F.col("publish_us")
    return {
        "wait_us": first - published,
        "work_us": ack - F.col("ack_start_us"),
        "lease_to_ack_us": ack - first,
        "time_to_ack_us": ack - published,
    }


def _count(column: str) -> Column:
    return F.coalesce(F.bit_count(F.col(column)), F.lit(0)).cast("bigint")


def _flag(condition: Column) -> Column:
    return F.coalesce(condition, F.lit(False)).cast("bigint")


def _flags() -> dict[str, Column]:
    acked = F.col("ack_end_us").isNotNull()
    redriven = F.col("redriven_us").isNotNull()
    back = F.coalesce(F.col("redriven_us") > F.col("dead_last_us"), F.lit(False))
    dead = F.col("dead_us").isNotNull() & ~acked & ~back
    extensions = reduce(
        lambda left, right: left + right,
        [F.coalesce(f"extensions_{n}", F.lit(0)) for n in range(1, ATTEMPTS_APART + 2)],
    )
    negative = reduce(
        lambda left, right: left | right,
        [F.coalesce(F.col(f"{name}_us") < 0, F.lit(False)) for name in words.DURATIONS],
    )
    return {
        "messages": F.lit(1).cast("bigint"),
        "acked": _flag(acked),
        "dead": _flag(dead),
        "unfinished": _flag(~acked & ~dead),
        "redelivered": _flag(F.col("attempt_max") > 1),
        "given": F.coalesce("attempt_max", F.lit(0)).cast("bigint"),
        "retried": _flag(F.col("retries") > 0),
        "acked_twice": _flag(F.bit_count("acks") > 1),
        "acked_again": _flag(F.col("last_lease_us") > F.col("ack_end_us")),
        "clock_skew": _flag(negative),
        "redriven": _flag(redriven),
        "publish_wrong": _flag(F.expr(f"clocks & {PUBLISH_WRONG}") > 0),
        "extensions_n": extensions,
        **{f"{name}_n": _count(name) for name in _BITS},
    }


_BITS = ("retries", "releases", "expires", "lates", "losts", "send_backs")


def count(name: str) -> Column:
    """The column of one of `COUNTS`."""
    return F.col(f"{name}_n" if name in (*_BITS, "extensions") else name)


def bucket_of(column: str) -> Column:
    """Column with the histogram bucket of a value: `histogram.bucket` in Spark."""
    inside = F.floor(F.log2(F.col(column)) * STEPS + NUDGE).cast("int")
    return F.when(F.col(column) < 1, F.lit(ZERO)).otherwise(inside)
