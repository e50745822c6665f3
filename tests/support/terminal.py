"""A terminal that a test can read: a program on a real pty, its output on a screen in memory."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self

import pyte

from tests.support import reaper
from tests.support.wait import wait_until

STEP_S = 0.05


class Terminal:
    """Runs `argv` in a window of `columns` x `rows`. `raw` is all that the program has written."""

    def __init__(
        self, argv: Sequence[str], *, columns: int = 80, rows: int = 24, env: Mapping[str, str]
    ) -> None:
        self._argv = list(argv)
        self._env = dict(env)
        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)
        self._size = struct.pack("HHHH", rows, columns, 0, 0)
        self._pid = 0
        self._fd = -1
        self.raw = b""

    def __enter__(self) -> Self:
        read, write = os.pipe()
        self._pid, self._fd = pty.fork()
        if self._pid == 0:
            os.close(write)
            os.read(read, 1)  # until the window has its size
            os.close(read)
            os.execvpe(self._argv[0], self._argv, self._env)  # noqa: S606 - in the child of a fork
        os.close(read)
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, self._size)
        os.close(write)
        reaper.watch_process(self._pid)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        os.close(self._fd)

    def press(self, keys: str) -> None:
        """Type."""
        os.write(self._fd, keys.encode())

    def lines(self) -> list[str]:
        """What is on the screen now."""
        self._read()
        return [line.rstrip() for line in self._screen.display]

    def shows(self, condition: Callable[[list[str]], bool], what: str) -> list[str]:
        """Wait until the screen is so; its lines."""

        def now() -> list[str]:
            lines = self.lines()
            return lines if condition(lines) else []

        try:
            return wait_until(now, what, timeout_s=25)
        except AssertionError as error:
            raise AssertionError("\n".join([str(error), *self.lines()])) from error

    def exit_code(self) -> int:
        """Wait for its end."""
        end = time.monotonic() + 20
        while time.monotonic() < end:
            self._read()
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                self._pid = 0
                return os.waitstatus_to_exitcode(status)
        raise AssertionError("\n".join(["it does not end", *self.lines()]))

    def _read(self) -> None:
        while select.select([self._fd], [], [], STEP_S)[0]:
            try:
                data = os.read(self._fd, 65_536)
            except OSError:  # the other end is closed
                return
            if not data:
                return
            self.raw += data
            self._stream.feed(data)
