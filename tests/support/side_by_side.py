"""Every test, in three runs of pytest side by side, as most of their time is waiting for servers.

`python -m tests.support.side_by_side [OPTIONS OF PYTEST]`. With a path among them (or none of the
tests chosen in a part) it is one run, or fewer. What a run prints is shown in one piece.
"""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from tests.support.paths import REPO

NOTHING_CHOSEN = 5
PARTS = {
    "faults": ("chaos", "e2e"),
    "servers": ("contract", "integration"),
    "the rest": ("property", "simulation", "tidy", "unit"),
}


def missing(tests: Path) -> set[str]:
    """Folders with tests that no part has."""
    known = {folder for folders in PARTS.values() for folder in folders}
    return {path.relative_to(tests).parts[0] for path in tests.rglob("test_*.py")} - known


def verdict(codes: Sequence[int]) -> int:
    """One exit status for all: a part in which nothing was chosen does not count beside others."""
    chosen = [code for code in codes if code != NOTHING_CHOSEN]
    return max(chosen, default=NOTHING_CHOSEN)


def _start(
    folders: Sequence[str], options: Sequence[str], out: IO[bytes]
) -> subprocess.Popen[bytes]:
    paths = [f"tests/{folder}" for folder in folders]
    command = [sys.executable, "-m", "pytest", *options, *paths]
    return subprocess.Popen(command, cwd=REPO, stdout=out, stderr=subprocess.STDOUT)


def main(options: Sequence[str]) -> int:
    """Run them; the exit status."""
    if any(Path(REPO, option.partition("::")[0]).exists() for option in options):
        command = [sys.executable, "-m", "pytest", *options]
        return subprocess.run(command, cwd=REPO, check=False).returncode
    if unknown := missing(REPO / "tests"):
        sys.exit(f"no part of {__file__} has tests/{', tests/'.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory() as folder:
        runs = []
        for name, folders in PARTS.items():
            log = Path(folder, name)
            with log.open("wb") as out:
                runs.append((name, log, _start(folders, options, out)))
        try:
            for name, log, run in runs:
                run.wait()
                print(f"== {name}", flush=True)  # noqa: T201  what a runner is for
                sys.stdout.buffer.write(log.read_bytes())
                sys.stdout.flush()
        finally:
            for _, _, run in runs:
                run.terminate()
        for name, log, run in runs:
            lines = log.read_text(errors="replace").splitlines() or [""]
            print(f"== {name}: exit {run.returncode}: {lines[-1].strip('= ')}")  # noqa: T201
        return verdict([run.returncode for _, _, run in runs])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
