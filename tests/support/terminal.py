"""A terminal that a test can read: a program on a real pty, its output on a screen in memory."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self

import pyte

from tests.support import reaper
from tests.support.wait import wait_until

STEP_S = 0.05
BOUND_S = 90.0


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
        self._process: subprocess.Popen[bytes] | None = None
        self._fd = -1
        self.raw = b""

    def __enter__(self) -> Self:
        self._fd, inside = pty.openpty()
        fcntl.ioctl(inside, termios.TIOCSWINSZ, self._size)
        self._process = subprocess.Popen(
            self._argv,
            stdin=inside,
            stdout=inside,
            stderr=inside,
            env=self._env,
            start_new_session=True,
        )
        os.close(inside)
        reaper.watch_process(self._process.pid)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._child().kill()
        self._child().wait()
        reaper.forget_process(self._child().pid)
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
            return wait_until(now, what, timeout_s=BOUND_S)
        except AssertionError as error:
            raise AssertionError("\n".join([str(error), *self.lines()])) from error

    def exit_code(self) -> int:
        """Wait for its end."""

        def ended() -> bool:
            self._read()
            return self._child().poll() is not None

        wait_until(ended, "its end", timeout_s=BOUND_S)
        self._read()
        return self._child().returncode

    def _child(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise AssertionError("not started")
        return self._process

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
