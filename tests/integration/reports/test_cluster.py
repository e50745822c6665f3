"""The same job on a Spark cluster: a master and two workers, each a process, by `spark-submit`."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pyspark
import pytest

from ackd_reports.render import tables
from ackd_torture.ports import free_port
from tests.integration.reports.conftest import World
from tests.support.paths import REPO
from tests.support.spark import JAVA_OPTIONS
from tests.support.wait import wait_until

SPARK = Path(pyspark.__file__).parent
TARGETS = """
[[target]]
name = "in time"
measure = "time_to_ack"
objective = 0.99
within = "5s"

[[target]]
name = "orders delivered"
measure = "delivered"
objective = 0.999
topic = "orders"
"""
MAIN = "from ackd_reports.command import main\nraise SystemExit(main())\n"
ENVIRON = {
    "SPARK_HOME": str(SPARK),
    "SPARK_LOCAL_IP": "127.0.0.1",
    "SPARK_DAEMON_MEMORY": "256m",
    "PYSPARK_PYTHON": sys.executable,
    "JDK_JAVA_OPTIONS": JAVA_OPTIONS,
}
STARTED_S = 200.0


@contextmanager
def part(log: Path, what: str, *words: str) -> Iterator[None]:
    """A daemon of Spark; at the end it and all that it started are gone."""
    command = [str(SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{what}", *words]
    with log.open("wb") as out:
        started = subprocess.Popen(
            command, env={**os.environ, **ENVIRON}, cwd=log.parent, stdout=out, stderr=out
        )
    try:
        yield
    finally:
        root = psutil.Process(started.pid)
        family = [*root.children(recursive=True), root]
        for each in family:
            each.kill()
        started.wait()
        psutil.wait_procs(family)


@pytest.mark.timeout(900)
def test_a_cluster_tells_the_same_as_one_machine(world: World, tmp_path: Path) -> None:
    """To the byte; the package travels as `--py-files`, as docs/operate/reports.md says."""
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    package = shutil.make_archive(
        str(tmp_path / "ackd"), "zip", REPO / "spark_reports", "ackd_reports"
    )
    (tmp_path / "main.py").write_text(MAIN)
    (tmp_path / "targets.toml").write_text(TARGETS)
    with ExitStack() as stack:
        log = tmp_path / "master.log"
        here = ("--host", "127.0.0.1", "--webui-port", "0")
        stack.enter_context(part(log, "master.Master", *here, "--port", str(port)))
        for number in range(2):
            own = tmp_path / f"worker-{number}"
            own.mkdir()
            sized = (*here, "--cores", "1", "--memory", "700m", "--work-dir", str(own), master)
            stack.enter_context(part(own / "log", "worker.Worker", *sized))
        wait_until(
            lambda: log.read_text().count("Registering worker") == 2,
            "both workers are in",
            timeout_s=STARTED_S,
        )
        settings = {
            "spark.executor.memory": "512m",
            "spark.driver.memory": "512m",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": "2",
            "spark.ui.enabled": "false",
        }
        command = [str(SPARK / "bin" / "spark-submit"), "--master", master]
        command += [word for each in settings.items() for word in ("--conf", "=".join(each))]
        command += ["--py-files", package, str(tmp_path / "main.py"), "make", str(world.folder)]
        command += [
            "--until",
            "last",
            "--out",
            str(tmp_path / "out"),
            "--targets",
            str(tmp_path / "targets.toml"),
        ]
        done = subprocess.run(
            command, env={**os.environ, **ENVIRON}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 3, done.stderr
        used = {path.parent for path in tmp_path.glob("worker-*/app-*")}
    assert len(used) == 2
    assert (tmp_path / "out" / "report.json").read_text() == tables.as_json(world.report)
