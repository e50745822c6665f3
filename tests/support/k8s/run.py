"""The tests on a real Kubernetes, on two clusters at a time, as they wait more than they work.

`python -m tests.support.k8s.run [OPTIONS OF PYTEST]`. With a path among them it is one run. Each
has a network of its own: addresses of pods are addresses of this machine in there, ports are free,
and nothing is left behind.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.support.paths import REPO
from tests.support.side_by_side import BESIDE, Runs, chosen

FOLDER = "k8s"
BREAKING = ("k8s/test_webhook.py", "k8s/test_page.py")
"""They install the chart for each of their tests, and take as long as all others."""


def lanes() -> dict[str, list[str]]:
    """Files relative to `tests`."""
    files = [f"{FOLDER}/{path.name}" for path in (REPO / "tests" / FOLDER).glob("test_*.py")]
    others = sorted(file for file in files if file not in BREAKING)
    return {"k8s 1": [*BREAKING], "k8s 2": others}


def own_network() -> list[str]:
    """The command before a command."""
    return ["unshare", *([] if os.geteuid() == 0 else ["--map-root-user"]), "--net"]


def main(options: Sequence[str]) -> int:
    """Run them; the exit status."""
    if chosen(options):
        command = [*own_network(), sys.executable, "-m", "pytest", *options]
        return subprocess.run(command, cwd=REPO, check=False).returncode
    with (
        tempfile.TemporaryDirectory() as folder,
        Runs(options, Path(folder), own_network()) as runs,
    ):
        runs.start(lanes(), BESIDE)()
    return runs.verdict()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
