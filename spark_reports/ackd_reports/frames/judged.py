"""Lives held against targets."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from ackd_reports.targets import Target


def judged(whole: DataFrame, targets: Sequence[Target], until_us: int) -> DataFrame:
    """Add a `good_i` for each target: true, false, or null where it does not apply or is open.

    A message that is not finished is bad once it is older than allowed, and open before.
    """
    columns = {
        f"good_{number}": F.when(_chosen(target), _good(target, until_us))
        for number, target in enumerate(targets)
    }
    return whole.withColumns(columns) if columns else whole


def _chosen(target: Target) -> Column:
    chosen = F.lit(True)
    for name, value in target.only:
        chosen &= F.col("grp" if name == "group" else name) == value
    return chosen


def _good(target: Target, until_us: int) -> Column:
    age = F.lit(until_us) - F.col("born_us")
    unfinished = F.col("unfinished") == 1
    if target.within_us == 0:
        good = F.col("acked") == 1
        if target.measure == "first_attempt":
            good &= F.col("redelivered") == 0
        # Whoever holds a message for ever must not be green for ever.
        overdue = F.when(age > target.finished_within_us, F.lit(False))
        return F.when(~unfinished, good).otherwise(overdue)
    duration = F.col(f"{target.measure}_us")
    late = F.when(~unfinished | (age > target.within_us), F.lit(False))
    if target.measure == "work":
        # Only leases that were acked have a length to judge.
        late = F.lit(None).cast("boolean")
    if target.measure in ("wait", "time_to_ack"):
        # Without a time of publishing two of the durations are unknown, not bad.
        late = F.when(F.col("publish_us").isNotNull(), late)
    return F.when(duration.isNotNull(), duration <= target.within_us).otherwise(late)


def weighed(value: Column) -> Column:
    """A sum in which a sampled life counts for those that were left out."""
    return F.sum(F.col("weight") * value)


def sides(targets: int) -> list[Column]:
    """`good_i` and `bad_i` of each target, summed."""
    found = []
    for number in range(targets):
        good = F.col(f"good_{number}")
        kept, broken = F.coalesce(good, F.lit(False)), F.coalesce(~good, F.lit(False))
        found.append(weighed(kept.cast("bigint")).alias(f"good_{number}"))
        found.append(weighed(broken.cast("bigint")).alias(f"bad_{number}"))
    return found


def is_bad(number: int) -> Column:
    """Whether a life breaks target `number`."""
    return ~F.coalesce(F.col(f"good_{number}"), F.lit(True))


def took(target: Target, as_of_us: int) -> Column:
    """How long what a target is about took, or goes on."""
    so_far = F.coalesce("dead_us", F.lit(as_of_us)) - F.col("born_us")
    return F.coalesce(F.col(f"{target.measure}_us"), so_far) if target.within_us else so_far
