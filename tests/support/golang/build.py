"""Build programs from Go's module proxy, once for each change of what they are built from.

They lie in the user's cache folder, not the repository's: they take minutes, and a fresh clone
should not pay that again. `CPU s` in the lines is what a build took, however busy the machine was.
"""

import contextlib
import fcntl
import hashlib
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tests.support.golang import go

YIELD = "--yield"


class Program(NamedTuple):
    """What one is built from. `link`: what the linker is told."""

    module: Path
    package: str
    link: str


@dataclass(frozen=True)
class Installation:
    """Where programs lie."""

    folder: Path

    def program(self, name: str) -> Path:
        """The path of one."""
        return self.folder / name

    @property
    def made(self) -> bool:
        """Whether all of it is there."""
        return (self.folder / "made").exists()


def folder(name: str, known: object, modules: Iterable[Path]) -> Path:
    """Where it belongs: another place for other flags (`known`) and other files of its modules."""
    digest = hashlib.sha256(repr(known).encode())
    for module in modules:
        for path in sorted(module.rglob("*")):
            if path.is_file():
                digest.update(path.read_bytes())
    return go.cache_home() / f"{name}-{digest.hexdigest()[:12]}"


def make(
    target: Installation,
    programs: Mapping[str, Program],
    flags: Sequence[str],
    finish: Callable[[], None] = lambda: None,
) -> None:
    """Build what is not there, in this order, then `finish`. One at a time builds. GoError."""
    target.folder.mkdir(parents=True, exist_ok=True)
    with (target.folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.made:
            for name, program in programs.items():
                _build(target.program(name), program, flags)
            finish()
            (target.folder / "made").touch()


def _build(path: Path, program: Program, flags: Sequence[str]) -> None:
    if path.exists():
        return
    began, cpu = time.monotonic(), _cpu_s()
    part = path.with_suffix(".part")
    link = f"-ldflags={program.link}"
    go.run("build", *flags, link, "-o", str(part), program.package, cwd=program.module)
    part.rename(path)
    say(
        f"{path.name}: {time.monotonic() - began:.0f} s, {_cpu_s() - cpu:.0f} CPU s, "
        f"{path.stat().st_size / 1e6:.0f} MB"
    )


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def say(text: str) -> None:
    """A line for who waits."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(act: Callable[[], None]) -> None:
    """Run it as a command. With `--yield` it takes only what nothing else on this machine wants."""
    # Whoever ends us ends what we wait for, too: leaving kills it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if YIELD in sys.argv[1:]:
        _yield_to_others()
    try:
        act()
    except go.GoError as error:
        sys.exit(str(error))


def _yield_to_others() -> None:
    """Linux shares the processors among sessions first, where it groups them (sched(7), autogroup).

    So being nice takes a session of our own that is nice as a whole. Idle tasks (SCHED_IDLE) make
    room at once for whoever wakes up.
    """
    with contextlib.suppress(PermissionError):  # we lead a group already
        os.setsid()
    os.nice(19)
    with contextlib.suppress(OSError, AttributeError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text("19")
