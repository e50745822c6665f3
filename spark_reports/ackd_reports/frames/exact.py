"""Exact percentiles, for whom 1 % is too much: every duration is sorted, on disk if need be."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from ackd_reports import words
from ackd_reports.frames.ordered import ordered

PERCENTILES: Final = {"p50": 500, "p95": 950, "p99": 990, "p999": 999}
"""In thousandths, so that ranks are whole numbers."""
LEVELS: Final = {
    "totals": (),
    "groups": words.STREAM,
    "hours": (*words.STREAM[:4], "hour_us"),
    "days": (*words.STREAM[:4], "day_us"),
}
"""What percentiles are made for -> the columns of its key."""


def exact(whole: DataFrame) -> dict[str, DataFrame]:
    """Lives -> for each of `LEVELS` its key, `duration`, `p50`... in whole microseconds.

    A percentile is the smallest duration that at least the share of all messages do not exceed;
    weights count, durations below zero do not (as in the histograms).
    """
    pairs = F.array(
        *[
            F.struct(F.lit(name).alias("duration"), F.col(f"{name}_us").alias("us"))
            for name in words.DURATIONS
        ]
    )
    each = whole.select(
        *words.STREAM,
        F.expr(f"(born_us div {words.HOUR_US}) * {words.HOUR_US}").alias("hour_us"),
        F.expr(f"(born_us div {words.DAY_US}) * {words.DAY_US}").alias("day_us"),
        "weight",
        F.explode(pairs).alias("pair"),
    ).where(F.col("pair.us") >= 0)
    flat = each.select("*", "pair.duration", "pair.us").drop("pair")
    return {name: _level(flat, columns) for name, columns in LEVELS.items()}


def _level(flat: DataFrame, columns: tuple[str, ...]) -> DataFrame:
    key = (*columns, "duration")
    summed = flat.groupBy(*key, "us").agg(F.sum("weight").alias("n"))
    within = Window.partitionBy(*key)
    running = within.orderBy("us").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    ranked = summed.withColumns(
        {"below": F.sum("n").over(running), "total": F.sum("n").over(within)}
    )
    found = [
        # Sums of millionths in thousandths: a decimal holds them whatever they are.
        F.min(
            F.when(
                F.col("below").cast("decimal(38,0)") * 1000
                >= F.col("total").cast("decimal(38,0)") * share,
                F.col("us"),
            )
        ).alias(name)
        for name, share in PERCENTILES.items()
    ]
    return ordered(ranked.groupBy(*key).agg(*found), *key)
