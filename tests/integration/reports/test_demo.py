"""`make report-demo`: a sidecar under the demo's traffic, its traces, a report of them."""

import json
import os
import shutil
import signal
import subprocess
from contextlib import suppress
from tempfile import TemporaryFile

import pytest

from tests.support.paths import CACHE, REPO
from tests.support.require import require
from tests.support.spark import JAVA_OPTIONS

ENDED_S = 540.0
MAKES = {"ARGS", "MAKEFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "MFLAGS"}


@pytest.mark.timeout(600)
def test_demo_traffic_becomes_a_report() -> None:
    """Sixty orders, each acked once, whatever was killed; at least two were handed out again."""
    require("" if shutil.which("java") else "reports need Java 17: java is not in PATH")
    # What `make test` was given is not for another make.
    kept = {name: each for name, each in os.environ.items() if name not in MAKES}
    quick = {"JDK_JAVA_OPTIONS": JAVA_OPTIONS, "DISPLAY": "", "WAYLAND_DISPLAY": ""}
    with TemporaryFile("w+") as out:
        job = subprocess.Popen(
            ["make", "report-demo"],
            cwd=REPO,
            env={**kept, **quick},
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = job.wait(ENDED_S)
        finally:
            with suppress(ProcessLookupError):  # sidecar, workers and Spark with it
                os.killpg(job.pid, signal.SIGKILL)
            job.wait()
        out.seek(0)
        said = out.read()
    assert code == 0, said
    page = CACHE / "report-demo" / "report.html"
    assert str(page) in said.splitlines()
    assert page.exists()
    report = json.loads((CACHE / "report-demo" / "report.json").read_text())
    (group,) = report["groups"]
    assert (group["topic"], group["application"], group["system"]) == ("orders", "demo", "local")
    lost = report["completeness"]["spans_dropped"]
    assert 60 - lost <= group["acked"] <= 60
    (batches,) = report["batches"]
    assert batches["deliveries"] + lost >= 62
    assert report["sidecars"]["restarts"] == 1
    assert report["promises"][0]["state"] == "kept"
