"""The lake: a folder of Parquet with partial rows by date, into which trace files are taken up.

    partials/date=2026-11-21/kind=life/part-*.parquet
    taken/part-*                     names, sizes and times of files that were taken up

Nothing here needs a transaction. Rows are only added, and a row twice is a row once (`partials`),
so a run that died half-way is repaired by running again. Compaction adds merged rows and then
removes the files that it read; between the two everything is there twice, which does no harm. One
run at a time writes a lake; reading is always possible except in the moment of that removal.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from ackd_reports.frames import partials, reading

ENDINGS: Final = tuple(
    f".{kind}{packed}" for kind in ("jsonl", "json") for packed in ("", ".gz", ".zst")
)
FILES_A_DATE_MAX: Final = 8
"""A date with more files of one kind than this is compacted."""
_READ_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True, order=True)
class TraceFile:
    """A file by what tells a changed one apart; `name` is its whole address."""

    name: str
    size: int
    changed_ms: int


@dataclass(frozen=True, slots=True)
class IngestResult:
    """What an ingest did. `cut` are files that end in the middle; what is whole in them counts."""

    files: int
    known: int
    cut: tuple[str, ...]


class Lake:
    """A lake at an address that Hadoop understands: a local folder, `s3a://...`, `hdfs://...`."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self._spark = spark
        self._root = root.rstrip("/")
        self.partials = f"{self._root}/partials"
        self._taken = f"{self._root}/taken"
        self.gold = f"{self._root}/gold"

    @property
    def elsewhere(self) -> bool:
        """Whether it is no local folder."""
        return reading.elsewhere(self._root)

    @property
    def executors_here(self) -> bool:
        """Whether what executors write to a local folder can be read here for sure."""
        return str(self._spark.sparkContext.master).startswith("local")

    def rows(self, since_date: str | None = None) -> DataFrame:
        """Partial rows from a date (`yyyy-mm-dd`) on, and those that have no date."""
        try:
            frame = self._spark.read.schema(partials.SCHEMA).parquet(self.partials)
        except AnalysisException as error:
            _only_missing(error)
            frame = _frame(self._spark, [], partials.SCHEMA)
        # Columns that a lake of an older version lacks are null in the rows that it wrote.
        frame = frame.withColumn("topic_id", F.coalesce("topic_id", F.lit("")))
        return frame if since_date is None else frame.where(F.col("date") >= since_date)

    def ingest(self, sources: Sequence[str]) -> IngestResult:
        """Take up the files of `sources` (files and folders) that are not in the lake yet.

        Files that end in the middle are taken up as far as they are whole. Raises `OSError` for a
        source that does not exist.
        """
        found = sorted({each for source in sources for each in _files(self._spark, source)})
        known = self._known()
        new = [each for each in found if each not in known]
        cut: tuple[str, ...] = ()
        if new:
            names = [each.name for each in new]
            cut = tuple(name for name in names if _is_cut(name))
            self.add(reading.events(reading.lines(self._spark, names)))
            self._note(new, cut)
        return IngestResult(len(new), len(found) - len(new), cut)

    def files(self) -> tuple[int, list[str]]:
        """How many files were taken up, and the names of those that end in the middle.

        Of a file that came again with another size or time, what was seen last counts.
        """
        latest: dict[str, Row] = {}
        for row in sorted(self._notes(), key=lambda each: (each["changed_ms"], each["size"])):
            latest[row["name"]] = row
        cut = {name.rpartition("/")[2] for name, row in latest.items() if row["cut"]}
        return len(latest), sorted(cut)

    def add(self, events: DataFrame) -> None:
        """Append what events tell. Harmless when they are told again."""
        rows = partials.partials(events)
        rows.write.mode("append").partitionBy("date", "kind").parquet(self.partials)

    def compact(self, files_max: int = FILES_A_DATE_MAX) -> int:
        """Merge the dates that have many files; how many folders were merged."""
        done = 0
        for folder in _leaves(self._spark, self.partials):
            old = [each.name for each in _files(self._spark, folder, (".parquet",))]
            if len(old) <= files_max:
                continue
            read = self._spark.read.option("basePath", self.partials).schema(partials.SCHEMA)
            whole = partials.merged_by_date(read.parquet(*old)).coalesce(1)
            whole.write.mode("append").partitionBy("date", "kind").parquet(self.partials)
            for name in old:
                _delete(self._spark, name)
            done += 1
        return done

    def _notes(self) -> list[Row]:
        try:
            return self._spark.read.schema(_TAKEN).json(self._taken).distinct().collect()
        except AnalysisException as error:
            _only_missing(error)
            return []

    def _known(self) -> set[TraceFile]:
        return {TraceFile(row["name"], row["size"], row["changed_ms"]) for row in self._notes()}

    def _note(self, files: Sequence[TraceFile], cut: Sequence[str]) -> None:
        rows = [{**asdict(each), "cut": each.name in cut} for each in files]
        _frame(self._spark, rows, _TAKEN).write.mode("append").json(self._taken)


_TAKEN: Final = "name STRING, size BIGINT, changed_ms BIGINT, cut BOOLEAN"


def _only_missing(error: AnalysisException) -> None:
    """Raise it again unless it says that a path does not exist: a lake that is new."""
    if "PATH_NOT_FOUND" not in str(error):
        raise error


def _frame(spark: SparkSession, rows: Sequence[Mapping[str, object]], schema: str) -> DataFrame:
    """Rows as a frame. `createDataFrame` would start Python workers on the executors for this."""
    listed = F.from_json(F.lit(json.dumps(rows)), f"ARRAY<STRUCT<{schema}>>")
    return spark.range(1, numPartitions=1).select(F.inline(listed))


def _hadoop(spark: SparkSession, address: str) -> tuple[Any, Any]:
    """Hadoop's file system for an address, and the address as its type; local and remote alike."""
    context: Any = spark.sparkContext
    path = context._jvm.org.apache.hadoop.fs.Path(address)  # noqa: SLF001 -- the only way there
    return path.getFileSystem(context._jsc.hadoopConfiguration()), path  # noqa: SLF001


def _files(spark: SparkSession, address: str, endings: Sequence[str] = ENDINGS) -> list[TraceFile]:
    """Files at an address with one of the endings, hidden ones left out; `OSError` if it is
    none.
    """
    system, path = _hadoop(spark, address)
    if not system.exists(path):
        raise FileNotFoundError(f"{address}: no such file or folder")
    listed = system.listFiles(path, True)
    found = []
    while listed.hasNext():
        status = listed.next()
        name = status.getPath().getName()
        if name.endswith(tuple(endings)) and not name.startswith((".", "_")):
            whole = status.getPath().toString()
            if "/_temporary/" not in whole:
                found.append(TraceFile(whole, status.getLen(), status.getModificationTime()))
    return sorted(found)


def _leaves(spark: SparkSession, address: str) -> list[str]:
    """The folders `date=.../kind=...` of the partial rows."""
    system, path = _hadoop(spark, address)
    if not system.exists(path):
        return []
    dates = [each for each in system.listStatus(path) if each.getPath().getName()[:5] == "date="]
    return sorted(
        kind.getPath().toString()
        for date in dates
        for kind in system.listStatus(date.getPath())
        if kind.getPath().getName().startswith("kind=")
    )


def _delete(spark: SparkSession, address: str) -> None:
    system, path = _hadoop(spark, address)
    system.delete(path, False)


def _is_cut(address: str) -> bool:
    """Whether a local gzip file ends in the middle. Spark reads on without a word (section 4 of
    docs/operate/reports.md); files elsewhere and zstd are not looked through.
    """
    name = address.removeprefix("file:")
    path = Path("/" + name.lstrip("/"))
    if not name.endswith(".gz") or not address.startswith(("file:", "/")):
        return False
    try:
        with gzip.open(path) as stream:
            while stream.read(_READ_BYTES):
                pass
    except (EOFError, zlib.error, gzip.BadGzipFile):
        return True
    return False
