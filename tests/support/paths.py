"""Places inside the repository, and throw-away folders for the data of servers."""

import itertools
import os
import shutil
from pathlib import Path

from tests.support import reaper

REPO = Path(__file__).resolve().parents[2]
CACHE = REPO / ".cache"
RUN = CACHE / "run"

_numbers = itertools.count(1)


def run_dir(name: str) -> Path:
    """A new folder for one server's data; it goes when `remove_run_dir` is called or we die."""
    path = RUN / f"{os.getpid()}-{next(_numbers)}-{name}"
    shutil.rmtree(path, ignore_errors=True)  # left by a process of the same number long ago
    path.mkdir(parents=True)
    reaper.watch_folder(path)
    return path


def remove_run_dir(path: Path) -> None:
    """Remove a folder made by `run_dir`, whatever is in it."""
    if RUN not in path.parents:
        raise ValueError(f"{path} was not made by run_dir")
    shutil.rmtree(path, ignore_errors=True)
    reaper.forget_folder(path)
