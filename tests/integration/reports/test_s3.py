"""Traces and lakes in S3: a real server, real uploads, `ackd report` and spark-submit as users run
them. The report must be that of the same files on the local disk, to the byte.
"""

import json
import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyspark
import pytest

from ackd_reports.render import tables
from ackd_torture.ports import free_port, give_back
from tests.integration.reports.conftest import World
from tests.integration.reports.test_cluster import ENVIRON, SPARK, TARGETS
from tests.integration.reports.test_command import make
from tests.integration.reports.test_idempotence import kill_when
from tests.support.paths import REPO
from tests.support.require import require
from tests.support.s3 import install
from tests.support.s3.server import S3
from tests.support.spark import SESSION, UNCOMPILED

HOUR: Final = "year=2026/month=11/day=02/hour=07"
"""Keys as the collector's exporter for S3 writes them."""
SECRET: Final = "a-secret-of-nobody-else"
CREDENTIALS: Final = {"AWS_ACCESS_KEY_ID": "somebody", "AWS_SECRET_ACCESS_KEY": SECRET}
S3A: Final = "spark.hadoop.fs.s3a"
STEPS: Final = """
import sys
from ackd_reports.command import main

out, targets = sys.argv[1:]
lake = ["--lake", "s3a://lake"]
first = ["make", "s3a://traces/first", *lake, "--targets", targets, "--until", "last"]
cut = ["make", "s3a://traces/cut", "--lake", "s3a://lake/other", "--until", "last"]
for words in (
    ["follow", "s3a://traces/late", *lake, "--once"],
    [*first, "--out", out + "/1"],
    [*first, "--out", out + "/2", "--compact"],
    [*cut, "--out", out + "/cut-1"],
    [*cut, "--out", out + "/cut-2"],
    ["make", "s3a://denied/traces", *lake],
    ["make", "s3a://nowhere/traces", *lake],
    ["make", "s3a://silent/traces", *lake],
):
    print("exit", main(words), flush=True)
"""
CONTEST: Final = """
from concurrent.futures import ThreadPoolExecutor
from pyspark.sql import SparkSession
from ackd_reports.frames import storage, writer

spark = SparkSession.builder.getOrCreate()
lease = "s3a://lake/contested/writer/lease-1.lock"
with ThreadPoolExecutor(8) as pool:
    made = list(pool.map(lambda n: storage.create(spark, lease, str(n), anew=False), range(8)))
print("made by", made.count(True), "holds", storage.text_of(spark, lease) == str(made.index(True)))
with writer.writing(spark, "s3a://lake/other"):
    try:
        with writer.writing(spark, "s3a://lake/other", wait_s=1):
            print("two at a time")
    except OSError as error:
        print("refused:", error)
with writer.writing(spark, "s3a://lake/other", wait_s=1):
    print("then the next", flush=True)
"""


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    """A server with a bucket for traces and one for the lake."""
    require(install.missing())
    require("" if pyspark.__version__.startswith("4.3.") else "the jars are those of PySpark 4.3")
    with S3() as server:
        server.make_bucket("traces")
        server.make_bucket("lake")
        yield server


def settings(url: str) -> dict[str, str]:
    """What docs/operate/reports.md tells to set for a server of one's own, and for few files."""
    return {
        **UNCOMPILED,
        "spark.driver.extraClassPath": f"{install.jars()}/*",
        f"{S3A}.endpoint": url,
        f"{S3A}.endpoint.region": "eu-central-1",
        f"{S3A}.path.style.access": "true",
    }


def test_the_jars_are_for_the_hadoop_that_spark_brings() -> None:
    """Spark and hadoop-aws must have one version of Hadoop."""
    (api,) = (SPARK / "jars").glob("hadoop-client-api-*.jar")
    version = api.stem.rpartition("-")[2]
    if pyspark.__version__.startswith("4."):
        assert f"<hadoop.version>{version}<" in install.POM.read_text()


@pytest.mark.timeout(1200)
def test_killed_run_again_followed_compacted(world: World, s3: S3, tmp_path: Path) -> None:
    """A rename is no single step in S3: a job killed amid its last renames leaves some rows where
    readers see them and no note, and running again loses and doubles nothing.
    """
    files = list(world.made.files)
    random.Random(5).shuffle(files)
    half = len(files) // 2
    for number, path in enumerate(files[:half]):
        s3.put(f"traces/first/{HOUR if number % 2 else 'flat'}/{path.name}", path)

    words = [f"--conf={name}={value}" for name, value in settings(s3.url).items()]
    words += ["s3a://traces/first", "--lake", "s3a://lake", "--out", str(tmp_path / "killed")]
    log = tmp_path / "killed.log"
    # Credentials come from a file here, and from the environment in the runs after it.
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text(
        f"{S3A}.access.key somebody\n{S3A}.secret.key {SECRET}\n"
    )
    environ = {"SPARK_CONF_DIR": str(conf)}
    kill_when(lambda: s3.keys("lake", "partials/date="), words, log, environ)
    assert s3.keys("lake", "partials/date=")
    assert not s3.keys("lake", "taken/")

    for path in files[half:]:
        s3.put(f"traces/late/{path.name}", path)
    # One that is known, under another name.
    s3.put(f"traces/late/again-{files[0].name}", files[0])
    # Cut short, it looks as if its server had gone away; storage has all that there is of it, so
    # it is taken up as far as it is whole, and so it is the next time.
    cut = tmp_path / "cut.jsonl.gz"
    cut.write_bytes(files[0].read_bytes() + files[2].read_bytes()[:5_000])
    s3.put(f"traces/cut/{cut.name}", cut)
    exits, said = submitted(s3, tmp_path)
    assert exits == [0, 3, 3, 0, 0, 1, 1, 1], said
    same = tables.as_json(world.report)
    for out in ("1", "2"):
        assert (tmp_path / out / "report.json").read_text() == same, out
    assert f"{half} files taken up, 0 were known" in said
    assert f"0 files taken up, {half} were known" in said
    assert len(s3.keys("lake", "followed/commits/")) > 0
    assert not [key for key in s3.keys("lake", "partials/") if "/_temporary/" in key]
    assert "1 files taken up, 0 were known, 1 end early" in said
    told_of = [json.loads((tmp_path / f"cut-{n}" / "report.json").read_text()) for n in (1, 2)]
    assert told_of[0] == told_of[1]
    assert told_of[0]["quarantine"]["cut_files"] == [cut.name]
    assert told_of[0]["totals"]["messages"] > 0
    # What stays is the marker of a folder.
    assert not [key for key in s3.keys("lake", "writer/") if key.endswith(".lock")]
    # Of many that make one lease at a time, one has it, and a lake has one writer.
    assert "made by 1 holds True" in said
    assert "refused: s3a://lake/other: process " in said
    assert "two at a time" not in said
    assert "then the next" in said
    assert not [key for key in s3.keys("lake", "other/writer/") if key.endswith(".lock")]
    told = [line for line in said.splitlines() if line.startswith("ackd report: ")]
    reasons = (
        ("s3a://denied", "access was denied"),
        ("s3a://nowhere", "no such bucket"),
        ("s3a://silent", "does not answer"),
    )
    assert len(told) == len(reasons)
    for line, parts in zip(told, reasons, strict=True):
        assert all(each in line for each in parts), line
    assert "Traceback" not in said
    everything = said + log.read_text()
    for path in (path for path in tmp_path.rglob("*") if path.is_file() and path.parent != conf):
        everything += path.read_bytes().decode(errors="replace")
    assert SECRET not in everything


def submitted(s3: S3, folder: Path) -> tuple[list[int], str]:
    """`STEPS` by spark-submit in one JVM; the exit codes, and all that was said."""
    (folder / "main.py").write_text(STEPS + CONTEST)
    (folder / "targets.toml").write_text(TARGETS)
    silent = free_port()
    own = {
        **SESSION,
        **settings(s3.url),
        f"{S3A}.bucket.silent.endpoint": f"http://127.0.0.1:{silent}",
        f"{S3A}.bucket.silent.attempts.maximum": "1",
        f"{S3A}.bucket.silent.retry.limit": "1",
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    with S3(closed=True) as closed:
        own[f"{S3A}.bucket.denied.endpoint"] = closed.url
        command = [str(SPARK / "bin" / "spark-submit"), "--master", "local[2]"]
        command += [word for each in own.items() for word in ("--conf", "=".join(each))]
        command += [str(folder / "main.py"), str(folder), str(folder / "targets.toml")]
        environ = {**os.environ, **ENVIRON, **CREDENTIALS}
        environ["PYTHONPATH"] = str(REPO / "spark_reports")
        done = subprocess.run(
            command, env=environ, capture_output=True, text=True, check=False, cwd=folder
        )
    give_back(silent)
    exits = [int(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("exit ")]
    return exits, done.stdout + done.stderr


@pytest.mark.usefixtures("spark")
def test_a_missing_jar_is_one_sentence(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The session of the other tests has no jars for S3."""
    assert make("s3a://traces", "--out", tmp_path) == 1
    (line,) = [each for each in capfd.readouterr().err.splitlines() if "ackd report:" in each]
    assert line.startswith("ackd report: s3a://traces: Spark lacks a jar")
    assert "docs/operate/reports.md" in line


@pytest.mark.parametrize(
    "setting", ["spark.hadoop.fs.s3a.secret.key=x", "spark.hadoop.fs.s3a.access.key=x", "a=b", "x"]
)
def test_settings_are_sparks_and_no_secrets(
    setting: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is on a command line can be seen by others, so the value is not repeated either."""
    with pytest.raises(SystemExit) as end:
        make("x", "--conf", setting)
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert "--conf" in said
    assert "key=x" not in said.rpartition("error:")[2]
