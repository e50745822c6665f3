"""Figures of a period: 5-minute counts, log histograms and the messages to look at.

Everything that Spark counts comes back here as plain rows; what is made of them is Python without
Spark (`measures`, `anomalies`, `model`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from ackd_reports import words
from ackd_reports.frames import signs
from ackd_reports.frames.batches import counted
from ackd_reports.frames.causes import causes, typical
from ackd_reports.frames.exact import exact
from ackd_reports.frames.judged import is_bad, judged, sides, took, weighed
from ackd_reports.frames.lives import COUNTS, bucket_of, count, lives
from ackd_reports.frames.ordered import ordered
from ackd_reports.frames.partials import merged
from ackd_reports.frames.reading import BAD, COMMIT, LIFE, PROCESS
from ackd_reports.outages import outages
from ackd_reports.plain import HAPPENED
from ackd_reports.targets import Target

EXAMPLES_MAX: Final = 10
STUCK_MAX: Final = 100
AGAIN_MAX: Final = 1_000
BAD_MAX: Final = 50
RETRY_ATTEMPTS: Final = 5
"""Retries are counted apart for so many first attempts; the last count has all later ones."""

FINE_US: Final = 2 * words.DAY_US
"""Up to this long a period is drawn in 5 minutes, a longer one in hours."""

PERCENTILES: Final = (0.5, 0.95, 0.99, 0.999)

Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Figures:
    """Rows as plain data. Counts are millionths of a message; see `words.MICRO`."""

    since_us: int
    until_us: int
    buckets: Rows
    """A row a stream and 5 minutes: COUNTS, retry_1.., and good_i, bad_i of each target."""
    totals: Rows
    """A row a stream and duration: `cells` = its log histogram."""
    hours: Rows
    """As `totals`, a row an hour too (`hour_us`), all streams of a topic and group together."""
    stuck: Rows
    again: Rows
    examples: Rows
    deliveries: Rows
    commits: Rows
    process: Rows
    bad: Rows
    bad_counts: Rows
    runs: Rows
    """As `signs.runs`."""
    causes: Rows
    """As `causes.causes`."""
    fine: Rows
    """Histograms of `time_to_ack` of each subscription, a row a slice (`bucket_us`) of 5 minutes,
    or of an hour where the period is long.
    """
    typical: Rows
    """As `causes.typical`."""
    exact: Mapping[str, Rows] | None = None
    """Percentiles that were asked for exactly: see `exact.LEVELS`."""

    @property
    def fine_us(self) -> int:
        """How long a slice of `fine` is."""
        return slice_us(self.since_us, self.until_us)


@dataclass(frozen=True, slots=True)
class LakeSpan:
    """What a lake covers, in microseconds."""

    first_us: int
    """The first birth of a message."""
    last_us: int
    """The last event of a message."""
    event_us: int
    """The last event of anything."""


def span_of(rows: DataFrame) -> LakeSpan | None:
    """None where there is no message."""
    is_life = F.col("kind") == LIFE
    # A bad row has the time of its file.
    found = rows.where(F.col("kind") != BAD).agg(
        F.min(F.when(is_life, F.coalesce("publish_us", "seen_first_us"))).alias("first"),
        F.max(F.when(is_life, F.col("seen_last_us"))).alias("last"),
        F.max("seen_last_us").alias("reported"),
    )
    row = found.first()
    if row is None or row["last"] is None:
        return None
    return LakeSpan(int(row["first"]), int(row["last"]), int(row["reported"]))


def figures(
    rows: DataFrame,
    since_us: int,
    until_us: int,
    targets: Sequence[Target],
    gold: str | None = None,
    *,
    as_of_us: int | None = None,
    exactly: bool = False,
    detailed: bool = True,
) -> Figures:
    """Count the lives born in [since, until), as they stand in `rows`.

    `as_of_us` is the moment at which what is unfinished is judged, `until_us` if not given. `gold`
    = a folder for the 5-minute counts and histograms as Parquet; it is written anew. Without
    `detailed` what only explains is left out.
    """
    as_of = until_us if as_of_us is None else as_of_us
    with _kept(lives(rows, since_us, until_us)) as whole:
        held = judged(whole, targets, as_of)
        counts = _counts(held, targets)
        cells = _cells(whole)
        if gold is not None:
            counts.write.mode("overwrite").parquet(f"{gold}/counts")
            cells.write.mode("overwrite").parquet(f"{gold}/histograms")
            read = rows.sparkSession.read
            counts = read.schema(counts.schema).parquet(f"{gold}/counts")
            cells = read.schema(cells.schema).parquet(f"{gold}/histograms")
        listed = _by_number(_listed(held, targets, as_of))
        process = _plain(_process(rows, since_us, until_us))
        explains = detailed and bool(targets)
        return Figures(
            since_us,
            until_us,
            _plain(ordered(counts, *words.STREAM, "bucket_us")),
            _plain(_rolled(cells, words.STREAM)),
            _plain(_rolled(_by_hour(cells), (*words.STREAM[:4], "hour_us"))),
            [{**row, "age_us": row["took_us"]} for row in listed.get(_STUCK, [])],
            listed.get(_AGAIN, []),
            [row for number, found in listed.items() if number >= 0 for row in found],
            _plain(counted(rows, since_us, until_us)),
            _plain(_commits(rows, since_us, until_us)),
            process,
            _plain(_bad(rows)),
            _plain(_bad_counts(rows)),
            _plain(signs.runs(rows, since_us, until_us)),
            _plain(causes(held, targets, outages(process))) if explains else [],
            _plain(_fine(cells, slice_us(since_us, until_us))) if detailed else [],
            _plain(typical(held, targets, as_of, _SHOWN)) if explains else [],
            {name: _plain(frame) for name, frame in exact(whole).items()} if exactly else None,
        )


@contextmanager
def _kept(frame: DataFrame) -> Iterator[DataFrame]:
    """Computed once for all that is asked of it. On the disk: in memory it would take what sorts
    and counts of many messages need, until these have no room to work in.
    """
    kept = frame.persist(StorageLevel.DISK_ONLY)
    try:
        yield kept
    finally:
        kept.unpersist()


def _plain(frame: DataFrame) -> Rows:
    return [row.asDict(recursive=True) for row in frame.collect()]


def _counts(whole: DataFrame, targets: Sequence[Target]) -> DataFrame:
    retries = [
        weighed(
            F.expr(f"bit_get(coalesce(retries, 0), {n})").cast("bigint")
            if n < RETRY_ATTEMPTS
            else F.coalesce(F.bit_count(F.expr(f"shiftright(retries, {n})")), F.lit(0))
        ).alias(f"retry_{n}")
        for n in range(1, RETRY_ATTEMPTS + 1)
    ]
    return whole.groupBy(*words.STREAM, "bucket_us").agg(
        F.count(F.lit(1)).alias("rows"),
        *[weighed(count(name)).alias(name) for name in COUNTS],
        *retries,
        *sides(len(targets)),
    )


def _cells(whole: DataFrame) -> DataFrame:
    """(stream, 5 minutes, duration, bucket) -> n; durations below zero are counted elsewhere."""
    pairs = F.array(
        *[
            F.struct(F.lit(name).alias("duration"), F.col(f"{name}_us").alias("us"))
            for name in words.DURATIONS
        ]
    )
    each = whole.select(*words.STREAM, "bucket_us", "weight", F.explode(pairs).alias("pair"))
    measured = each.where(F.col("pair.us") >= 0)
    return (
        measured.withColumn("cell", bucket_of("pair.us"))
        .groupBy(*words.STREAM, "bucket_us", F.col("pair.duration").alias("duration"), "cell")
        .agg(F.sum("weight").alias("n"))
    )


def _by_hour(cells: DataFrame) -> DataFrame:
    hour = F.expr(f"(bucket_us div {words.HOUR_US}) * {words.HOUR_US}")
    shown = cells.where(F.col("duration").isin("wait", "time_to_ack"))
    return shown.withColumn("hour_us", hour)


def slice_us(since_us: int, until_us: int) -> int:
    """How long the slices are in which a period is drawn."""
    return words.BUCKET_US if until_us - since_us <= FINE_US else words.HOUR_US


def _fine(cells: DataFrame, step: int) -> DataFrame:
    shown = cells.where(F.col("duration") == "time_to_ack")
    sliced = shown.withColumn("bucket_us", F.expr(f"(bucket_us div {step}) * {step}"))
    return _rolled(sliced, (*words.STREAM[:4], "bucket_us"))


def _rolled(cells: DataFrame, key: Sequence[str]) -> DataFrame:
    summed = cells.groupBy(*key, "duration", "cell").agg(F.sum("n").alias("n"))
    listed = F.sort_array(F.collect_list(F.struct("cell", "n"))).alias("cells")
    return ordered(summed.groupBy(*key, "duration").agg(listed), *key, "duration")


_SHOWN: Final = (
    *(
        "system",
        "cluster",
        "topic",
        "topic_id",
        "partition",
        "message",
        "grp",
        "application",
        "epoch",
    ),
    *("trace_id", "born_us", "first_us", "ack_end_us", "dead_us", "last_lease_us", "seen_last_us"),
    *("attempt_max", "reason", "sidecar", *(f"{name}_n" for name in HAPPENED)),
)
_ORDER: Final = (
    *("system", "cluster", "topic", "topic_id", "partition", "message", "grp", "epoch"),
)


_AGAIN, _STUCK = -2, -1
"""Lists beside those of the targets, which go by their number."""
_LISTED_MAX: Final = {_AGAIN: AGAIN_MAX, _STUCK: STUCK_MAX}


def _listed(whole: DataFrame, targets: Sequence[Target], until_us: int) -> DataFrame:
    """Messages to look at, each list the worst first: `target` = whose list, `took_us`.

    For each target those that broke it; those leased after their ack, each of which is a broken
    promise; and the oldest unfinished ones.
    """
    age = F.lit(until_us) - F.col("born_us")
    lists = [
        _pair(count("acked_again") == 1, _AGAIN, age),
        _pair(F.col("unfinished") == 1, _STUCK, age),
    ]
    for number, target in enumerate(targets):
        lists.append(_pair(is_bad(number), number, took(target, until_us)))
    every = F.filter(F.array(*lists), lambda each: each.isNotNull())
    flat = whole.select(*_SHOWN, F.explode(every).alias("pair")).select(*_SHOWN, "pair.*")
    worst = Window.partitionBy("target").orderBy(F.desc("took_us"), *_ORDER)
    ranked = flat.withColumn("rank", F.row_number().over(worst))
    most = F.lit(EXAMPLES_MAX)
    for number, limit in _LISTED_MAX.items():
        most = F.when(F.col("target") == number, F.lit(limit)).otherwise(most)
    return ordered(ranked.where(F.col("rank") <= most), "target", "rank")


def _pair(condition: Column, number: int, took: Column) -> Column:
    return F.when(condition, F.struct(F.lit(number).alias("target"), took.alias("took_us")))


def _by_number(frame: DataFrame) -> dict[int, Rows]:
    lists: dict[int, Rows] = {}
    for row in _plain(frame):
        lists.setdefault(row["target"], []).append(row)
    return lists


def _within(rows: DataFrame, kind: str, since_us: int, until_us: int) -> DataFrame:
    columns = ("seen_first_us", "seen_last_us", "value_1", "value_2")
    of_kind = merged(rows.where(F.col("kind") == kind), columns)
    last, first = F.col("seen_last_us"), F.col("seen_first_us")
    return of_kind.where((last >= since_us) & (first < until_us))


def _commits(rows: DataFrame, since_us: int, until_us: int) -> DataFrame:
    """Largest commit lag of each group and hour."""
    hour = F.expr(f"(epoch div {words.HOUR_US}) * {words.HOUR_US}").alias("hour_us")
    found = _within(rows, COMMIT, since_us, until_us).groupBy(*words.STREAM[:4], hour)
    summed = found.agg(F.max("value_1").alias("lag_max"))
    return ordered(summed.where(F.col("lag_max").isNotNull()), *words.STREAM[:4], "hour_us")


def _process(rows: DataFrame, since_us: int, until_us: int) -> DataFrame:
    """Starts, stops and outages of sidecars, in order of time."""
    reported = rows.where(F.col("topic") != "status")
    found = _within(reported, PROCESS, since_us, until_us).select(
        F.col("topic").alias("event"),
        F.col("partition").alias("instance"),
        F.col("message").alias("boot"),
        F.col("grp").alias("of"),
        F.col("seen_first_us").alias("start_us"),
        F.col("seen_last_us").alias("end_us"),
    )
    return ordered(found, "start_us", "instance", "event", "boot", "of", "end_us")


def _bad(rows: DataFrame) -> DataFrame:
    found = merged(rows.where(F.col("kind") == BAD), ("file", "text"))
    shown = found.select(F.col("topic").alias("why"), "file", "text", F.col("message").alias("id"))
    return shown.orderBy("why", "id").limit(BAD_MAX)


def _bad_counts(rows: DataFrame) -> DataFrame:
    bad = merged(rows.where(F.col("kind") == BAD), ("seen_first_us",))
    found = bad.groupBy(F.col("topic").alias("why"))
    return ordered(found.agg(F.count(F.lit(1)).alias("n")), "why")
