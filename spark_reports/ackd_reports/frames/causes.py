"""Why promises were broken: bad messages by what became of them, by whom, and when.

Outcomes exclude each other, so their shares add up; the other dimensions are independent of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from ackd_reports.frames.judged import is_bad, took
from ackd_reports.frames.ordered import ordered
from ackd_reports.plain import CAUSES
from ackd_reports.targets import Target

VALUES_MAX: Final = 5
"""So many values of a dimension are listed; outcomes are few, and all of them are."""
NO_OUTAGE: Final = "no outage"


def causes(
    held: DataFrame, targets: Sequence[Target], outages: Sequence[dict[str, Any]]
) -> DataFrame:
    """Lives held against targets -> `target`, `dimension`, `value`, `n` (millionths of a message).

    `outages` are rows of `figures._process`; a message is in one that it lived through.
    """
    values = {
        "outage": _outage(outages),
        "subscription": F.concat_ws(" / ", "topic", "grp"),
        "application": F.col("application"),
        "sidecar": F.coalesce("sidecar", F.lit("")),
        "partition": F.concat_ws("/", "topic", "partition"),
        "reason": F.coalesce("reason", F.lit("")),
    }
    listed = []
    for number, target in enumerate(targets):
        named = {"outcome": outcome(target), **values}
        pairs = [
            F.struct(
                F.lit(number).alias("target"),
                F.lit(name).alias("dimension"),
                named[name].alias("value"),
            )
            for name in CAUSES
        ]
        listed.append(F.when(is_bad(number), F.array(*pairs)))
    every = F.flatten(F.filter(F.array(*listed), lambda each: each.isNotNull()))
    pairs_of = held.select("weight", F.explode(every).alias("pair")).select("weight", "pair.*")
    key = ("target", "dimension", "value")
    summed = pairs_of.where(F.col("value") != "").groupBy(*key).agg(F.sum("weight").alias("n"))
    most = Window.partitionBy("target", "dimension").orderBy(F.desc("n"), "value")
    ranked = summed.withColumn("rank", F.row_number().over(most))
    shown = (F.col("rank") <= VALUES_MAX) | (F.col("dimension") == "outcome")
    return ordered(ranked.where(shown), "target", "dimension", "rank")


def outcome(target: Target) -> Column:
    """What became of a message that broke a promise, in words."""
    late = (
        F.when(F.col("expires_n") > 0, F.lit("a lease ran out"))
        .when(F.col("losts_n") > 0, F.lit("a lease was lost"))
        .when(F.col("retries_n") > 0, F.lit("its application asked for a retry"))
        .when(F.col("releases_n") > 0, F.lit("it was given back"))
    )
    if target.measure == "first_attempt":
        late = F.coalesce(late, F.lit("delivered again"))
    else:
        waited = F.coalesce(F.col("wait_us"), F.lit(0)) >= F.coalesce("work_us", F.lit(0))
        late = F.coalesce(
            late, F.when(waited, F.lit("waited for its first lease")).otherwise(F.lit("slow work"))
        )
    return (
        F.when(F.col("dead") == 1, F.lit("given up"))
        .when(F.col("unfinished") == 1, F.lit("not finished"))
        .otherwise(late)
    )


def _outage(outages: Sequence[dict[str, Any]]) -> Column:
    """The first outage that a message lived through, as `of since`."""
    ended = F.coalesce("ack_end_us", "dead_us", "seen_last_us")
    found = F.lit(None).cast("string")
    for each in reversed(outages):
        lived = (F.col("born_us") < each["end_us"]) & (ended >= each["start_us"])
        found = F.when(lived, F.lit(each["name"])).otherwise(found)
    return F.coalesce(found, F.lit(NO_OUTAGE))


def typical(
    held: DataFrame, targets: Sequence[Target], as_of_us: int, shown: Sequence[str]
) -> DataFrame:
    """The message in the middle of each outcome of each target: as long as half of them took.

    Columns `shown`, `target`, `outcome`, `took_us`.
    """
    listed = [
        F.when(
            is_bad(number),
            F.struct(
                F.lit(number).alias("target"),
                outcome(target).alias("outcome"),
                took(target, as_of_us).alias("took_us"),
            ),
        )
        for number, target in enumerate(targets)
    ]
    every = F.filter(F.array(*listed), lambda each: each.isNotNull())
    flat = held.select(*shown, F.explode(every).alias("pair")).select(*shown, "pair.*")
    of_outcome = Window.partitionBy("target", "outcome")
    place = of_outcome.orderBy("took_us", *shown)
    ranked = flat.withColumns(
        {"rank": F.row_number().over(place), "all": F.count(F.lit(1)).over(of_outcome)}
    )
    middle = ranked.where(F.expr("rank = (all + 1) div 2"))
    return ordered(middle.select(*shown, "target", "outcome", "took_us"), "target", "outcome")
