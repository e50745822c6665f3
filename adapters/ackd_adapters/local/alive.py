"""Finds out whether the processes that share a queue are alive, without a common clock.

Each open queue holds a lock on a file in `members/`. The kernel releases the lock when the process
ends, however it ends, so the next check notices a killed member. A *frozen* process keeps its lock;
so each process also writes a growing number into its file, and whoever sees the same number for
`session_ms` of its **own** time considers that process gone. Time during which the observer itself
stood still doesn't count: a process that wakes from a freeze must not declare others dead.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FOLDER: Final = "members"
LOOK_MS: Final = 200
"""How often to check the others, and how often the own number grows."""
_BEAT_BYTES: Final = 8


@dataclass(slots=True)
class _Seen:
    beat: bytes
    silent_ms: int


class Instance:
    """This process's own heartbeat file. Made and used in the writer's thread."""

    def __init__(self, queue: Path) -> None:
        self._folder = queue / FOLDER
        self._folder.mkdir(exist_ok=True)
        self.name = secrets.token_hex(8)
        self._beat = 0
        draft = self._folder / f".{self.name}"
        self._handle = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._handle, fcntl.LOCK_EX)
        self.beat()
        # The file is locked before it gets its real name, so no other process considers this one
        # dead.
        draft.rename(self._folder / self.name)
        self._remove_dead_files()

    def beat(self) -> None:
        """Show that this process still runs, by a new number in its file."""
        self._beat += 1
        os.pwrite(self._handle, self._beat.to_bytes(_BEAT_BYTES, "big"), 0)

    def close(self) -> None:
        (self._folder / self.name).unlink(missing_ok=True)
        os.close(self._handle)

    def _remove_dead_files(self) -> None:
        for path in self._folder.iterdir():
            if not path.name.startswith(".") and look(path) is None:
                path.unlink(missing_ok=True)


def look(path: Path) -> bytes | None:
    """Return what the process of this file wrote last; None if it has ended."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.pread(handle, _BEAT_BYTES, 0)
    else:
        return None
    finally:
        os.close(handle)


class Watch:
    """Remembers what the other processes wrote. `session_ms`: how long a frozen process keeps its
    membership.
    """

    def __init__(self, queue: Path, own: str, session_ms: int) -> None:
        self._folder = queue / FOLDER
        self._own = own
        self._session_ms = session_ms
        self._seen: dict[str, _Seen] = {}
        self._looked_ms: int | None = None

    def dead(self, names: set[str], now_ms: int) -> set[str]:
        """Return which of these processes are gone. `now_ms` is monotonic."""
        passed = 0 if self._looked_ms is None else min(now_ms - self._looked_ms, 2 * LOOK_MS)
        self._looked_ms = now_ms
        self._seen = {name: seen for name, seen in self._seen.items() if name in names}
        return {name for name in names if name != self._own and self._is_dead(name, passed)}

    def _is_dead(self, name: str, passed_ms: int) -> bool:
        beat = look(self._folder / name)
        if beat is None:
            with contextlib.suppress(OSError):
                (self._folder / name).unlink(missing_ok=True)
            return True
        seen = self._seen.get(name)
        if seen is None or seen.beat != beat:
            self._seen[name] = _Seen(beat, 0)
            return False
        seen.silent_ms += passed_ms
        return seen.silent_ms >= self._session_ms
