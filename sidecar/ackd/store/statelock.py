"""The lock on the state directory: one ackd and one embedded server per directory (R24).

The embedded server inherits the locked file, so the lock lasts until both processes have ended. A
new ackd that finds the lock held by a server without its ackd waits for that server to end. The
file's text has the process ids. People read it, and so does a new ackd, to tell a running ackd from
a server that outlived its own.
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

from ackd.errors import StoreError, StoreSetupError


class StillHeldError(StoreError):
    """An ackd has ended and its embedded server has not, but will end soon: try again."""


class StateLock:
    """An exclusive lock on `path`. Its methods do blocking file I/O: call them in a thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.fd = -1

    def take(self) -> None:
        """Take the lock without waiting.

        Raises StoreSetupError if another running ackd has it, StillHeldError if only a server has
        it that will end soon.
        """
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
        """Write this process and its server's process id into the file. `server` 0: none yet."""
        pid = os.getpid()
        text = json.dumps({"ackd": pid, "started": start_ticks(pid), "server": server})
        os.ftruncate(self.fd, 0)
        os.pwrite(self.fd, text.encode(), 0)

    def give_back(self) -> None:
        """Close the file. The lock stays held while a server that inherited the file runs."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def is_held(path: Path) -> bool:
    """True if a running ackd holds this lock, False if only a server without its ackd does."""
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
    """When the process started, in ticks since boot; 0 if it does not run.

    Together with the pid this names a process for good, as the kernel uses pids again.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return int(stat.rpartition(")")[2].split()[19])
