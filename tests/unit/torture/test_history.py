"""Histories survive what they are for: writers that are killed in the middle of a line."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ackd_torture import history
from ackd_torture.history import EventKind, Recorder, load, read

WRITER = """
import sys, pathlib
from ackd_torture.history import EventKind, Recorder
recorder = Recorder(pathlib.Path(sys.argv[1]), "w")
number = 0
while True:
    number += 1
    recorder.note(EventKind.PUBLISH, msg=f"m{number}")
    recorder.flush()
    print(number, flush=True)
"""


def test_what_was_flushed_is_there_after_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "w.ndjson"
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True
    ) as writer:
        if writer.stdout is None:
            raise AssertionError("a pipe was asked for")
        said = 0
        while said < 200:
            said = int(writer.stdout.readline())
        os.kill(writer.pid, signal.SIGKILL)
        rest = writer.stdout.read().split("\n")
        said = max([said, *(int(line) for line in rest[:-1] if line)])
    names = [event.msg for event in read(path) if event.kind is EventKind.PUBLISH]
    assert names[:said] == [f"m{number}" for number in range(1, said + 1)]


def test_cut_last_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.ndjson"
    with Recorder(path, "a") as recorder:
        recorder.note(EventKind.ASK, call=1)
    whole = path.read_bytes()
    path.write_bytes(whole + whole.splitlines()[-1][:20])
    assert [event.kind for event in read(path)] == [EventKind.START, EventKind.ASK]


def test_a_stop_between_looks_at_the_two_clocks_does_not_part_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A busy machine: after the first look at the monotonic clock nothing runs for 40 ms."""

    class Clocks:
        """Both start at 0; the process is stopped once."""

        def __init__(self) -> None:
            self.ns = 0

        def monotonic_ns(self) -> int:
            """1 us a look."""
            self.ns += 1_000
            return self.ns

        def time_ns(self) -> int:
            """As the other one, but for the stop before it."""
            self.ns += 40_000_000 if self.ns == 1_000 else 1_000
            return self.ns

    monkeypatch.setattr(history, "time", Clocks())
    mono_us, wall_us = history.now_us()
    assert mono_us > 40_000
    assert abs(wall_us - mono_us) <= 1


def test_histories_of_one_machine_are_ordered_by_the_monotonic_clock(tmp_path: Path) -> None:
    with Recorder(tmp_path / "a.ndjson", "a") as one, Recorder(tmp_path / "b.ndjson", "b") as two:
        one.note(EventKind.ASK, call=1)
        two.note(EventKind.ASK, call=2)
        one.note(EventKind.ASK, call=3)
    events = load([tmp_path / "b.ndjson", tmp_path / "a.ndjson"])
    assert [event.call for event in events if event.kind is EventKind.ASK] == [1, 2, 3]


def test_histories_of_two_machines_are_ordered_by_the_wall_clock(tmp_path: Path) -> None:
    with Recorder(tmp_path / "a.ndjson", "a") as recorder:
        recorder.note(EventKind.ASK, call=1)
    text = (tmp_path / "a.ndjson").read_text()
    boot = next(iter(read(tmp_path / "a.ndjson"))).note
    (tmp_path / "b.ndjson").write_text(text.replace(boot, "another-machine"))
    events = load(sorted(tmp_path.glob("*.ndjson")))
    assert all(event.mono_us == event.wall_us for event in events)
