"""The same traces give the same bytes, however they come (I8 of reports, in a word).

One lake suffers everything, as each report costs seconds: what is wrong at any step shows at the
end, where every figure must be that of a lake to which nothing happened.
"""

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession

from ackd_reports.frames import stream
from ackd_reports.frames.lake import Lake
from ackd_reports.render import tables
from tests.integration.reports.conftest import World, report
from tests.support.spark import JAVA_OPTIONS
from tests.support.wait import wait_until

KILLED_S = 600.0


@pytest.mark.timeout(900)
def test_killed_streamed_repeated_compacted(
    spark: SparkSession, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job killed while it writes, run again; a stream in two runs; files out of order and twice;
    a compaction killed before it removed anything, then a whole one.
    """
    files = list(world.made.files)
    random.Random(3).shuffle(files)
    third = len(files) // 3
    lake = Lake(spark, str(tmp_path / "lake"))
    partials = tmp_path / "lake" / "partials"

    half_done = killed(files[:third], tmp_path)
    assert half_done, "the job was killed before it wrote"
    assert not (tmp_path / "lake" / "taken").exists()

    source = tmp_path / "source"
    for part in (files[third::2], files[third + 1 :: 2]):
        source.mkdir(exist_ok=True)
        for path in part:
            shutil.copy(path, source)
        stream.follow(spark, str(source), str(tmp_path / "lake"), None)

    again = tmp_path / "again"
    again.mkdir()
    for path in files[::4]:
        shutil.copy(path, again / f"z-{path.name}")
    both = [str(path) for path in files[:third]] + [str(again)]
    assert lake.ingest(both).files == third + len(files[::4])
    assert (lake.ingest(both).files, lake.ingest(both).known) == (0, third + len(files[::4]))

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("ackd_reports.frames.storage.delete", dies)
        with pytest.raises(KeyboardInterrupt):
            lake.compact(files_max=0)
    before = sum(1 for _ in partials.rglob("*.parquet"))
    assert lake.compact(files_max=1) > 0
    assert sum(1 for _ in partials.rglob("*.parquet")) < before
    assert tables.as_json(report(lake, tmp_path / "out")) == tables.as_json(world.report)


def killed(files: Sequence[Path], folder: Path) -> list[Path]:
    """Start `ackd report make` and kill it once it has written something; what it left."""

    def written() -> list[Path]:
        found = []
        with suppress(FileNotFoundError):  # files move while we look
            found = [path for path in (folder / "lake").rglob("part-*") if path.stat().st_size]
        return found

    words = [*map(str, files), "--lake", str(folder / "lake"), "--out", str(folder / "k")]
    kill_when(written, words, folder / "killed.log")
    return written()


def kill_when(
    written: Callable[[], object],
    words: Sequence[str],
    log: Path,
    environ: Mapping[str, str] | None = None,
) -> None:
    """Start `ackd report make` on two cores and kill it, Java too, when `written` says so."""
    command = [sys.executable, "-m", "ackd", "report", "make", "--master", "local[2]", *words]
    small = {"JDK_JAVA_OPTIONS": JAVA_OPTIONS, "ACKD_REPORT_MEMORY": "512m"}
    with log.open("wb") as out:
        job = subprocess.Popen(
            command,
            env={**os.environ, **small, **(environ or {})},
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
        try:
            wait_until(
                lambda: written() or job.poll() is not None,
                "the job writes",
                timeout_s=KILLED_S,
                interval_s=0.005,
            )
            assert job.poll() is None, log.read_text()
        finally:
            # Java first: without its Python it would end in good order and remove what it wrote.
            children = psutil.Process(job.pid).children(recursive=True)
            for each in reversed(children):
                with suppress(psutil.Error):
                    each.kill()
            job.kill()
            job.wait()
            psutil.wait_procs(children)
