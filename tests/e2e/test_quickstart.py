"""docs/quickstart.md, from the installation on, and the wheel of README.md.

Everything is typed as it stands, in a copy of the sources. Only addresses are put in, and pip is
kept from the index: what ackd depends on comes from the environment of this run.
"""

import json
import os
import re
import shutil
import subprocess
import sysconfig
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from ackd_torture.child import Child
from ackd_torture.parts import ready
from ackd_torture.ports import free_port
from tests.integration.http.test_page import BLOCK, shape, values
from tests.support.paths import REPO, remove_run_dir, run_dir
from tests.support.require import require

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PAGE = (REPO / "docs/quickstart.md").read_text()
SOURCES = ("sidecar", "adapters", "spark_reports", "requirements")
FILES = ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE")


@pytest.fixture
def clone() -> Iterator[Path]:
    """The sources, as in a clone."""
    path = run_dir("quickstart")
    for name in SOURCES:
        shutil.copytree(REPO / name, path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(REPO / name, path)
    yield path
    remove_run_dir(path)


def type_in(command: str, clone: Path, **settings: str) -> str:
    """Run a command of a page; what it prints."""
    packages = sysconfig.get_paths()["purelib"]
    own = {
        "PIP_NO_INDEX": "1",
        "PIP_NO_DEPS": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # pip reads this as "no isolation"
        "PYTHONPATH": packages,
        "PATH": f"{sysconfig.get_path('scripts')}:{os.environ['PATH']}",
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=clone,
        env={**os.environ, **own, **settings},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


def test_the_page_from_the_installation_to_the_ack(clone: Path) -> None:
    require(
        ""
        if shutil.which("curl")
        else "the page's commands are curl's: tests/support/apt.sh installs it"
    )
    blocks = [(found[1], found[2]) for found in BLOCK.finditer(PAGE)]
    commands = [text for kind, text in blocks if kind == "sh"]
    install, serve, *rest = commands
    type_in(install, clone)
    [config] = [text for kind, text in blocks if kind == "toml"]
    assert tomllib.loads(config)["subscriptions"]["orders"]["topics"] == ["orders"]
    (clone / "ackd.toml").write_text(config)
    port, admin_port = free_port(), free_port()
    settings = {
        "ACKD_STATE_DIR": str(clone / "state"),
        "ACKD_SERVER__LISTEN": f"127.0.0.1:{port}",
        "ACKD_SERVER__ADMIN_LISTEN": f"127.0.0.1:{admin_port}",
        "PYTHONPATH": sysconfig.get_paths()["purelib"],
    }
    argv = ["env", "-C", str(clone), *(f"{k}={v}" for k, v in settings.items()), *serve.split()]
    child = Child("quickstart", argv, clone / "log")
    printed = ""
    shown = iter([text for kind, text in blocks if kind == "json"])
    try:
        child.start()
        child.wait_until(lambda: ready(f"http://127.0.0.1:{admin_port}"), "it is ready", 90)
        for number, command in enumerate(rest):
            if number == len(rest) - 1:
                child.kill()
                child.start()
                child.wait_until(lambda: ready(f"http://127.0.0.1:{admin_port}"), "it is back", 90)
            printed = type_in(command.replace("localhost:7080", f"127.0.0.1:{port}"), clone)
            expected = values(next(shown))
            assert [shape(each) for each in values(printed)] == [shape(each) for each in expected]
        assert json.loads(printed) == {"messages": []}
    finally:
        child.stop()


def test_the_wheel_of_the_readme(clone: Path) -> None:
    lines = re.findall(r"^python3 -m pip wheel .*$", (REPO / "README.md").read_text(), re.MULTILINE)
    assert len(lines) == 1
    type_in(lines[0], clone)
    [wheel] = (clone / "dist").glob("ackd-*.whl")
    type_in(f"python3 -m venv venv && venv/bin/pip install {wheel}", clone)
    assert "0.1.0" in type_in("venv/bin/ackd version", clone)
