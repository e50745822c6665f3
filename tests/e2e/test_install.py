"""What README.md and docs/operate/top.md tell to type to install ackd: in a clone, from an index.

Versions are those of the locks, so that a new release of somebody else's library breaks no test.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.paths import REPO, remove_run_dir, run_dir
from tests.tidy.words import tracked_files

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

README = (REPO / "README.md").read_text()
TOP = (REPO / "docs/operate/top.md").read_text()
INSTALL_S_MAX = 400

Type = Callable[[str], subprocess.CompletedProcess[str]]


@pytest.fixture
def clone() -> Iterator[Path]:
    """What git tracks, as it is now."""
    path = run_dir("install")
    for file in tracked_files(REPO):
        target = path / "clone" / file.relative_to(REPO)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target, follow_symlinks=False)
    yield path / "clone"
    remove_run_dir(path)


@pytest.fixture
def type_in(clone: Path) -> Type:
    """Types a command in the clone, where a new virtual environment is active."""
    venv = clone.parent / "venv"
    subprocess.run([sys.executable, "-m", "venv", venv], check=True, timeout=120)
    locked = re.findall(
        r"^(\S+==[^\\\n]+)", (clone / "requirements/dev.lock").read_text(), re.MULTILINE
    )
    versions = clone.parent / "versions.txt"
    versions.write_text("\n".join(locked))
    own = {
        "PATH": f"{venv / 'bin'}:/usr/local/bin:/usr/bin:/bin",
        "PIP_CONSTRAINT": str(versions),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_COMPILE": "1",  # most of it is never loaded
    }
    settings = [f"{name}={value}" for name, value in own.items()]

    def typed(command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["env", "-u", "PYTHONPATH", *settings, "bash", "-euc", command],
            cwd=clone,
            capture_output=True,
            text=True,
            timeout=INSTALL_S_MAX,
            check=False,
        )

    return typed


def worked(done: subprocess.CompletedProcess[str]) -> str:
    """What it printed."""
    assert done.returncode == 0, (done.args, done.stdout, done.stderr)
    return done.stdout


def test_the_command_with_the_client_of_a_broker_and_then_with_tools(
    clone: Path, type_in: Type
) -> None:
    [install] = re.findall(r"`(pip install '\.\[kafka\]')`", README)
    worked(type_in(install))
    assert "0.1.0" in worked(type_in("ackd version"))
    assert "librdkafka" in worked(
        type_in("python -c 'import confluent_kafka as k; print(\"librdkafka\", k.libversion())'")
    )
    [config] = re.findall(r"^```toml\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    (clone / "ackd.toml").write_text(config)
    assert "orders" in worked(type_in("ackd check --config ackd.toml"))
    lacking = type_in("ackd top --once")
    assert lacking.returncode == 2
    [tools] = re.findall(r"^pip install .*sidecar/tools$", TOP, re.MULTILINE)
    assert tools in lacking.stderr
    assert f"`{tools}`" in README
    worked(type_in(tools))
    for command in ("top", "torture", "demo"):
        assert f"usage: ackd {command}" in worked(type_in(f"ackd {command} --help"))
    worked(type_in("python -c 'import textual'"))
