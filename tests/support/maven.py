"""What tests of a broker take from Maven: fetched once, under a lock, with repeated downloads."""

import fcntl
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

DOWNLOADS_MAX = 3


class BrokerMissingError(RuntimeError):
    """Java or Maven is not installed; the message says what to install."""


def missing(broker: str) -> str:
    """What is not installed that a real `broker` needs, as a sentence; empty when all is there."""
    tools = [tool for tool in ("java", "mvn") if shutil.which(tool) is None]
    if not tools:
        return ""
    return f"a real {broker} needs {' and '.join(tools)}; on Debian: tests/support/apt.sh"


def made_once(folder: Path, make: Callable[[], None]) -> None:
    """Fill a folder with `make` unless that was done before; concurrent runs wait for the first.

    A run that is killed half-way leaves no mark, so that the next one makes it anew.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "made").exists():
            make()
            (folder / "made").touch()


def run(*arguments: str) -> None:
    """Run Maven. A repository that does not answer is asked again.

    Raises:
        RuntimeError: it failed each time, with what Maven said last.
    """
    said = ""
    for _ in range(DOWNLOADS_MAX):
        done = subprocess.run(
            ["mvn", "-B", "-ntp", "-q", *arguments],
            check=False,
            capture_output=True,
            text=True,
            timeout=600,
        )
        if done.returncode == 0:
            return
        said = f"{done.stdout}{done.stderr}"
    raise RuntimeError(f"Maven could not fetch the broker:\n{said}")
