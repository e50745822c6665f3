"""A lake that lives for years: one writer, what is old goes, what follows is compacted."""

import gzip
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ackd_reports.frames import stream, writer
from ackd_reports.frames.lake import NOTES_MAX, Lake
from ackd_reports.words import DAY_US, HOUR_US
from tests.integration.reports.test_verdicts import message, now_us, write
from tests.support.paths import REPO
from tests.support.wait import wait_until

HOLDS = """
import sys, time
from ackd_reports.frames.writer import writing
with writing(None, sys.argv[1]):
    print("held", flush=True)
    time.sleep(600)
"""


def parts(lake: Path) -> list[Path]:
    """The Parquet files of a lake."""
    return sorted((lake / "partials").rglob("*.parquet"))


def test_what_is_old_goes_and_does_not_come_back(spark: SparkSession, tmp_path: Path) -> None:
    """Dates, notes, and files that are still in the source."""
    now = now_us()
    for days in (0, 3, 40):
        at = now - days * DAY_US
        path = write(tmp_path / "traces" / f"{days}.jsonl.gz", [message("ack", days, at - HOUR_US)])
        os.utime(path, (at / 1e6, at / 1e6))
    lake = str(tmp_path / "lake")
    assert Lake(spark, lake).ingest([str(tmp_path / "traces")]).files == 3
    keeping = Lake(spark, lake, now - 30 * DAY_US)
    assert keeping.forget() == 1
    assert keeping.forget() == 0
    keeping.compact()
    assert keeping.files() == (2, [])
    taken = keeping.ingest([str(tmp_path / "traces")])
    assert (taken.files, taken.known, taken.old) == (0, 2, 1)
    messages = keeping.rows().where("kind = 'life'").select("message").collect()
    assert {row["message"] for row in messages} == {"0", "3"}


def test_following_for_long_leaves_few_files(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each batch is a file and a note; the stream itself makes one of many."""
    monkeypatch.setattr(stream, "TIDIED_AFTER", 4)
    monkeypatch.setattr(stream, "FILES_A_BATCH", 1)
    now, count = now_us(), 2 * NOTES_MAX + 2
    for number in range(count):
        path = tmp_path / "traces" / f"{number:02}.jsonl.gz"
        write(path, [message("ack", number, now - HOUR_US + number)])
        os.utime(path, (now / 1e6 - count + number,) * 2)
    lake = str(tmp_path / "lake")
    stream.follow(spark, str(tmp_path / "traces"), lake, None)
    found = Lake(spark, lake)
    assert found.files() == (count, [])
    assert found.rows().where("kind = 'life'").select("message").distinct().count() == count
    assert len(parts(tmp_path / "lake")) < count
    assert len(list((tmp_path / "lake" / "taken").glob("part-*"))) <= NOTES_MAX + 4
    # What was followed is known to others.
    assert found.ingest([str(tmp_path / "traces")]).known == count


def test_a_file_cut_short_does_not_end_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    now = now_us()
    torn = write(tmp_path / "traces" / "a.jsonl.gz", [message("ack", 1, now - HOUR_US)])
    whole = torn.read_bytes()
    torn.write_bytes(whole + gzip.compress(b"x" * 9_999)[:-9])
    write(tmp_path / "traces" / "b.jsonl.gz", [message("ack", 2, now - HOUR_US)])
    lake = str(tmp_path / "lake")
    stream.follow(spark, str(tmp_path / "traces"), lake, None)
    assert Lake(spark, lake).files() == (2, ["a.jsonl.gz"])
    rows = Lake(spark, lake).rows().where("kind = 'life'").select("message").collect()
    assert {row["message"] for row in rows} == {"1", "2"}


def test_writers_take_turns(spark: SparkSession, tmp_path: Path) -> None:
    """A second run waits until the first one is done, and says who it is if that takes too long;
    one that was killed keeps nobody waiting.
    """
    lake = str(tmp_path / "lake")
    environ = {**os.environ, "PYTHONPATH": str(REPO / "spark_reports")}
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDS, lake], env=environ, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with (
            pytest.raises(OSError, match=f"process {holder.pid} of .* is writing it"),
            writer.writing(spark, lake, wait_s=0.1),
        ):
            pytest.fail("two at a time")
        source = write(tmp_path / "a.jsonl.gz", [message("ack", 1, now_us() - HOUR_US)])
        waiting = threading.Thread(target=Lake(spark, lake).ingest, args=([str(source)],))
        waiting.start()
        time.sleep(1)  # nothing to wait for: it must not go on
        assert waiting.is_alive()
        assert parts(tmp_path / "lake") == []
    finally:
        holder.kill()
        holder.wait()
        if holder.stdout is not None:
            holder.stdout.close()
    wait_until(lambda: not waiting.is_alive(), "the other run goes on", timeout_s=120)
    assert parts(tmp_path / "lake")
