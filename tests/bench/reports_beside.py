"""The counts and percentiles of a report by DuckDB or Polars, for comparison.

`python -m tests.bench.reports_beside ENGINE INPUT PATH`: ENGINE `duckdb` or `polars`; INPUT `json`
(trace files) or `parquet` (partial lives of a lake). Prints one JSON object: messages, acked, and
exact percentiles of each duration, as the report has them. By group, in five minutes and in all,
the same grouping as there; what the report has beyond that (promises, lists) is left out.

Neither is a dependency: `pip install --target .cache/bench/engines duckdb polars`.
"""
# ruff: noqa: S608 -- these statements hold nothing from outside

import importlib
import json
import sys
from pathlib import Path
from typing import Any

from ackd_reports.words import BUCKET_US, LEASE_EVENTS
from tests.support.paths import CACHE

ENGINES = CACHE / "bench" / "engines"
SHARES = (0.5, 0.95, 0.99, 0.999)
NAMED = {
    "event": "ackd.event",
    "system": "messaging.system",
    "topic": "messaging.destination.name",
    "partition": "messaging.destination.partition.id",
    "grp": "messaging.consumer.group.name",
    "kafka_offset": "messaging.kafka.offset",
    "own_offset": "ackd.offset",
    "published": "ackd.publish.unix_ms",
    "attempt": "ackd.delivery.attempt",
}
_VALUE = '"value" STRUCT("stringValue" VARCHAR, "intValue" VARCHAR, "doubleValue" DOUBLE)'
_ATTRIBUTES = f'STRUCT("key" VARCHAR, {_VALUE})[]'
_SPAN = (
    f'STRUCT("startTimeUnixNano" VARCHAR, "endTimeUnixNano" VARCHAR, "attributes" {_ATTRIBUTES})'
)
_COLUMNS = f'{{"resourceSpans": \'STRUCT("scopeSpans" STRUCT("spans" {_SPAN}[])[])[]\'}}'
_DURATIONS = {
    "wait": "first_us - publish_us",
    "work": "ack_end_us - ack_start_us",
    "lease_to_ack": "ack_end_us - first_us",
    "time_to_ack": "ack_end_us - publish_us",
}
_LEASED = ", ".join(f"'{each}'" for each in LEASE_EVENTS)
_EVENTS_SQL = f"""
WITH spans AS (
  SELECT unnest(s.spans) AS s FROM (
    SELECT unnest(r."scopeSpans") AS s FROM (
      SELECT unnest("resourceSpans") AS r
      FROM read_json(?, format='newline_delimited', columns={_COLUMNS},
        ignore_errors=true, maximum_object_size=67108864)))
), named AS (
  SELECT s."startTimeUnixNano"::BIGINT // 1000 AS start_us,
    s."endTimeUnixNano"::BIGINT // 1000 AS end_us,
    map_from_entries(list_transform(s.attributes, lambda x: struct_pack(k := x."key",
      v := coalesce(x."value"."stringValue", x."value"."intValue")))) AS a
  FROM spans
), events AS (
  SELECT start_us, end_us, {", ".join(f"a['{old}'] AS {new}" for new, old in NAMED.items())}
  FROM named
), life AS (
  SELECT system, topic, "partition", coalesce(kafka_offset, own_offset) AS message, grp,
    min(published::BIGINT * 1000) AS publish_us,
    min(CASE WHEN event IN ({_LEASED}) AND (event <> 'dead' OR end_us > start_us)
      THEN start_us END) AS first_us,
    min(CASE WHEN event = 'ack' THEN start_us END) AS ack_start_us,
    min(CASE WHEN event = 'ack' THEN end_us END) AS ack_end_us,
    max(attempt::BIGINT) AS attempt_max
  FROM events WHERE attempt IS NOT NULL GROUP BY ALL
)
"""
_PARTIALS_SQL = """
WITH life AS (
  SELECT system, cluster, topic, topic_id, "partition", message, grp, epoch,
    min(publish_us) AS publish_us, min(first_us) AS first_us, min(ack_start_us) AS ack_start_us,
    min(ack_end_us) AS ack_end_us, max(attempt_max) AS attempt_max, bit_or(retries) AS retries,
    bit_or(expires) AS expires, min(dead_us) AS dead_us, min(application) AS application
  FROM read_parquet(?, hive_partitioning=true) WHERE kind = 'life' GROUP BY ALL
)
"""


def by_duckdb(kind: str, path: str) -> dict[str, Any]:
    """All of it in one statement each: by group and five minutes, then percentiles."""
    duckdb: Any = importlib.import_module("duckdb")
    db = duckdb.connect()
    db.execute("SET threads=2")
    life = _EVENTS_SQL if kind == "json" else _PARTIALS_SQL
    files = f"{path}/*.jsonl.gz" if kind == "json" else f"{path}/partials/*/*/*.parquet"
    db.execute(f"CREATE TEMP TABLE lives AS {life} SELECT * FROM life", [files])
    buckets = db.execute(
        f"SELECT system, topic, grp, publish_us // {BUCKET_US} AS at, count(*), count(ack_end_us)"
        " FROM lives GROUP BY ALL"
    ).fetchall()
    wanted = ", ".join(f"quantile_disc({each}, {list(SHARES)})" for each in _DURATIONS.values())
    db.execute(f"SELECT system, topic, grp, {wanted} FROM lives GROUP BY ALL").fetchall()
    (found,) = db.execute(f"SELECT {wanted} FROM lives").fetchall()
    return {
        "messages": sum(row[4] for row in buckets),
        "acked": sum(row[5] for row in buckets),
        "durations": dict(zip(_DURATIONS, (list(each) for each in found), strict=True)),
    }


def by_polars(kind: str, path: str) -> dict[str, Any]:
    """The same in lazy frames."""
    pl: Any = importlib.import_module("polars")
    if kind == "json":
        message = "Polars stops at the first broken line, which trace files may have"
        raise SystemExit(message)
    lives = _polars_partials(pl, path)
    col = pl.col
    durations = {
        "wait": col("first_us") - col("publish_us"),
        "work": col("ack_end_us") - col("ack_start_us"),
        "lease_to_ack": col("ack_end_us") - col("first_us"),
        "time_to_ack": col("ack_end_us") - col("publish_us"),
    }
    frame = lives.with_columns(**durations, at=col("publish_us") // BUCKET_US).collect()
    buckets = frame.group_by("system", "topic", "grp", "at").agg(
        messages=pl.len(), acked=col("ack_end_us").count()
    )
    wanted = [
        col(name).quantile(share, "higher").alias(f"{name}-{share}")
        for name in durations
        for share in SHARES
    ]
    frame.group_by("system", "topic", "grp").agg(wanted)
    row = frame.select(wanted).row(0, named=True)
    return {
        "messages": int(buckets["messages"].sum()),
        "acked": int(buckets["acked"].sum()),
        "durations": {name: [row[f"{name}-{share}"] for share in SHARES] for name in durations},
    }


def _polars_partials(pl: Any, path: str) -> Any:
    col = pl.col
    key = ("system", "cluster", "topic", "topic_id", "partition", "message", "grp", "epoch")
    least = ("publish_us", "first_us", "ack_start_us", "ack_end_us", "dead_us", "application")
    rows = pl.scan_parquet(f"{path}/partials/**/*.parquet", hive_partitioning=True)
    return (
        rows.filter(col("kind") == "life")
        .group_by(*key)
        .agg(
            *(col(name).min() for name in least),
            col("attempt_max").max(),
            *(col(name).bitwise_or() for name in ("retries", "expires")),
        )
    )


def main() -> int:
    """Compute; prints one JSON object."""
    sys.path.insert(0, str(ENGINES))
    engine, kind, path = sys.argv[1:4]
    by = {"duckdb": by_duckdb, "polars": by_polars}[engine]
    print(json.dumps(by(kind, str(Path(path).absolute()))))  # noqa: T201  what a benchmark is for
    return 0


if __name__ == "__main__":
    sys.exit(main())
