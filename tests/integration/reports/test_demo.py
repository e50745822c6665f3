"""`make report-demo`: a sidecar under the demo's traffic, its traces, a report of them."""

import json
import os
import shutil
import subprocess

import pytest

from tests.integration.reports.conftest import JAVA_OPTIONS
from tests.support.paths import CACHE, REPO
from tests.support.require import require


@pytest.mark.timeout(600)
def test_demo_traffic_becomes_a_report() -> None:
    """Sixty orders, each acked once, whatever was killed; at least two were handed out again."""
    require("" if shutil.which("java") else "reports need Java 17: java is not in PATH")
    quick = {"JDK_JAVA_OPTIONS": JAVA_OPTIONS, "DISPLAY": "", "WAYLAND_DISPLAY": ""}
    done = subprocess.run(
        ["make", "report-demo"],
        cwd=REPO,
        env={**os.environ, **quick},
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    page = CACHE / "report-demo" / "report.html"
    assert done.stdout.splitlines()[-1] == str(page)
    assert page.exists()
    report = json.loads((CACHE / "report-demo" / "report.json").read_text())
    (group,) = report["groups"]
    assert (group["topic"], group["application"], group["system"]) == ("orders", "demo", "local")
    lost = report["sidecars"]["spans_dropped"]
    assert 60 - lost <= group["acked"] <= 60
    (batches,) = report["batches"]
    assert batches["deliveries"] + lost >= 62
    assert report["sidecars"]["restarts"] == 1
    assert report["promises"][0]["state"] == "kept"
