"""Every test, several runs of pytest at a time, as most of their time is waiting for servers.

`python -m tests.support.side_by_side [OPTIONS OF PYTEST]`. With a path among them it is one run.
Files are spread over lanes by what they took before (`tests.support.lanes`). What a lane prints is
shown in one piece. The fault tests have a turn of their own, so that no neighbour but a fault test
disturbs them. What judges by the clock (marked `alone`) comes last, in one run with nothing beside
it.
"""

import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from tests.support.lanes import RECORD, keep, known, lanes
from tests.support.paths import REPO

NOTHING_CHOSEN = 5
LANES = 3
"""Four use nine tenths of 2 cores, and then a broker's answer may take half a minute."""
FAULT_LANES = 4
STOP_TIMEOUT_S = 5.0
FAULTS = ("chaos", "e2e")
ELSEWHERE = ("k8s",)
"""`make test-k8s`: in a network of its own."""
TURN = "ACKD_TEST_TURN"
BESIDE, ALONE = "beside", "alone"


def keeps(turn: str | None, *, alone: bool) -> bool:
    """Whether a run keeps a test: a run by hand has no turn and keeps all."""
    return turn is None or alone == (turn == ALONE)


def turns(tests: Path, seconds: Mapping[str, float]) -> list[dict[str, list[str]]]:
    """The lanes of each turn but the last, by name: paths of files, relative to `tests`."""
    files = [str(path.relative_to(tests)) for path in tests.rglob("test_*.py")]
    faults = [file for file in files if file.startswith(FAULTS)]
    others = sorted(set(files) - set(faults))
    others = [file for file in others if not file.startswith(ELSEWHERE)]
    return [
        {f"{name} {number}": lane for number, lane in enumerate(spread, 1)}
        for name, spread in (
            ("tests", lanes(others, seconds, LANES)),
            ("faults", lanes(faults, seconds, FAULT_LANES)),
        )
    ]


def by_the_clock(tests: Path, files: Sequence[str]) -> list[str]:
    """Those in which a test may be marked `alone`, as the word is in them."""
    return [file for file in files if "alone" in (tests / file).read_text()]


def verdict(codes: Sequence[int]) -> int:
    """One exit status for all: a part in which nothing was chosen does not count beside others."""
    chosen = [code for code in codes if code != NOTHING_CHOSEN]
    return max(chosen, default=NOTHING_CHOSEN)


def _start(
    files: Sequence[str], options: Sequence[str], turn: str, out: IO[bytes], record: Path
) -> subprocess.Popen[bytes]:
    paths = [f"tests/{file}" for file in files]
    command = [sys.executable, "-m", "pytest", "-p", "tests.support.lanes", *options, *paths]
    environ = {**os.environ, TURN: turn, RECORD: str(record)}
    return subprocess.Popen(command, cwd=REPO, env=environ, stdout=out, stderr=subprocess.STDOUT)


def _show(name: str, log: Path) -> str:
    """Print what a lane printed; its last line."""
    print(f"== {name}", flush=True)  # noqa: T201  what a runner is for
    text = log.read_bytes()
    sys.stdout.buffer.write(text)
    sys.stdout.flush()
    return (text.decode(errors="replace").splitlines() or [""])[-1].strip("= ")


def _turn(
    parts: Mapping[str, Sequence[str]], options: Sequence[str], turn: str, logs: Path
) -> list[tuple[str, int]]:
    """Run all parts at once, show what each printed; a closing line and a status for each."""
    begin, runs = time.monotonic(), []
    for name, files in parts.items():
        log = logs / name
        with log.open("wb") as out:
            run = _start(files, options, turn, out, logs / f"{name}.json")
        runs.append((name, log, run))
    ends = []
    try:
        for name, log, run in runs:
            run.wait()
            ends.append((f"== {name}: exit {run.returncode}: {_show(name, log)}", run.returncode))
    finally:
        for name, log, run in runs[len(ends) :]:  # ended from outside: what is known so far
            run.terminate()
            with suppress(subprocess.TimeoutExpired):
                run.wait(STOP_TIMEOUT_S)
            _show(name, log)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = f"{used.ru_utime + used.ru_stime:.0f} s of CPU so far"
    print(f"== {', '.join(parts)}: {time.monotonic() - begin:.0f} s, {cpu}", flush=True)  # noqa: T201
    return ends


def main(options: Sequence[str]) -> int:
    """Run them; the exit status."""
    if any(Path(REPO, option.partition("::")[0]).exists() for option in options):
        command = [sys.executable, "-m", "pytest", *options]
        return subprocess.run(command, cwd=REPO, check=False).returncode
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    parts = turns(REPO / "tests", known())
    everything = sorted(file for part in parts for lane in part.values() for file in lane)
    with tempfile.TemporaryDirectory() as folder:
        logs = Path(folder)
        ends = [end for part in parts for end in _turn(part, options, BESIDE, logs)]
        keep(logs.glob("*.json"))
        clock = by_the_clock(REPO / "tests", everything)
        ends += _turn({ALONE: clock}, options, ALONE, logs)
    for line, _ in ends:
        print(line)  # noqa: T201
    return verdict([code for _, code in ends])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
