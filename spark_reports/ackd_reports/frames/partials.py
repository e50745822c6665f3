"""Partial lives: what some files tell of a message, in a form that adds up in any order.

Each column is a minimum, a maximum or a bitwise or, over ordinals that the spans carry. So a row
told twice changes nothing, parts can be merged in any order and any grouping, and repeated files,
late files and a job that died half-way need no search for duplicates. Rows of other kinds
(commits, sidecars' own events, quarantine) have the same shape and the same three functions, so
that one pass over the files and one shuffle make everything.

A key is (kind, system, cluster, topic, topic_id, partition, message, grp, epoch). For `commit` the
message is empty and the epoch a 5-minute bucket. For `process` the topic, partition, message, grp
and epoch hold event, instance, boot, what was out, and the start. For `bad` the topic and message
hold the reason and a hash of the text, the partition and grp which run of which sidecar wrote it. A
`tally` has path of file, instance and boot as topic, partition and message, and a 5-minute bucket
as epoch; so has a `status` of `process`. For `batch` the message says what, when and by whom: each
is a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from ackd_reports import words
from ackd_reports.frames.reading import BAD, BATCH, COMMIT, LIFE, PROCESS, TALLY

KEY: Final = (
    *("kind", "system", "cluster", "topic", "topic_id", "partition", "message", "grp", "epoch"),
)
BITS_MAX: Final = 62
"""Attempts from this one on share a bit."""
ATTEMPTS_APART: Final = 4
"""Extensions are counted apart for so many first attempts; of all later ones the largest counts."""

_BIGINT, _STRING = "BIGINT", "STRING"
_MIN, _MAX, _OR = "min", "max", "bit_or"
_MERGE: Final[dict[str, Callable[[str], Column]]] = {_MIN: F.min, _MAX: F.max, _OR: F.bit_or}

COLUMNS: Final[dict[str, tuple[str, str]]] = {
    "publish_us": (_MIN, _BIGINT),
    "first_us": (_MIN, _BIGINT),
    "last_lease_us": (_MAX, _BIGINT),
    "ack_start_us": (_MIN, _BIGINT),
    "ack_end_us": (_MIN, _BIGINT),
    "dead_us": (_MIN, _BIGINT),
    "dead_last_us": (_MAX, _BIGINT),
    "redriven_us": (_MAX, _BIGINT),
    "seen_first_us": (_MIN, _BIGINT),
    "seen_last_us": (_MAX, _BIGINT),
    "attempt_max": (_MAX, _BIGINT),
    "acks": (_OR, _BIGINT),
    "retries": (_OR, _BIGINT),
    "releases": (_OR, _BIGINT),
    "expires": (_OR, _BIGINT),
    "lates": (_OR, _BIGINT),
    "losts": (_OR, _BIGINT),
    "send_backs": (_OR, _BIGINT),
    **{f"extensions_{n}": (_MAX, _BIGINT) for n in range(1, ATTEMPTS_APART + 2)},
    "weight": (_MIN, _BIGINT),
    "trace_id": (_MIN, _STRING),
    "application": (_MIN, _STRING),
    "reason": (_MIN, _STRING),
    "value_1": (_MAX, _BIGINT),
    "value_2": (_MAX, _BIGINT),
    "text": (_MIN, _STRING),
    "file": (_MIN, _STRING),
    "tally": (_MAX, _BIGINT),
    "clocks": (_OR, _BIGINT),
    "sidecar": (_MIN, _STRING),
}
"""Column -> (how parts are merged, type). `value_1`: commit lag, spans written, or messages of a
batch; `value_2`: committed offset, spans dropped, or those of a batch that came again. `text`: a
bad line, or the offsets of a batch, whose `reason` is its event. `tally`: how many spans of a run
and 5 minutes a file has. `clocks`: see `reading.PUBLISH_WRONG`.
`sidecar`: of those that leased a message, the first by name."""

_COLUMN_MERGE: Final = {name: _MERGE[how] for name, (how, _) in COLUMNS.items()}

SCHEMA: Final = ", ".join(
    [f"{name} {_BIGINT if name == 'epoch' else _STRING}" for name in KEY]
    + [f"{name} {type_}" for name, (_, type_) in COLUMNS.items()]
    + ["date STRING"]
)


def partials(events: DataFrame) -> DataFrame:
    """Events -> one row for each key and date among them, with the columns of `SCHEMA`."""
    rows = events.select(*_key(), *_values(), _date().alias("date"))
    # The lines of a file add up; a file that is told twice is still one.
    merge = {**_COLUMN_MERGE, "tally": F.sum}
    return _grouped(rows, (*KEY, "date"), merge=merge).select(*KEY, *COLUMNS, "date")


def merged(rows: DataFrame, columns: Sequence[str] = tuple(COLUMNS)) -> DataFrame:
    """Partial rows of any number of runs and dates -> one row a key, with some of the columns."""
    return _grouped(rows, KEY, columns)


def merged_by_date(rows: DataFrame) -> DataFrame:
    """As `merged`, each date apart: what compaction writes."""
    return _grouped(rows, (*KEY, "date")).select(*KEY, *COLUMNS, "date")


def _grouped(
    rows: DataFrame,
    key: tuple[str, ...],
    columns: Sequence[str] = tuple(COLUMNS),
    merge: Mapping[str, Callable[[str], Column]] | None = None,
) -> DataFrame:
    how = merge or _COLUMN_MERGE
    return rows.groupBy(*key).agg(*[how[name](name).alias(name) for name in columns])


def _when(kind: str) -> Column:
    return F.col("kind") == kind


def _key() -> list[Column]:
    of_process, of_bad, of_batch = _when(PROCESS), _when(BAD), _when(BATCH)
    of_tally = _when(TALLY)
    keyed = _when(LIFE) | _when(COMMIT) | of_batch
    none = F.lit("")
    bucket = F.expr(f"(start_us div {words.BUCKET_US}) * {words.BUCKET_US}")
    topic = (
        F.when(of_process, F.col("event"))
        .when(of_bad, F.col("why"))
        .when(of_tally, F.col("file_path"))
        .otherwise(F.col("topic"))
    )
    message = (
        F.when(of_process | of_tally, F.col("boot"))
        .when(of_bad, F.sha2("text", 256))
        .when(_when(COMMIT), none)
        .when(
            of_batch,
            F.concat_ws(
                "/",
                *("event", "start_us", "end_us", "batch_count", "instance", "boot"),
                F.sha2(F.coalesce("offsets", none), 256),
            ),
        )
        .otherwise(F.col("message"))
    )
    epoch = (
        # A sidecar tells its counts again and again; the last word of 5 minutes counts.
        F.when(of_process & (F.col("event") != "status"), F.col("start_us"))
        .when(_when(COMMIT) | of_process | of_tally, bucket)
        .when(_when(LIFE) | of_batch, F.col("epoch"))
        .otherwise(F.lit(0))
    )
    columns = {
        "kind": F.col("kind"),
        "system": F.when(keyed, F.col("system")).otherwise(none),
        "cluster": F.when(of_bad, none).otherwise(F.col("cluster")),
        "topic": topic,
        "topic_id": F.when(_when(LIFE) | of_batch, F.col("topic_id")).otherwise(none),
        "partition": F.when(of_process | of_tally | of_bad, F.col("instance")).otherwise(
            F.col("partition")
        ),
        "message": message,
        "grp": F.when(of_process, F.col("outage_of"))
        .when(of_bad, F.col("boot"))
        .otherwise(F.col("grp")),
        "epoch": epoch.cast("bigint"),
    }
    return [column.alias(name) for name, column in columns.items()]


def _values() -> list[Column]:
    event, of_life = F.col("event"), _when(LIFE)
    start, end = F.col("start_us"), F.col("end_us")
    # A message can be given up without a lease; then the span has no length.
    leased = event.isin(*words.LEASE_EVENTS) & ((event != "dead") | (end > start)) & of_life
    attempt = F.coalesce("attempt", F.lit(0))
    bit = F.expr(f"shiftleft(1L, cast(least(coalesce(attempt, 0), {BITS_MAX}) AS INT))")

    def seen(name: str) -> Column:
        return F.when(of_life & (event == name), bit)

    def extensions(number: int) -> Column:
        here = attempt == number if number <= ATTEMPTS_APART else attempt >= number
        return F.when(of_life & here, F.col("extensions"))

    is_commit, is_status = _when(COMMIT), _when(PROCESS) & (event == "status")
    is_batch = _when(BATCH)
    columns = {
        "publish_us": F.when(of_life, F.col("publish_us")),
        "first_us": F.when(leased, start),
        "last_lease_us": F.when(leased, start),
        "ack_start_us": F.when(of_life & (event == "ack"), start),
        "ack_end_us": F.when(of_life & (event == "ack"), end),
        "dead_us": F.when(of_life & (event == "dead"), end),
        "dead_last_us": F.when(of_life & (event == "dead"), end),
        "redriven_us": F.when(of_life & (event == "redrive"), end),
        # What is wrong with a bad span may be its time.
        "seen_first_us": F.when(_when(BAD), F.col("file_us")).otherwise(start),
        "seen_last_us": F.when(_when(BAD), F.col("file_us")).otherwise(end),
        "attempt_max": F.when(of_life & (attempt > 0), attempt),
        "acks": seen("ack"),
        "retries": seen("retry"),
        "releases": seen("release"),
        "expires": seen("expire"),
        "lates": seen("late"),
        "losts": seen("lost"),
        "send_backs": seen("send_back"),
        **{f"extensions_{n}": extensions(n) for n in range(1, ATTEMPTS_APART + 2)},
        "weight": F.when(of_life, F.col("weight")),
        "trace_id": F.when(of_life, F.col("trace_id")),
        "application": F.when(of_life, F.col("application")),
        "reason": F.when(of_life & (event == "dead"), F.col("reason")).when(is_batch, event),
        "value_1": F.when(is_commit, F.col("commit_lag"))
        .when(is_status, F.col("spans_written"))
        .when(is_batch, F.col("batch_count")),
        "value_2": F.when(is_commit, F.col("commit_offset"))
        .when(is_status, F.col("spans_dropped"))
        .when(is_batch, F.col("batch_again")),
        "text": F.when(_when(BAD), F.col("text")).when(is_batch, F.col("offsets")),
        "file": F.when(_when(BAD), F.col("file")),
        "tally": F.when(_when(TALLY), F.col("tally")),
        "clocks": F.when(of_life, F.col("clocks")),
        "sidecar": F.when(leased, F.nullif(F.col("instance"), F.lit(""))),
    }
    return [columns[name].alias(name) for name in COLUMNS]


def _date() -> Column:
    """The date (UTC) of being published, else of the span: where the row lies, not what it
    means. Of what is bad, the date of its file.
    """
    at = F.when(_when(LIFE), F.coalesce("publish_us", "start_us")).otherwise(F.col("start_us"))
    at = F.when(_when(BAD), F.col("file_us")).otherwise(at)
    return F.date_format(F.timestamp_micros(at), "yyyy-MM-dd")
