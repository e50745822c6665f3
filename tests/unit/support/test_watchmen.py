"""The watchmen in tests/conftest.py catch what they are for: each is run on a planted offender."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.paths import REPO
from tests.support.require import REQUIRE_ALL

BLOCKS = """
import time
from pathlib import Path
import ackd

async def test_it() -> None:
    names = {"time": time}
    where = Path(ackd.__file__).with_name("planted.py")
    exec(compile("def wait():\\n    time.sleep(0.01)\\n", str(where), "exec"), names)
    names["wait"]()
"""
ORPHAN = """
import subprocess

def test_it() -> None:
    child = subprocess.Popen(["sleep", "30"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    child.returncode = 0  # so that Python forgets it in silence
    print("left", child.pid)
"""
HANGS = """
import pytest, time

@pytest.mark.timeout(1)
def test_it() -> None:
    time.sleep(20)
"""
WARNS = """
import warnings

def test_it() -> None:
    warnings.warn("old")
"""
LEAKS = """
import gc, socket

def test_it() -> None:
    socket.socket()
    gc.collect()
"""
LACKS = """
from tests.support.require import require

def test_it() -> None:
    require("no such server")
"""
UNKNOWN_MARK = """
import pytest

@pytest.mark.slwo
def test_it() -> None:
    pass
"""


def run(folder: Path, text: str, **env: str) -> tuple[int, str]:
    """Run one planted test file under the project's settings and watchmen."""
    (folder / "test_planted.py").write_text(text)
    settings: list[str | Path] = [
        "-c",
        REPO / "pyproject.toml",
        "--rootdir",
        folder,
        "-p",
        "tests.conftest",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *settings, "-p", "no:cacheprovider", "-s", folder],
        cwd=REPO,
        env={**os.environ, "PYTHONPATH": str(REPO), REQUIRE_ALL: "0", **env},
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (BLOCKS, "Blocking call to time.sleep"),
        (HANGS, "Timeout"),
        (WARNS, "UserWarning: old"),
        (LEAKS, "unclosed <socket.socket"),
        (UNKNOWN_MARK, "'slwo' not found"),
    ],
    ids=["blocks the loop", "hangs", "warns", "leaks", "unknown mark"],
)
def test_offender_fails(text: str, says: str, tmp_path: Path) -> None:
    status, output = run(tmp_path, text)
    assert status != 0, output
    assert says in output


def test_orphan_fails_the_run(tmp_path: Path) -> None:
    status, output = run(tmp_path, ORPHAN)
    left = next(line for line in output.splitlines() if "left " in line).split()[-1]
    psutil.Process(int(left)).kill()
    assert status != 0, output
    assert "processes left behind: [['sleep', '30']]" in output


def test_missing_server_skips_or_fails(tmp_path: Path) -> None:
    status, output = run(tmp_path, LACKS)
    assert status == 0
    assert "SKIPPED [1]" in output
    status, output = run(tmp_path, LACKS, **{REQUIRE_ALL: "1"})
    assert status != 0
    assert "no such server" in output
