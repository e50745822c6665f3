"""From lines of OTLP JSON to one row an event, bad lines and bad spans among them with a reason.

Every number is read as text, for OTLP JSON writes 64-bit numbers as text and others do not; what is
no number is then a reason, not a failure. Unknown fields are ignored, as OTLP asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- as everywhere with Spark

from ackd_reports import words

_VALUE = "STRUCT<stringValue: STRING, intValue: STRING, doubleValue: STRING, boolValue: STRING>"
_ATTRIBUTES = f"ARRAY<STRUCT<key: STRING, value: {_VALUE}>>"
_BATCH_MAX: Final = 1_000_000
"""Most messages of one batch; a sidecar writes 10,000 at most."""
_RANGES: Final = r"^\d{1,18}(-\d{1,18})?(,\d{1,18}(-\d{1,18})?)*$"
_SPAN = (
    "STRUCT<traceId: STRING, startTimeUnixNano: STRING, endTimeUnixNano: STRING,"
    f" attributes: {_ATTRIBUTES}>"
)
CORRUPT: Final = "_corrupt"
LINE_SCHEMA: Final = (
    f"resourceSpans ARRAY<STRUCT<resource: STRUCT<attributes: {_ATTRIBUTES}>,"
    f" scopeSpans: ARRAY<STRUCT<spans: ARRAY<{_SPAN}>>>>>,"
    f" resourceMetrics STRING, resourceLogs STRING, {CORRUPT} STRING"
)
"""One line; `resourceMetrics` and `resourceLogs` only to know a collector's other lines."""

BAD: Final = "bad"
LIFE: Final = "life"
COMMIT: Final = "commit"
BATCH: Final = "batch"
PROCESS: Final = "process"
TALLY: Final = "tally"
QUARANTINE_CHARS: Final = 2_000
"""How much of a bad line is kept."""
AHEAD_US: Final = words.HOUR_US
"""A file is written after what it tells of. A span that is later by more than this has a wrong
clock, as copying a file only makes it younger.
"""
PAST_US: Final = 366 * words.DAY_US
"""A span that is older than its file by more than this has one as well, a clock that began anew at
1970 say; so has a message that claims to have been published then.
"""
LATEST_US: Final = 4_102_444_800 * words.MICRO
"""The year 2100: later than any clock; sums with it stay within 64 bits."""
TOO_LATE: Final = "span is later than its file"
TOO_EARLY: Final = "span is a year older than its file"
PUBLISH_WRONG: Final = 1
"""Bit of `clocks`: a time of publishing was left out."""


def lines(spark: SparkSession, paths: Sequence[str], torn: Sequence[str] = ()) -> DataFrame:
    """The lines of files and folders, compressed or not; hidden names (`.`, `_`) are left out.

    Of those in `torn`, what is whole is read; of local files in zstd too, which nobody looks
    through. Of others that cannot be read to their end the read fails: they must not look like
    fewer messages, and elsewhere a server may only have gone away.
    """
    unsure = {path for path in paths if not elsewhere(path) and path.endswith(".zst")} | set(torn)
    lenient = [path for path in paths if path in unsure]
    strict = [path for path in paths if path not in unsure]
    frames = []
    for group, ignores in ((lenient, "true"), (strict, "false")):
        if group:
            read = spark.read.schema(LINE_SCHEMA).options(**OPTIONS, ignoreCorruptFiles=ignores)
            frames.append(with_file(read.json(group)))
    return reduce(DataFrame.unionByName, frames)


def elsewhere(address: str) -> bool:
    """Whether it is no local file or folder."""
    return "://" in address and not address.startswith("file:")


FILES: Final = {
    "recursiveFileLookup": "true",
    "pathGlobFilter": "*.{jsonl,json,jsonl.gz,json.gz,jsonl.zst,json.zst}",
}
OPTIONS: Final = {**FILES, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}


def with_file(frame: DataFrame) -> DataFrame:
    """Add the name and path of the file that a line comes from, and when it was written."""
    written = F.unix_micros("_metadata.file_modification_time")
    return frame.withColumns(
        {
            "file": F.col("_metadata.file_name"),
            "file_path": F.col("_metadata.file_path"),
            "file_us": written,
        }
    )


_FILE: Final = ("file", "file_path", "file_us")


def events(frame: DataFrame) -> DataFrame:
    """Rows of `lines` -> one row an event, with `kind` and, where that is `bad`, a `why`."""
    corrupt = F.col(CORRUPT).isNotNull()
    nothing = (
        F.col("resourceSpans").isNull()
        & F.col("resourceMetrics").isNull()
        & F.col("resourceLogs").isNull()
    )
    line_why = F.when(corrupt, F.lit("line is no OTLP JSON")).when(
        nothing, F.lit("line has no spans")
    )
    groups = (
        # The spans of a line that is partly readable are not used: it is wholly in quarantine.
        frame.select(
            F.explode_outer(F.when(~corrupt, F.col("resourceSpans"))).alias("r"),
            line_why.alias("line_why"),
            F.substring(F.col(CORRUPT), 1, QUARANTINE_CHARS).alias("line"),
            *_FILE,
        )
        .select(
            _map("r.resource.attributes").alias("res"),
            F.explode_outer("r.scopeSpans").alias("s"),
            "line_why",
            "line",
            *_FILE,
        )
        .select("res", _with_tally().alias("spans"), "line_why", "line", *_FILE)
    )
    spans = groups.select(
        "res", F.explode_outer("spans").alias("span"), "line_why", "line", *_FILE
    ).withColumn("a", _once(_map("span.attributes")))
    known = spans.where(F.col("line_why").isNotNull() | F.col("a")[words.EVENT].isNotNull())
    return _judged(_columns(known))


def _with_tally() -> Column:
    """The spans of one run of a sidecar, and one more that says how many they are and lies amid
    them in time: what came can then be held against what the run says it wrote.
    """
    middle = "s.spans[cast(size(s.spans) div 2 AS INT)]"
    tally = f"""named_struct(
        'traceId', '',
        'startTimeUnixNano', {middle}.endTimeUnixNano,
        'endTimeUnixNano', {middle}.endTimeUnixNano,
        'attributes', array(
            named_struct('key', '{words.EVENT}', 'value', {_text_value(f"'{TALLY}'")}),
            named_struct('key', '{words.TALLY}', 'value', {_text_value("string(size(s.spans))")})
        ))"""
    is_run = F.col("res")[words.BOOT].isNotNull() & (F.size("s.spans") > 0)
    return F.when(is_run, F.expr(f"concat(s.spans, array({tally}))")).otherwise(F.col("s.spans"))


def _text_value(text: str) -> str:
    nothing = ", ".join(f"'{name}Value', string(null)" for name in ("int", "double", "bool"))
    return f"named_struct('stringValue', {text}, {nothing})"


def _map(attributes: str) -> Column:
    """Attributes as a map of texts; an attribute of another type is an empty text."""
    return F.map_from_entries(
        F.transform(
            F.filter(F.col(attributes), lambda each: each["key"].isNotNull()),
            lambda each: F.struct(
                each["key"],
                F.coalesce(
                    each["value"]["stringValue"],
                    each["value"]["intValue"],
                    each["value"]["doubleValue"],
                    F.lit(""),
                ),
            ),
        )
    )


def _once(value: Column) -> Column:
    """A value that Spark computes once a row. What rows are chosen by, it would compute before it
    chooses, and once more afterwards, but for what is said to differ each time.
    """
    return F.when(F.monotonically_increasing_id() >= 0, value)


def _text(name: str) -> Column:
    return F.coalesce(F.col("a")[name], F.lit(""))


def _number(name: str) -> str:
    return f"try_cast(a['{name}'] AS BIGINT)"


def _columns(spans: DataFrame) -> DataFrame:
    message = F.coalesce(*[F.col("a")[name] for name in words.OFFSETS], F.lit(""))
    weight = f"try_cast(a['{words.WEIGHT}'] AS DOUBLE)"
    return spans.select(
        "line_why",
        *_FILE,
        "line",
        "span",
        _text(words.EVENT).alias("event"),
        F.coalesce(F.col("span.traceId"), F.lit("")).alias("trace_id"),
        F.expr("try_cast(span.startTimeUnixNano AS BIGINT) div 1000").alias("start_us"),
        F.expr("try_cast(span.endTimeUnixNano AS BIGINT) div 1000").alias("end_us"),
        _text(words.SYSTEM).alias("system"),
        F.coalesce(F.col("a")[words.CLUSTER], F.col("res")[words.CLUSTER], F.lit("default")).alias(
            "cluster"
        ),
        _text(words.TOPIC).alias("topic"),
        _text(words.PARTITION).alias("partition"),
        message.alias("message"),
        _text(words.GROUP).alias("grp"),
        F.expr(f"coalesce({_number(words.EPOCH)}, 0)").alias("epoch"),
        F.nullif(_text(words.APPLICATION), F.lit("")).alias("application"),
        F.nullif(_text(words.REASON), F.lit("")).alias("reason"),
        F.coalesce(F.col("a")[words.TOPIC_ID], F.lit("")).alias("topic_id"),
        F.expr(_number(words.ATTEMPT)).alias("attempt"),
        F.expr(f"coalesce({_number(words.EXTENSIONS)}, 0)").alias("extensions"),
        F.expr(f"{_number(words.PUBLISHED)} * 1000").alias("published_us"),
        F.expr(f"cast(round(coalesce({weight}, 1.0) * {words.MICRO}) AS BIGINT)").alias("weight"),
        _text(words.OUTAGE_OF).alias("outage_of"),
        F.col("a")[words.BATCH_OFFSETS].alias("offsets"),
        F.expr(_number(words.TALLY)).alias("tally"),
        F.expr(_number(words.BATCH_COUNT)).alias("batch_count"),
        F.expr(f"coalesce({_number(words.BATCH_AGAIN)}, 0)").alias("batch_again"),
        F.expr(_number(words.COMMIT_LAG)).alias("commit_lag"),
        F.expr(_number(words.COMMIT_OFFSET)).alias("commit_offset"),
        F.expr(_number(words.SPANS_WRITTEN)).alias("spans_written"),
        F.expr(_number(words.SPANS_DROPPED)).alias("spans_dropped"),
        F.coalesce(F.col("res")[words.INSTANCE], F.lit("")).alias("instance"),
        F.coalesce(F.col("res")[words.BOOT], F.lit("")).alias("boot"),
    )


def _countable() -> Column:
    """Whether a batch says how many messages it has, and names no more of them than that."""
    first, last = (f"try_cast(element_at(split(each, '-'), {at}) AS BIGINT)" for at in (1, -1))
    size = "aggregate(split(offsets, ','), 0L, (sum, each) ->"
    size += f" sum + 1 + least(abs({last} - {first}), {_BATCH_MAX}L))"
    named = F.col("offsets").rlike(_RANGES) & F.expr(f"{size} BETWEEN 1 AND batch_count")
    counted = F.col("batch_count").between(0, _BATCH_MAX) & (F.col("batch_again") >= 0)
    return F.coalesce(counted & (F.col("offsets").isNull() | named), F.lit(False))


def _clocked(rows: DataFrame) -> DataFrame:
    """Leave out a time of publishing that cannot be: what else is told of the message counts. A
    tally whose span has no usable time lies where its file does.
    """
    published, written = F.col("published_us"), F.col("file_us")
    wrong = (published > written + AHEAD_US) | (published < written - PAST_US)
    outside = (F.col("end_us") > written + AHEAD_US) | (F.col("end_us") < written - PAST_US)
    lost = F.coalesce(outside, F.lit(True)) & (F.col("event") == TALLY)
    return rows.withColumns(
        {
            "publish_us": F.when(~wrong, published),
            "clocks": F.when(wrong, F.lit(PUBLISH_WRONG).cast("bigint")),
            "start_us": F.when(lost, written).otherwise(F.col("start_us")),
            "end_us": F.when(lost, written).otherwise(F.col("end_us")),
        }
    ).drop("published_us")


def _judged(rows: DataFrame) -> DataFrame:
    """Add `kind` and `why`; leave out what no figure comes from."""
    event = F.col("event")
    is_message = event.isin(*words.MESSAGE_EVENTS)
    numbered = event.isin(*words.LEASE_EVENTS, "extend", "late")
    unsure = F.col("topic").eqNullSafe("") | F.col("message").eqNullSafe("")
    is_tally = event == TALLY
    wild = (F.col("end_us") > LATEST_US) | (F.col("start_us") < 0)
    why = (
        F.when(F.col("line_why").isNotNull(), F.col("line_why"))
        .when(
            F.col("start_us").isNull() | F.col("end_us").isNull(), F.lit("span without its times")
        )
        .when(wild | (F.col("end_us") > F.col("file_us") + AHEAD_US), F.lit(TOO_LATE))
        .when(F.col("start_us") < F.col("file_us") - PAST_US, F.lit(TOO_EARLY))
        .when(F.col("end_us") < F.col("start_us"), F.lit("span ends before it starts"))
        .when(is_message & (unsure | (F.col("grp") == "")), F.lit("span without its message"))
        .when(
            numbered & (F.col("attempt").isNull() | (F.col("attempt") < 1)),
            F.lit("span without an attempt"),
        )
        .when(F.col("weight").isNull() | (F.col("weight") < words.MICRO), F.lit("weight below 1"))
        .when(
            ~is_message
            & ~event.isin(
                *words.PROCESS_EVENTS, *words.BATCH_EVENTS, *words.OTHER_EVENTS, "commit", TALLY
            ),
            F.lit("unknown event"),
        )
        .when(event.isin(*words.BATCH_EVENTS) & ~_countable(), F.lit("batch without its messages"))
    )
    is_batch = event.isin(*words.BATCH_EVENTS)
    kind = (
        F.when(is_tally, F.lit(TALLY))
        .when(F.col("why").isNotNull(), F.lit(BAD))
        .when(is_message, F.lit(LIFE))
        .when(is_batch, F.lit(BATCH))
        .when(event == "commit", F.lit(COMMIT))
        .when(event.isin(*words.PROCESS_EVENTS), F.lit(PROCESS))
    )
    judged = _clocked(rows).withColumn("why", why).withColumn("kind", kind)
    found = judged.where(F.col("kind").isNotNull())
    of_span = F.substring(F.to_json("span"), 1, QUARANTINE_CHARS)
    text = F.when(F.col("line_why").isNotNull(), F.coalesce("line", F.lit(""))).otherwise(of_span)
    # Of good spans nobody asks for the text, and JSON takes long to write.
    named = found.withColumn("text", F.when(F.col("kind") == BAD, text))
    return named.drop("line_why", "line", "span")
