"""Builds the judge in `proofs/porcupine`, which is Porcupine with a model of a queue with leases.

`python -m tests.proof.porcupine FILE...` judges histories that `ackd torture --export` wrote.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from ackd_torture import edn
from ackd_torture.history import Event
from tests.support.golang import build, go
from tests.support.golang.build import Installation, Program
from tests.support.paths import REPO
from tests.support.require import REQUIRE_ALL

MODULE = REPO / "proofs" / "porcupine"
NAME = "judge"
_LINK = "-s -w"
_FLAGS = ("-trimpath",)
_EXPLAINED, _BLAMED = 0, 4


class SecondVerdict(msgspec.Struct):
    """What Porcupine says of one history. `blamed`: names of messages, and places, that no order of
    instants explains; `undecided`: it gave up after 20 s.
    """

    file: str
    kept: bool
    operations: int
    objects: int
    blamed: set[str]
    undecided: set[str]


def missing() -> str:
    """What is not there, as a sentence; a run that may skip nothing fetches Go instead."""
    here = any(shutil.which("go", path=path) for path in (None, go.FOLDER))
    may_skip = os.environ.get(REQUIRE_ALL) != "1"
    return "Porcupine needs Go in PATH" if may_skip and not here else ""


def judge(paths: Sequence[Path], seconds: float = 300) -> list[SecondVerdict]:
    """One verdict a file. Raises CalledProcessError for what is no history."""
    done = subprocess.run(
        [_program(), *paths], check=False, capture_output=True, text=True, timeout=seconds
    )
    if done.returncode not in {_EXPLAINED, _BLAMED}:
        done.check_returncode()
    return [msgspec.json.decode(line, type=SecondVerdict) for line in done.stdout.splitlines()]


def judge_all(histories: Iterable[Sequence[Event]], folder: Path) -> list[SecondVerdict]:
    """The same of events, each history through a file in `folder`."""
    paths = []
    for number, events in enumerate(histories):
        paths.append(folder / f"{number}.edn")
        paths[-1].write_text("".join(edn.export(events)), encoding="utf-8")
    return judge(paths)


def _program() -> Path:
    target = Installation(build.folder("porcupine", (_FLAGS, _LINK), [MODULE]))
    build.make(target, {NAME: Program(MODULE, ".", _LINK)}, _FLAGS)
    return target.program(NAME)


if __name__ == "__main__":
    sys.exit(subprocess.run([_program(), *sys.argv[1:]], check=False).returncode)
