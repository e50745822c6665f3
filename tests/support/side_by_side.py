"""Every test: two runs of pytest side by side, as much of their time is waiting for servers, and
afterwards a third one with nothing beside it.

`python -m tests.support.side_by_side [OPTIONS OF PYTEST]`. With a path among them (or none of the
tests chosen in a part) it is one run, or fewer. What a run prints is shown in one piece. The third
run has the fault tests, and what else judges by the clock (marked `alone`): neighbours on the
machine would decide them.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from tests.support.paths import REPO

NOTHING_CHOSEN = 5
PARTS = {
    "integration": ("integration",),
    "the rest": ("contract", "property", "simulation", "tidy", "unit"),
}
QUIET = ("chaos", "e2e")
TURN = "ACKD_TEST_TURN"
BESIDE, ALONE = "beside", "alone"


def keeps(turn: str | None, test: Path, *, alone: bool) -> bool:
    """Whether a run keeps a test (`test`: its file, `alone`: so marked); one by hand keeps all."""
    quiet = alone or any(REPO / "tests" / folder in test.parents for folder in QUIET)
    return turn is None or quiet == (turn == ALONE)


def missing(tests: Path) -> set[str]:
    """Folders with tests that no part has."""
    known = {*QUIET, *(folder for folders in PARTS.values() for folder in folders)}
    return {path.relative_to(tests).parts[0] for path in tests.rglob("test_*.py")} - known


def verdict(codes: Sequence[int]) -> int:
    """One exit status for all: a part in which nothing was chosen does not count beside others."""
    chosen = [code for code in codes if code != NOTHING_CHOSEN]
    return max(chosen, default=NOTHING_CHOSEN)


def _start(
    folders: Sequence[str], options: Sequence[str], turn: str, out: IO[bytes]
) -> subprocess.Popen[bytes]:
    paths = [f"tests/{folder}" for folder in folders]
    command = [sys.executable, "-m", "pytest", *options, *paths]
    environ = {**os.environ, TURN: turn}
    return subprocess.Popen(command, cwd=REPO, env=environ, stdout=out, stderr=subprocess.STDOUT)


def _turn(
    parts: Mapping[str, Sequence[str]], options: Sequence[str], turn: str, logs: Path
) -> list[tuple[str, int]]:
    """Run all parts at once, show what each printed; a closing line and a status for each."""
    runs = []
    for name, folders in parts.items():
        log = logs / name
        with log.open("wb") as out:
            runs.append((name, log, _start(folders, options, turn, out)))
    ends = []
    try:
        for name, log, run in runs:
            run.wait()
            print(f"== {name}", flush=True)  # noqa: T201  what a runner is for
            text = log.read_bytes()
            sys.stdout.buffer.write(text)
            sys.stdout.flush()
            last = (text.decode(errors="replace").splitlines() or [""])[-1].strip("= ")
            ends.append((f"== {name}: exit {run.returncode}: {last}", run.returncode))
    finally:
        for _, _, run in runs:
            run.terminate()
    return ends


def main(options: Sequence[str]) -> int:
    """Run them; the exit status."""
    if any(Path(REPO, option.partition("::")[0]).exists() for option in options):
        command = [sys.executable, "-m", "pytest", *options]
        return subprocess.run(command, cwd=REPO, check=False).returncode
    if unknown := missing(REPO / "tests"):
        sys.exit(f"no part of {__file__} has tests/{', tests/'.join(sorted(unknown))}")
    folders = [*QUIET, *(folder for part in PARTS.values() for folder in part)]
    with tempfile.TemporaryDirectory() as logs:
        ends = _turn(PARTS, options, BESIDE, Path(logs))
        ends += _turn({"alone": folders}, options, ALONE, Path(logs))
    for line, _ in ends:
        print(line)  # noqa: T201
    return verdict([code for _, code in ends])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
