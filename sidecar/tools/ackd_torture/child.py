"""A process that this run started: the only kind of process that faults are done to."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from ackd_torture import leash

LOG_TAIL_BYTES = 3_000
STOP_S = 40.0
POLL_S = 0.02


class PartError(OSError):
    """A part did not start, serve or stop as it should; the text says which and why."""


class Part(Protocol):
    """Something that can be broken and that works again afterwards."""

    name: str

    def start(self) -> None:
        """Start it, for the first time or again on its data; returns when it serves."""

    def kill(self) -> None:
        """SIGKILL; returns when it is gone."""

    def freeze(self) -> None:
        """SIGSTOP."""

    def thaw(self) -> None:
        """SIGCONT."""

    def stop(self) -> None:
        """End it for good; never raises."""


class BrokerPart(Part, Protocol):
    """A broker of our own."""

    adapter: str

    def options(self) -> dict[str, str | int]:
        """The options of the section `[brokers.main.options]` that connect to it."""

    def create_topic(self, name: str, partitions: int) -> None:
        """Make a topic; returns when it can be used."""


class Child:
    """One child process in a group of its own, which never outlives us. Output goes to a file."""

    def __init__(self, name: str, argv: Sequence[str], log: Path) -> None:
        self.name = name
        self.argv = list(argv)
        self.log = log
        self.popen: subprocess.Popen[bytes] | None = None
        self.starts = 0

    @property
    def pid(self) -> int:
        """Of the process that was started last."""
        if self.popen is None:
            raise PartError(f"{self.name} was never started")
        return self.popen.pid

    @property
    def running(self) -> bool:
        """Whether it lives; a frozen one does."""
        return self.popen is not None and self.popen.poll() is None

    def start(self) -> None:
        """Start the process; does not wait until it serves."""
        if self.running:
            raise PartError(f"{self.name} runs already")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        prefix = [sys.executable, "-S", "-E", str(leash.__file__), str(os.getpid())]
        with self.log.open("ab") as log:
            self.popen = subprocess.Popen(
                [*prefix, *self.argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # What is set for an ackd of this machine's owner is not meant for ours.
                env={k: v for k, v in os.environ.items() if not k.startswith("ACKD_")},
                start_new_session=True,
            )
        self.starts += 1

    def kill(self) -> None:
        """SIGKILL to it alone: what it started must cope by itself."""
        if self.popen is not None:
            with contextlib.suppress(ProcessLookupError):
                self.popen.kill()
            self.popen.wait(STOP_S)

    def freeze(self) -> None:
        """SIGSTOP, and wait until the kernel has stopped it. PartError when it had ended."""
        if self.running:
            os.kill(self.pid, signal.SIGSTOP)
        self.wait_until(lambda: state_of(self.pid) == "T", "stands still", STOP_S)

    def thaw(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGCONT)

    def terminate(self) -> int:
        """SIGTERM, and wait; the exit status. Past the bound it is killed and that is an error."""
        self.thaw()
        if self.popen is None:
            raise PartError(f"{self.name} was never started")
        self.popen.terminate()
        try:
            return self.popen.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise PartError(f"{self.name} did not stop on SIGTERM\n{self.tail()}") from None

    def stop(self) -> None:
        """End it and all it started, for good."""
        if self.popen is None:
            return
        if self.running:
            with contextlib.suppress(PartError):
                self.terminate()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)

    def tail(self) -> str:
        """The end of what it wrote."""
        try:
            return self.log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")
        except FileNotFoundError:
            return ""

    def wait_until(self, serves: Callable[[], bool], what: str, timeout_s: float) -> None:
        """Wait for it; PartError with the end of its log when it ends first, or too late."""

        def now() -> bool:
            if not self.running:
                code = self.popen.returncode if self.popen else None
                raise PartError(f"{self.name} ended ({code}) before: {what}\n{self.tail()}")
            return serves()

        try:
            wait(now, what, timeout_s)
        except TimeoutError as error:
            state = state_of(self.pid)
            raise PartError(f"{self.name} (state {state}): {error}\n{self.tail()}") from None


def wait(condition: Callable[[], bool], what: str, timeout_s: float) -> None:
    """Wait for a condition, with a bound (TimeoutError)."""
    end = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {timeout_s} s: {what}")
        time.sleep(POLL_S)


def state_of(pid: int) -> str:
    """The kernel's letter for a process: R, S, T (stopped), Z ...; "" when there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[0]


def children_of(pid: int) -> list[int]:
    """Pids of the direct children of a process."""
    found: list[int] = []
    for tasks in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [int(each) for each in tasks.read_text().split()]
    return found


def answers(port: int, question: bytes = b"", wanted: bytes = b"") -> bool:
    """Whether 127.0.0.1:`port` accepts, and (with a question) answers with what is wanted."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0) as probe:
        if not question:
            return True
        probe.sendall(question)
        return probe.recv(1024).startswith(wanted)
    return False
