"""Every test, two runs of pytest at a time, as much of their time is waiting for servers.

`python -m tests.support.side_by_side [OPTIONS OF PYTEST]`. With a path among them (or none of the
tests chosen in a part) it is one run, or fewer. What a run prints is shown in one piece. The fault
tests have a turn of their own, so that no neighbour but a fault test disturbs them. What judges by
the clock (marked `alone`) comes last, in one run with nothing beside it.
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
    "engine": tuple(
        f"integration/{each}"
        for each in ("alerts", "engine", "http", "push", "reports", "rocketmq", "top")
    ),
    "the rest": (
        *("contract", "integration/kafka", "integration/local", "integration/pulsar"),
        *("property", "simulation", "tidy", "unit"),
    ),
}
FAULTS = ("chaos", "e2e")
ELSEWHERE = ("k8s",)
"""`make test-k8s`: in a network of its own."""
TURN = "ACKD_TEST_TURN"
BESIDE, ALONE = "beside", "alone"


def keeps(turn: str | None, *, alone: bool) -> bool:
    """Whether a run keeps a test: a run by hand has no turn and keeps all."""
    return turn is None or alone == (turn == ALONE)


def fault_parts(tests: Path) -> dict[str, list[str]]:
    """The fault tests in two parts, file by file in turn."""
    files = sorted(path for folder in FAULTS for path in (tests / folder).rglob("test_*.py"))
    names = [str(path.relative_to(tests)) for path in files]
    return {"faults": names[::2], "more faults": names[1::2]}


def missing(tests: Path) -> set[str]:
    """Test files that no part has."""
    known = {tests / folder for folder in FAULTS + ELSEWHERE + sum(PARTS.values(), ())}
    files = [path for path in tests.rglob("test_*.py") if known.isdisjoint(path.parents)]
    return {str(path.relative_to(tests)) for path in files}


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
    faults = fault_parts(REPO / "tests")
    everything = [path for part in (PARTS | faults).values() for path in part]
    with tempfile.TemporaryDirectory() as logs:
        ends = _turn(PARTS, options, BESIDE, Path(logs))
        ends += _turn(faults, options, BESIDE, Path(logs))
        ends += _turn({"alone": everything}, options, ALONE, Path(logs))
    for line, _ in ends:
        print(line)  # noqa: T201
    return verdict([code for _, code in ends])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
