"""What a torture run starts never outlives it, and freezing means standing still."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ackd_torture.child import Child, PartError, children_of, state_of
from tests.support.wait import wait_until

PARENT = """
import sys, pathlib, time
from ackd_torture.child import Child
child = Child("sleeper", ["sleep", "1000"], pathlib.Path(sys.argv[1]))
child.start()
print(child.pid, flush=True)
time.sleep(1000)
"""


def sleeper(folder: Path) -> Child:
    return Child("sleeper", ["sleep", "1000"], folder / "log")


def test_child_dies_with_a_parent_that_was_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path / "log")], stdout=subprocess.PIPE, text=True
    ) as parent:
        if parent.stdout is None:
            raise AssertionError("a pipe was asked for")
        pid = int(parent.stdout.readline())
        # Until the leash has become the program, the name in the kernel is python's.
        wait_until(lambda: Path(f"/proc/{pid}/comm").read_text() == "sleep\n", "the program runs")
        os.kill(parent.pid, signal.SIGKILL)
    wait_until(lambda: state_of(pid) in {"", "Z"}, "the child is gone")


def test_freeze_thaw_kill_start_again(tmp_path: Path) -> None:
    child = sleeper(tmp_path)
    try:
        child.start()
        child.freeze()
        assert state_of(child.pid) == "T"
        assert child.running
        child.thaw()
        wait_until(lambda: state_of(child.pid) in {"S", "R"}, "it goes on")
        first = child.pid
        child.kill()
        assert state_of(first) == ""
        child.start()
        assert child.pid != first
        assert child.starts == 2
        assert child.pid in children_of(os.getpid())
    finally:
        child.stop()
    assert state_of(child.pid) == ""


def test_stop_ends_a_frozen_child(tmp_path: Path) -> None:
    child = sleeper(tmp_path)
    child.start()
    child.freeze()
    child.stop()
    assert not child.running


def test_freezing_what_has_ended_by_itself_tells_its_exit_code_and_its_log(tmp_path: Path) -> None:
    child = Child("brief", ["sh", "-c", "echo out of luck; exit 4"], tmp_path / "log")
    child.start()
    wait_until(lambda: not child.running, "it has ended")
    with pytest.raises(PartError, match=r"brief ended \(4\) before: stands still\nout of luck"):
        child.freeze()
    child.stop()


def test_what_comes_too_late_is_told_with_the_state_and_the_log(tmp_path: Path) -> None:
    child = sleeper(tmp_path)
    try:
        child.start()
        child.log.write_text("still busy\n")
        child.freeze()
        with pytest.raises(
            PartError, match=r"sleeper \(state T\): not within 0.1 s: .*\nstill busy"
        ):
            child.wait_until(lambda: False, "it serves", 0.1)
    finally:
        child.stop()


def test_end_before_it_serves_is_told_with_the_log(tmp_path: Path) -> None:
    child = Child("brief", ["sh", "-c", "echo no luck; exit 3"], tmp_path / "log")
    child.start()
    with pytest.raises(PartError, match=r"brief ended \(3\) before: it serves\nno luck"):
        child.wait_until(lambda: False, "it serves", 60)
    child.stop()
