"""One helper process that kills our servers when this process dies, even by SIGKILL.

Linux's parent-death signal would do only for servers started by the main thread (it is tied to the
thread that spawned), and a fixture may well start one from a worker thread. So a small process
reads a pipe from us: lines name what lives. When the pipe ends, for whatever reason, it kills the
process groups and removes the folders that are still named. A pid is checked by its start time, so
a number used again by the system is never hit.

Run as a script (`python reaper.py`) this file is that helper; it imports only the standard library.
"""

import atexit
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

_lock = threading.Lock()
_helper: subprocess.Popen[bytes] | None = None
_helper_owner = 0


def watch_process(pid: int) -> None:
    """Kill the group of `pid` (a group leader) should we die before `forget_process`."""
    _tell(f"+p {pid} {start_time(pid)}")


def forget_process(pid: int) -> None:
    """The process was reaped by us; its number may be used again."""
    _tell(f"-p {pid}")


def watch_folder(path: Path) -> None:
    """Remove `path` should we die before `forget_folder`."""
    _tell(f"+f {path}")


def forget_folder(path: Path) -> None:
    """The folder was removed by us."""
    _tell(f"-f {path}")


def start_time(pid: int) -> int:
    """Start of a process in clock ticks since boot, or 0 when there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return int(stat.rpartition(")")[2].split()[19])


def helper_pid() -> int | None:
    """The helper itself, for those who count processes."""
    return None if _helper is None else _helper.pid


def _tell(line: str) -> None:
    global _helper, _helper_owner  # noqa: PLW0603 -- one helper for each process, made when needed
    with _lock:
        if _helper is None or _helper_owner != os.getpid():
            _helper = subprocess.Popen(
                [sys.executable, "-S", __file__],
                stdin=subprocess.PIPE,
                start_new_session=True,
            )
            _helper_owner = os.getpid()
            atexit.register(_close, _helper)
        if _helper.stdin is None:
            raise AssertionError("the helper has a pipe")
        _helper.stdin.write(line.encode() + b"\n")
        _helper.stdin.flush()


def _close(helper: subprocess.Popen[bytes]) -> None:
    if _helper_owner == os.getpid() and helper.stdin is not None:
        helper.stdin.close()
        helper.wait(10)


def _main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    processes: dict[int, int] = {}
    folders: set[str] = set()
    for line in sys.stdin:
        act, _, rest = line.rstrip("\n").partition(" ")
        if act == "+p":
            pid, started = rest.split()
            processes[int(pid)] = int(started)
        elif act == "-p":
            processes.pop(int(rest), None)
        elif act == "+f":
            folders.add(rest)
        elif act == "-f":
            folders.discard(rest)
    for pid, started in processes.items():
        if started and start_time(pid) == started:
            with contextlib.suppress(OSError):
                os.killpg(pid, signal.SIGKILL)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    _main()
