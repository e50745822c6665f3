"""Trace files plain, as gzip and as Zstandard tell the same."""

import gzip
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession

from ackd_reports.frames.lake import Lake
from tests.integration.reports.conftest import World, report

KINDS = ("", ".gz", ".zst")


def packed(spark: SparkSession, text: bytes, kind: str) -> bytes:
    """As a file with this ending holds it; Zstandard by the library that Spark brings."""
    if kind == ".zst":
        context: Any = spark.sparkContext
        return bytes(context._jvm.com.github.luben.zstd.Zstd.compress(bytearray(text)))
    return gzip.compress(text) if kind else text


@pytest.mark.skipif(pyspark.__version__ < "4", reason="Spark 3.5 reads no .zst")
def test_files_packed_in_any_way_give_one_report(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    source = tmp_path / "traces"
    source.mkdir()
    for number, path in enumerate(sorted(world.folder.glob("*.jsonl.gz"))):
        text = gzip.decompress(path.read_bytes())
        kind = KINDS[number % len(KINDS)]
        (source / f"{path.name.removesuffix('.gz')}{kind}").write_bytes(packed(spark, text, kind))
    assert {path.suffix for path in source.iterdir()} == {".jsonl", ".gz", ".zst"}
    lake = Lake(spark, str(tmp_path / "lake"))
    assert lake.ingest([str(source)]).files == len(world.made.files)
    found = report(lake, tmp_path / "out")
    assert {**found, "quarantine": None} == {**world.report, "quarantine": None}
    assert found["quarantine"]["counts"] == world.report["quarantine"]["counts"]
