"""Each target is fuzzed for some seconds; `make fuzz` does it for as long as you like."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz import TARGETS
from tests.fuzz.__main__ import command, environ
from tests.support.paths import REPO

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
SECONDS = 4
RUNS_MIN = 50


@pytest.mark.parametrize("target", TARGETS)
def test_no_input_is_found_that_is_read_otherwise(target: str) -> None:
    done = subprocess.run(
        command(target, SECONDS),
        cwd=REPO,
        env=environ(),
        check=False,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=150,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    runs = re.search(r"Done (\d+) runs", done.stderr)
    assert runs is not None, done.stderr[-3000:]
    assert int(runs[1]) >= RUNS_MIN


def test_a_planted_mistake_is_found(tmp_path: Path) -> None:
    """The fuzzer finds what is wrong behind a condition that no seed meets."""
    planted = tmp_path / "planted.py"
    planted.write_text(
        "import sys, atheris\n"
        "sys.argv += ['-runs=400000', '-max_total_time=100', '-max_len=32', '-seed=1']\n"
        "@atheris.instrument_func\n"
        "def run(data):\n"
        "    if data[:1] == b'a':\n"
        "        if data[1:2] == b'c':\n"
        "            assert data[2:3] != b'k'\n"
        "atheris.Setup(sys.argv, run)\n"
        "atheris.Fuzz()\n"
    )
    done = subprocess.run(
        [sys.executable, planted],
        cwd=tmp_path,
        env=environ(),
        check=False,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=150,
    )
    assert "AssertionError" in done.stderr + done.stdout, done.stderr[-3000:]
