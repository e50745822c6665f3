"""One child process of a test: start, wait, kill, freeze, and the end of its log when it fails."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support import reaper
from tests.support.wait import wait_until

LOG_TAIL = 4000


class ProcessFailedError(AssertionError):
    """A child ended or would not end when it should; the message carries the end of its log."""


class Process:
    """A server process that never outlives us.

    It leads a process group of its own, so that children it starts are killed with it, and a
    Ctrl-C at the terminal stops the tests, which then stop it in good order. Its output is appended
    to `log_path`, so a restart keeps what was said before.
    """

    def __init__(
        self,
        argv: Sequence[str | Path],
        *,
        log_path: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self.argv = [str(part) for part in argv]
        self.log_path = log_path
        self.env = dict(env) if env is not None else None
        self.cwd = cwd
        self._popen: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @property
    def pid(self) -> int:
        """The pid of the running (or ended, not yet restarted) process."""
        return self._child().pid

    @property
    def running(self) -> bool:
        """Whether the process was started and has not ended; a frozen one runs."""
        return self._popen is not None and self._popen.poll() is None

    @property
    def returncode(self) -> int | None:
        """As subprocess has it: negative for a signal, None while it runs."""
        return self._child().poll()

    def start(self) -> None:
        """Start it (again). It must not be running."""
        if self.running:
            raise AssertionError(f"{self.argv[0]} runs already with pid {self.pid}")
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            self._log_start = log.tell()
            self._popen = subprocess.Popen(
                self.argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.env,
                cwd=self.cwd,
                start_new_session=True,
            )
        reaper.watch_process(self._popen.pid)

    def signal(self, number: int) -> None:
        """Send a signal to the process alone, not to its group."""
        self._child().send_signal(number)

    def freeze(self) -> None:
        """SIGSTOP, and wait until the kernel says that it is stopped."""
        self.signal(signal.SIGSTOP)
        wait_until(lambda: self._state() == "T", f"pid {self.pid} stopped by SIGSTOP")

    def thaw(self) -> None:
        """SIGCONT."""
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL to the process and all in its group; returns when it is gone."""
        if self._popen is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        self._popen.wait(10)
        reaper.forget_process(self._popen.pid)

    def terminate(self, timeout_s: float = 60.0) -> int:
        """SIGTERM and wait; returns the exit status. Past the bound it is killed: an error."""
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        try:
            status = self._child().wait(timeout_s)
        except subprocess.TimeoutExpired:
            tail = self.log()[-LOG_TAIL:]
            self.kill()
            raise ProcessFailedError(
                f"{self.argv[0]} did not stop within {timeout_s} s of SIGTERM:\n{tail}"
            ) from None
        self.kill()  # what it left in its group
        return status

    def stop(self, timeout_s: float = 60.0) -> None:
        """End it for good, gently if possible; also when it never ran or is gone already."""
        if not self.running:
            self.kill()
            return
        with contextlib.suppress(ProcessFailedError):
            self.terminate(timeout_s)

    def wait(self, timeout_s: float) -> int:
        """Wait for it to end by itself; returns the exit status."""
        try:
            status = self._child().wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise ProcessFailedError(
                f"{self.argv[0]} still runs after {timeout_s} s:\n{self.log()[-LOG_TAIL:]}"
            ) from None
        self.kill()
        return status

    def log(self) -> str:
        """What it wrote since its last start."""
        with self.log_path.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def wait_for_log(self, text: str, timeout_s: float) -> None:
        """Wait until `text` stands in the log of this start; an early end fails at once."""

        def seen() -> bool:
            ended = not self.running  # asked first: what it wrote before its end counts
            if text in self.log():
                return True
            if ended:
                raise ProcessFailedError(
                    f"{self.argv[0]} ended with {self.returncode} before it said {text!r}:\n"
                    f"{self.log()[-LOG_TAIL:]}"
                )
            return False

        wait_until(seen, f"{text!r} in {self.log_path}", timeout_s=timeout_s, interval_s=0.05)

    def _child(self) -> subprocess.Popen[bytes]:
        if self._popen is None:
            raise AssertionError(f"{self.argv[0]} was never started")
        return self._popen

    def _state(self) -> str:
        stat = Path(f"/proc/{self.pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[0]
