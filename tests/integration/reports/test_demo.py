"""`make report-demo`: a sidecar under the demo's traffic, beside a made-up shop, and a report."""

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
    (group,) = [each for each in report["groups"] if each["application"] == "demo"]
    assert (group["topic"], group["system"]) == ("orders", "local")
    # Spans that were lost with a sidecar that was killed; of the made-up ones none is.
    lost = report["completeness"]["spans_dropped"]
    assert 60 - lost <= group["acked"] <= 60
    (batches,) = [each for each in report["batches"] if each["system"] == "local"]
    assert batches["deliveries"] + lost >= 62
    assert report["promises"][0]["state"] == "kept"
    states = {each["name"]: each["state"] for each in report["promises"][1:]}
    assert states["demo orders in time"] == "kept"
    assert states["shop in time"] == "broken"
    # What a first look should show: why, a drawing of each subscription, what is stuck.
    assert report["verdict"] == "broken"
    assert [each for each in report["promises"] if each.get("causes") and each["typical"]]
    assert len([each for each in report["subscriptions"] if each["series"]]) > 2
    assert report["stuck"]
    assert report["sidecars"]["outages"]
    shown = page.read_text()
    assert "https://jaeger.example/trace/" in shown
    assert 'id="over-time"' in shown
