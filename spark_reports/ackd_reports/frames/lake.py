"""The lake: a folder of Parquet with partial rows by date, into which trace files are taken up.

    partials/date=2026-11-21/kind=life/part-*.parquet
    taken/part-*                     names, sizes and times of files that were taken up
    writer/                          who writes it, where it is no local folder

Nothing here needs a transaction. Rows are only added, and a row twice is a row once (`partials`),
so a run that died half-way is repaired by running again. Compaction adds merged rows and then
removes the files that it read; between the two everything is there twice, which does no harm. One
run at a time writes a lake, and others wait for it (`writer`); reading is always possible except in
the moment of that removal.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from ackd_reports.frames import partials, reading, storage
from ackd_reports.frames.failures import is_broken_file
from ackd_reports.frames.plain_rows import frame_of
from ackd_reports.frames.storage import TraceFile
from ackd_reports.frames.writer import writing
from ackd_reports.plain import iso

FILES_A_DATE_MAX: Final = 8
"""A date with more files of one kind than this is compacted."""
NOTES_MAX: Final = 8
"""More files of notes than this become one."""


@dataclass(frozen=True, slots=True)
class IngestResult:
    """What an ingest did. `cut` are files that end in the middle; what is whole in them counts.
    `old` are older than what the lake keeps.
    """

    files: int
    known: int
    cut: tuple[str, ...]
    old: int = 0


class Lake:
    """A lake at an address that Hadoop understands: a local folder, `s3a://...`, `hdfs://...`.

    `keep_from_us`: nothing older is taken up, and `forget` removes what is there of it.
    """

    def __init__(self, spark: SparkSession, root: str, keep_from_us: int = 0) -> None:
        self._spark = spark
        self._root = root.rstrip("/")
        self.partials = f"{self._root}/partials"
        self._taken = f"{self._root}/taken"
        self.gold = f"{self._root}/gold"
        self._keep_from_us = keep_from_us

    @property
    def elsewhere(self) -> bool:
        """Whether it is no local folder."""
        return reading.elsewhere(self._root)

    @property
    def executors_here(self) -> bool:
        """Whether what executors write to a local folder can be read here for sure."""
        return str(self._spark.sparkContext.master).startswith("local")

    def rows(self, since_date: str | None = None) -> DataFrame:
        """Partial rows from a date (`yyyy-mm-dd`) on."""
        try:
            frame = self._spark.read.schema(partials.SCHEMA).parquet(self.partials)
        except AnalysisException as error:
            _only_missing(error)
            frame = frame_of(self._spark, [], partials.SCHEMA)
        # Columns that a lake of an older version lacks are null in the rows that it wrote.
        frame = frame.withColumn("topic_id", F.coalesce("topic_id", F.lit("")))
        return frame if since_date is None else frame.where(F.col("date") >= since_date)

    def ingest(self, sources: Sequence[str]) -> IngestResult:
        """Take up the files of `sources` (files and folders) that are not in the lake yet.

        Files that end in the middle are taken up as far as they are whole. Raises `OSError` for a
        source that does not exist.
        """
        found = sorted({each for source in sources for each in storage.files(self._spark, source)})
        return self.take(found)

    def take(self, found: Sequence[TraceFile]) -> IngestResult:
        """As `ingest`, of files that were found already."""
        young = [each for each in found if each.changed_ms * 1000 >= self._keep_from_us]
        with writing(self._spark, self._root):
            known = self._known()
            new = [each for each in young if each not in known]
            cut = self._add(new) if new else ()
        return IngestResult(len(new), len(young) - len(new), cut, len(found) - len(young))

    def files(self) -> tuple[int, list[str]]:
        """How many files were taken up, and the names of those that end in the middle.

        Of a file that came again with another size or time, what was seen last counts.
        """
        latest = self._latest()
        cut = {row["name"].rpartition("/")[2] for row in latest if row["cut"]}
        return len(latest), sorted(cut)

    def compact(self, files_max: int = FILES_A_DATE_MAX) -> int:
        """Merge the dates that have many files, and the notes; how many folders were merged."""
        done = 0
        with writing(self._spark, self._root):
            for date in storage.folders(self._spark, self.partials, "date="):
                for folder in storage.folders(self._spark, date, "kind="):
                    found = storage.files(self._spark, folder, (".parquet",))
                    if len(found) > files_max:
                        self._merge([each.name for each in found])
                        done += 1
            self._merge_notes()
        return done

    def forget(self) -> int:
        """Remove the dates that are older than what is kept; how many there were.

        A date has what was published on it. What comes later of such a message is not known then.
        """
        oldest = iso(self._keep_from_us)[:10]
        gone = 0
        with writing(self._spark, self._root):
            for folder in storage.folders(self._spark, self.partials, "date="):
                if folder.rpartition("date=")[2] < oldest:
                    storage.delete(self._spark, folder)
                    gone += 1
        return gone

    def _add(self, new: Sequence[TraceFile]) -> tuple[str, ...]:
        """Append what files tell, and note them; those that end in the middle."""
        names = [each.name for each in new]
        cut = tuple(name for name in names if storage.is_cut(name))
        try:
            self._append(names, cut)
        except (Py4JJavaError, PySparkException) as error:
            if not is_broken_file(error):
                raise
            cut += tuple(name for name in names if name not in cut and self._is_torn(name))
            here = tuple(name for name in names if not reading.elsewhere(name))
            if not (cut or here):
                raise
            # Nothing that lies here ends a run, whatever is wrong with it.
            self._append(names, (*cut, *here))
        self._note(new, cut)
        return cut

    def _is_torn(self, name: str) -> bool:
        if reading.elsewhere(name):
            return storage.is_torn(self._spark, name)
        return storage.is_damaged(name)

    def _append(self, names: Sequence[str], torn: Sequence[str]) -> None:
        """Harmless when it is told again. Of files in `torn` what is whole is read."""
        rows = partials.partials(reading.events(reading.lines(self._spark, names, torn)))
        rows.write.mode("append").partitionBy("date", "kind").parquet(self.partials)

    def _merge(self, old: Sequence[str]) -> None:
        read = self._spark.read.option("basePath", self.partials).schema(partials.SCHEMA)
        whole = partials.merged_by_date(read.parquet(*old)).coalesce(1)
        whole.write.mode("append").partitionBy("date", "kind").parquet(self.partials)
        for name in old:
            storage.delete(self._spark, name)

    def _merge_notes(self) -> None:
        """One file of notes, without those of files that would not be taken up any more."""
        if not storage.exists(self._spark, self._taken):
            return
        old = storage.files(self._spark, self._taken, (".json",))
        kept = [row for row in self._latest() if row["changed_ms"] * 1000 >= self._keep_from_us]
        if len(old) <= NOTES_MAX and len(kept) == len(self._notes()):
            return
        self._write_notes([row.asDict() for row in kept])
        for each in old:
            storage.delete(self._spark, each.name)

    def _latest(self) -> list[Row]:
        latest: dict[str, Row] = {}
        for row in sorted(self._notes(), key=lambda each: (each["changed_ms"], each["size"])):
            latest[row["name"]] = row
        return [latest[name] for name in sorted(latest)]

    def _notes(self) -> list[Row]:
        try:
            return self._spark.read.schema(_TAKEN).json(self._taken).distinct().collect()
        except AnalysisException as error:
            _only_missing(error)
            return []

    def _known(self) -> set[TraceFile]:
        return {TraceFile(row["name"], row["size"], row["changed_ms"]) for row in self._notes()}

    def _note(self, files: Sequence[TraceFile], cut: Sequence[str]) -> None:
        self._write_notes([{**asdict(each), "cut": each.name in cut} for each in files])

    def _write_notes(self, rows: Sequence[Mapping[str, object]]) -> None:
        frame_of(self._spark, rows, _TAKEN).write.mode("append").json(self._taken)


def kept_from_us(keep_us: int | None) -> int:
    """Since when a lake keeps what it has, if it keeps it for so long; 0: for ever."""
    return 0 if keep_us is None else max(0, time.time_ns() // 1000 - keep_us)


_TAKEN: Final = "name STRING, size BIGINT, changed_ms BIGINT, cut BOOLEAN"


def _only_missing(error: AnalysisException) -> None:
    """Raise it again unless it says that a path does not exist: a lake that is new."""
    if "PATH_NOT_FOUND" not in str(error):
        raise error
