"""Processes, ports and waiting: what every fault test leans on."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from ackd_torture.ports import free_port, give_back, listens
from tests.support.paths import REPO, remove_run_dir, run_dir
from tests.support.proc import Process, ProcessFailedError
from tests.support.wait import WaitTimeoutError, wait_until, wait_until_async


def shell(script: str, folder: Path) -> Process:
    """A shell that runs `script`."""
    return Process(["bash", "-c", script], log_path=folder / "log")


def test_start_wait_for_log_terminate(tmp_path: Path) -> None:
    process = shell("trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.05; done", tmp_path)
    process.start()
    process.wait_for_log("up", 5)
    assert process.running
    assert process.terminate(60) == 3
    assert not psutil.pid_exists(process.pid)
    assert process.log() == "up\nbye\n"


def test_log_starts_anew_with_each_start(tmp_path: Path) -> None:
    process = shell("echo $$", tmp_path)
    for _ in range(2):
        process.start()
        assert process.wait(60) == 0
        assert process.log() == f"{process.pid}\n"
    assert len((tmp_path / "log").read_text().splitlines()) == 2


def test_kill_takes_the_whole_group(tmp_path: Path) -> None:
    process = shell("sleep 60 & echo $!; wait", tmp_path)
    process.start()
    wait_until(process.log, "the child's pid")
    child = psutil.Process(int(process.log()))
    process.kill()
    wait_until(
        lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, "it is gone"
    )
    assert process.returncode == -signal.SIGKILL


def test_early_end_is_told_with_the_log(tmp_path: Path) -> None:
    process = shell("echo broken pieces; exit 7", tmp_path)
    process.start()
    with pytest.raises(ProcessFailedError, match=r"(?s)ended with 7.*broken pieces"):
        process.wait_for_log("up", 5)
    process.stop()


def test_one_that_will_not_stop_is_killed_and_told(tmp_path: Path) -> None:
    process = shell("trap '' TERM; echo up; while :; do sleep 0.05; done", tmp_path)
    process.start()
    process.wait_for_log("up", 5)
    with pytest.raises(ProcessFailedError, match="did not stop"):
        process.terminate(0.3)
    assert not process.running


def test_frozen_process_stands_still_until_thawed(tmp_path: Path) -> None:
    process = shell("while :; do echo x; sleep 0.01; done", tmp_path)
    process.start()
    wait_until(process.log, "it writes")
    process.freeze()
    before = process.log()
    time.sleep(0.2)  # the proof is that nothing happens in a while
    assert process.log() == before
    assert process.running
    process.thaw()
    wait_until(lambda: process.log() != before, "it writes again")
    process.kill()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_children_die_with_us_even_frozen_ones(number: int, tmp_path: Path) -> None:
    script = """
import threading, time
from pathlib import Path
from tests.support.paths import run_dir
from tests.support.proc import Process
folder = run_dir("planted")
process = Process(["sleep", "60"], log_path=folder / "log")
starter = threading.Thread(target=process.start)  # the parent-death signal would fire here
starter.start()
starter.join()
process.freeze()
print(process.pid, folder, flush=True)
time.sleep(60)
"""
    path = tmp_path / "script.py"
    path.write_text(script)
    parent = subprocess.Popen(
        [sys.executable, path],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPO)},
    )
    assert parent.stdout is not None
    with parent.stdout:
        pid, folder = parent.stdout.readline().split()
        assert psutil.pid_exists(int(pid))
        parent.send_signal(number)
        parent.wait(60)
    wait_until(lambda: not psutil.pid_exists(int(pid)), "the child is gone")
    wait_until(lambda: not Path(folder).exists(), "its folder is gone")


def test_ports_are_free_and_never_given_twice() -> None:
    ports = [free_port() for _ in range(50)]
    assert len(set(ports)) == 50
    for port in ports:
        assert not listens(port)
    with socket.create_server(("127.0.0.1", ports[0])):
        assert listens(ports[0])
    give_back(*ports)


def test_run_dir_refuses_to_remove_what_it_did_not_make(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not made by run_dir"):
        remove_run_dir(tmp_path)
    made = run_dir("x")
    (made / "file").touch()
    remove_run_dir(made)
    assert not made.exists()


def test_wait_returns_the_answer_or_tells_what_was_seen() -> None:
    answers = iter([0, 0, 7])
    assert wait_until(lambda: next(answers), "seven") == 7
    with pytest.raises(WaitTimeoutError, match="the moon; last seen: 0"):
        wait_until(lambda: 0, "the moon", timeout_s=0.05)
    with pytest.raises(ZeroDivisionError):
        wait_until(lambda: 1 // 0, "x")
    with pytest.raises(WaitTimeoutError, match="ZeroDivisionError"):
        wait_until(lambda: 1 // 0, "x", timeout_s=0.05, ignoring=(ZeroDivisionError,))


async def test_async_wait_bounds_a_call_that_hangs() -> None:
    async def hang() -> bool:
        await asyncio.sleep(60)
        return True

    start = time.monotonic()
    with pytest.raises(WaitTimeoutError, match="never"):
        await wait_until_async(hang, "never", timeout_s=0.1)
    assert time.monotonic() - start < 30
