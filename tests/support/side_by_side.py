"""Every test, several runs of pytest at a time, as most of their time is waiting for servers.

`python -m tests.support.side_by_side [OPTIONS OF PYTEST]`. With a path among them it is one run.
Files are spread over lanes by what they took before (`tests.support.lanes`). What a lane prints is
shown in one piece. Most files wait for servers; those that compute instead have lanes of their own,
which take what processor time the others leave (`nice`). The fault tests have a turn of their own,
so that no other server disturbs them. What judges by the clock (marked `alone`) comes last, in one
run with nothing beside it.
"""

import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

from tests.support.lanes import RECORD, keep, known, lanes
from tests.support.paths import REPO

NOTHING_CHOSEN = 5
LANES = 3
FAULT_LANES = 4
HUNGRY_LANES = 2
NICE = 10
NICE_BOUND_S = 360
"""Of a test that waits for its turn on a busy machine; see `timeout` in pyproject.toml."""
STOP_TIMEOUT_S = 5.0
FAULTS = ("chaos", "e2e")
HUNGRY = (
    "contract/store/test_differential.py",
    "integration/http/test_schema.py",
    "integration/reports",
    "property",
    "simulation",
    "tidy",
)
"""They need processor time and little else: Spark, the simulator, thousands of drawn cases."""
ELSEWHERE = ("collector", "k8s", "node")
"""`make test-collector`, `make test-k8s`, `make test-node`: they want what Go builds."""
TURN = "ACKD_TEST_TURN"
BESIDE, ALONE = "beside", "alone"


def keeps(turn: str | None, *, alone: bool) -> bool:
    """Whether a run keeps a test: a run by hand has no turn and keeps all."""
    return turn is None or alone == (turn == ALONE)


class Plan(NamedTuple):
    """Lanes by name, each with its files relative to `tests`; `turns` come one after the other."""

    hungry: dict[str, list[str]]
    turns: list[dict[str, list[str]]]

    def files(self) -> list[str]:
        """All of them."""
        each = (lane for turn in (self.hungry, *self.turns) for lane in turn.values())
        return sorted(file for lane in each for file in lane)


def planned(tests: Path, seconds: Mapping[str, float]) -> Plan:
    """Which file is where; not yet what judges by the clock."""
    files = sorted(str(path.relative_to(tests)) for path in tests.rglob("test_*.py"))
    files = [file for file in files if not file.startswith(ELSEWHERE)]

    def spread(name: str, chosen: Iterable[str], count: int) -> dict[str, list[str]]:
        of = enumerate(lanes(chosen, seconds, count), 1)
        return {f"{name} {number}": lane for number, lane in of}

    others = [file for file in files if not file.startswith((*FAULTS, *HUNGRY))]
    return Plan(
        spread("hungry", (file for file in files if file.startswith(HUNGRY)), HUNGRY_LANES),
        [
            spread("tests", others, LANES),
            spread("faults", (file for file in files if file.startswith(FAULTS)), FAULT_LANES),
        ],
    )


def by_the_clock(tests: Path, files: Sequence[str]) -> list[str]:
    """Those in which a test may be marked `alone`, as the word is in them."""
    return [file for file in files if "alone" in (tests / file).read_text()]


def chosen(options: Sequence[str]) -> bool:
    """Whether there is a path among them."""
    return any(Path(REPO, option.partition("::")[0]).exists() for option in options)


def verdict(codes: Sequence[int]) -> int:
    """One exit status for all: a part in which nothing was chosen does not count beside others."""
    chosen = [code for code in codes if code != NOTHING_CHOSEN]
    return max(chosen, default=NOTHING_CHOSEN)


class _Lane(NamedTuple):
    name: str
    log: Path
    run: subprocess.Popen[bytes]


class Runs:
    """Runs of pytest, each with its log in `folder`. Ended from outside it shows what is known.

    `prefix`: the command that starts each.
    """

    def __init__(self, options: Sequence[str], folder: Path, prefix: Sequence[str] = ()) -> None:
        self.lines: list[str] = []
        self.codes: list[int] = []
        self._options = options
        self._folder = folder
        self._prefix = prefix
        self._going: list[_Lane] = []

    def __enter__(self) -> Self:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        return self

    def __exit__(self, *_: object) -> None:
        for lane in self._going:
            lane.run.terminate()
        for lane in self._going:
            with suppress(subprocess.TimeoutExpired):
                lane.run.wait(STOP_TIMEOUT_S)
            _show(lane.name, lane.log)

    def start(
        self, parts: Mapping[str, Sequence[str]], turn: str, *, nice: int = 0
    ) -> Callable[[], None]:
        """Start them all. What it returns waits for them and shows what each printed."""
        begin = time.monotonic()
        lanes = [self._begin(name, files, turn, nice) for name, files in parts.items()]
        self._going += lanes

        def end() -> None:
            for lane in lanes:
                code = lane.run.wait()
                self._going.remove(lane)
                self.codes.append(code)
                self.lines.append(f"== {lane.name}: exit {code}: {_show(lane.name, lane.log)}")
            used = resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu = f"{used.ru_utime + used.ru_stime:.0f} s of CPU so far"
            print(f"== {', '.join(parts)}: {time.monotonic() - begin:.0f} s, {cpu}", flush=True)  # noqa: T201

        return end

    def verdict(self) -> int:
        """Print how each ended; the exit status of all."""
        for line in self.lines:
            print(line)  # noqa: T201
        return verdict(self.codes)

    def _begin(self, name: str, files: Sequence[str], turn: str, nice: int) -> _Lane:
        log, record = self._folder / name, self._folder / f"{name}.json"
        paths = [f"tests/{file}" for file in files]
        command = [sys.executable, "-m", "pytest", "-p", "tests.support.lanes"]
        if nice:
            command.append(f"--timeout={NICE_BOUND_S}")
        environ = {**os.environ, TURN: turn, RECORD: str(record)}
        with log.open("wb") as out:
            run = subprocess.Popen(
                [*self._prefix, "nice", "-n", str(nice), *command, *self._options, *paths],
                cwd=REPO,
                env=environ,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        return _Lane(name, log, run)


def _show(name: str, log: Path) -> str:
    """Print what a lane printed; its last line."""
    print(f"== {name}", flush=True)  # noqa: T201  what a runner is for
    text = log.read_bytes()
    sys.stdout.buffer.write(text)
    sys.stdout.flush()
    return (text.decode(errors="replace").splitlines() or [""])[-1].strip("= ")


def main(options: Sequence[str]) -> int:
    """Run them; the exit status."""
    if chosen(options):
        command = [sys.executable, "-m", "pytest", *options]
        return subprocess.run(command, cwd=REPO, check=False).returncode
    plan = planned(REPO / "tests", known())
    with tempfile.TemporaryDirectory() as folder, Runs(options, Path(folder)) as runs:
        hungry_end = runs.start(plan.hungry, BESIDE, nice=NICE)
        for turn in plan.turns:
            runs.start(turn, BESIDE)()
        hungry_end()
        keep(Path(folder).glob("*.json"))
        runs.start({ALONE: by_the_clock(REPO / "tests", plan.files())}, ALONE)()
    return runs.verdict()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
