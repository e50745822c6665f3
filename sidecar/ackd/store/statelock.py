"""The lock on the state directory: one ackd and one embedded server per directory (R24).

The server inherits the locked file, so the lock lasts as long as either of them lives: a new ackd
waits for an old server's end by waiting for the lock. The file's text says who holds it; it is for
people and for telling a living ackd from the leftovers of a dead one.
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

from ackd.errors import StoreError, StoreSetupError


class StillHeldError(StoreError):
    """The embedded server of an ackd that has ended still runs; it will end soon."""


class StateLock:
    """An exclusive lock on `path`. All methods do file I/O: call them outside the event loop."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.fd = -1

    def take(self) -> None:
        """Take it. Raises StoreSetupError when another ackd has it, StillHeldError to wait."""
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = _read(fd)
            os.close(fd)
            pid, server = holder.get("ackd", 0), holder.get("server", 0)
            if pid and start_ticks(pid) == holder.get("started", 0):
                raise StoreSetupError(
                    f"another ackd (pid {pid}) uses the state directory {self._path.parent}"
                ) from error
            raise StillHeldError(
                f"the embedded server (pid {server}) of an ended ackd still holds {self._path}"
            ) from error
        self.fd = fd
        self.note(server=0)

    def note(self, server: int) -> None:
        """Write down who holds it."""
        pid = os.getpid()
        text = json.dumps({"ackd": pid, "started": start_ticks(pid), "server": server})
        os.ftruncate(self.fd, 0)
        os.pwrite(self.fd, text.encode(), 0)

    def give_back(self) -> None:
        """Release it (it stays held while a server that inherited it lives)."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def is_held(path: Path) -> bool:
    """Whether a living ackd has this lock; one that is only waited for does not count."""
    lock = StateLock(path)
    try:
        lock.take()
    except StoreSetupError:
        return True
    except (StillHeldError, OSError):
        return False
    lock.give_back()
    return False


def _read(fd: int) -> dict[str, int]:
    try:
        holder = json.loads(os.pread(fd, 4096, 0) or b"{}")
    except ValueError:
        return {}
    return holder if isinstance(holder, dict) else {}


def start_ticks(pid: int) -> int:
    """When a process started, in ticks since boot; 0 if there is none. Tells reused pids apart."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return int(stat.rpartition(")")[2].split()[19])
