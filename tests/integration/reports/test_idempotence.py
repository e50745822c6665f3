"""The same traces give the same bytes, however they come: I8 of reports, in a word."""

import random
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ackd_reports.frames import stream
from ackd_reports.frames.lake import Lake
from ackd_reports.frames.reading import events, lines
from ackd_reports.render import tables
from tests.integration.reports.conftest import World, report


def test_twice_out_of_order_in_halves_with_a_killed_job(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    """The second half first, one more copy of some files, compaction, a job killed while it
    commits.
    """
    files = list(world.made.files)
    random.Random(3).shuffle(files)
    half = len(files) // 2
    lake = Lake(spark, str(tmp_path / "lake"))
    lake.ingest([str(path) for path in files[half:]])
    # A job is killed while it commits: some of its files are there, and no note of what it took.
    before = set((tmp_path / "lake" / "partials").rglob("*.parquet"))
    lake.add(events(lines(spark, [str(path) for path in files[:half]])))
    killed = sorted(set((tmp_path / "lake" / "partials").rglob("*.parquet")) - before)
    for number, path in enumerate(killed):
        if number % 2:
            path.unlink()
            (path.parent / f".{path.name}.crc").unlink(missing_ok=True)
    leftover = tmp_path / "lake" / "partials" / "_temporary" / "0" / "_temporary" / "attempt_1"
    leftover.mkdir(parents=True)
    shutil.copy(killed[0], leftover / "part-torn.parquet")
    # Repaired by running again, with files that come once more under other names.
    again = tmp_path / "again"
    again.mkdir()
    for path in files[::3]:
        shutil.copy(path, again / f"z-{path.name}")
    taken = lake.ingest([str(world.folder), str(again)])
    assert (taken.files, taken.known) == (half + len(files[::3]), len(files) - half)
    assert lake.compact(files_max=1) > 0
    assert lake.ingest([str(world.folder), str(again)]).files == 0
    assert tables.as_json(report(lake, tmp_path / "out")) == tables.as_json(world.report)


def test_compaction_that_was_killed_before_it_removed(
    spark: SparkSession, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Merged rows beside those that they were merged from."""
    shutil.copytree(world.lake, tmp_path / "lake")
    lake = Lake(spark, str(tmp_path / "lake"))

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("ackd_reports.frames.lake._delete", killed)
        with pytest.raises(KeyboardInterrupt):
            lake.compact(files_max=0)
    assert tables.as_json(report(lake, tmp_path / "out")) == tables.as_json(world.report)


def test_a_stream_tells_the_same_as_a_batch(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    """In two runs, the second of which finds what came since."""
    source, lake = tmp_path / "source", str(tmp_path / "lake")
    source.mkdir()
    files = world.made.files
    for part in (files[::2], files[1::2]):
        for path in part:
            shutil.copy(path, source)
        stream.follow(spark, str(source), lake, None)
    found = report(Lake(spark, lake), tmp_path / "out")
    assert tables.as_json(found) == tables.as_json(world.report)
