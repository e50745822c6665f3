"""Spans on their way out: files that rotate, what a kill leaves, bounds (I8)."""

import asyncio
import gzip
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import orjson
import pytest

from ackd.errors import ConfigError
from ackd.telemetry.spans import SpanEvent
from ackd.telemetry.traces import Traces
from ackd.telemetry.traceway import TraceBatch, TraceExporter
from tests.support.otlp import spans
from tests.support.wait import wait_until_async
from tests.unit.telemetry.acked import LIVES, acks, hidden, metric, traces


def named(folder: Path) -> list[Path]:
    return sorted(folder.glob("ackd-*.jsonl.gz"))


# --- files


async def test_files_have_their_name_when_they_are_whole(tmp_path: Path) -> None:
    made = traces(tmp_path, file_bytes_max=8_000)
    await made.start()
    for part in range(12):
        made.add(SpanEvent.ACK, acks(100, part * 100))
        made.flush()
        for path in named(tmp_path):
            with gzip.open(path) as file:  # whoever looks finds whole lines only
                assert all(orjson.loads(each) for each in file)
    await made.stop()
    assert len(named(tmp_path)) > 2
    assert len(hidden(tmp_path)) == 1, "the counts"
    found = spans(tmp_path)
    offsets = [each["messaging.kafka.offset"] for each in found if each["ackd.event"] == "ack"]
    assert sorted(offsets) == list(range(1_200))
    assert [each["ackd.event"] for each in found[-2:]] == ["stop", "status"]
    assert metric(made, "written") == len(found)
    assert metric(made, "full") == metric(made, "failed") == 0


async def test_an_old_file_gets_its_name_without_more_spans(tmp_path: Path) -> None:
    made = traces(tmp_path, file_ms_max=1_000)
    await made.start()
    made.add(SpanEvent.ACK, acks(3))
    try:
        await wait_until_async(lambda: _there(tmp_path), "a named file")
    finally:
        await made.stop()


async def _there(folder: Path) -> bool:
    return bool(named(folder))


async def test_the_oldest_files_go_when_there_are_too_many(tmp_path: Path) -> None:
    foreign = tmp_path / "ackd-one-two-20260101T000000-000001.jsonl.gz"
    foreign.write_bytes(os.urandom(2_000_000))
    made = traces(tmp_path, file_bytes_max=1_024, disk_bytes_max=1 << 20)
    for number in range(4):
        old = tmp_path / f"ackd-one-20260101T00000{number}-000001.jsonl.gz"
        old.write_bytes(os.urandom(400_000))
    await made.start()
    made.add(SpanEvent.ACK, acks(500))
    await made.stop()
    left = [path.name for path in named(tmp_path)]
    assert foreign.name in left, "another sidecar's"
    assert "ackd-one-20260101T000003-000001.jsonl.gz" in left
    assert "ackd-one-20260101T000000-000001.jsonl.gz" not in left
    own = [path for path in named(tmp_path) if path != foreign]
    assert sum(path.stat().st_size for path in own) <= 1 << 20
    body, _ = made.exports._metrics.render("")
    assert b"ackd_trace_files_deleted_total 2.0" in body


async def test_two_sidecars_of_one_identity_are_told(tmp_path: Path) -> None:
    first = traces(tmp_path)
    await first.start()
    with pytest.raises(ConfigError, match="identity"):
        await traces(tmp_path).start()
    await first.stop()
    await _start_and_stop(traces(tmp_path))


# --- a kill

WRITER = """
import asyncio, sys
from pathlib import Path
from ackd.telemetry.spans import SpanEvent
from tests.unit.telemetry.test_traces import acks, traces

async def main():
    made = traces(Path(sys.argv[1]), flush_ms=50, file_bytes_max=int(sys.argv[2]))
    await made.start()
    made.lost(SpanEvent.EXPIRE)
    number = 0
    while True:
        made.add(SpanEvent.ACK, acks(50, number))
        number += 50
        print(number, flush=True)
        await asyncio.sleep(0.01)

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("torn", [False, True])
def test_a_kill_loses_the_last_moment_and_counts_it(tmp_path: Path, *, torn: bool) -> None:
    """What was made is in the files or counted as lost; nothing is torn."""
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path), "9000000" if torn else "30000"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert writer.stdout is not None
    told = 0
    try:
        for text in writer.stdout:
            told = int(text)
            if told >= 2_500:
                break
    finally:
        writer.send_signal(signal.SIGKILL)
        rest = writer.stdout.read().split()
        writer.stdout.close()
        writer.wait()
    made = int(rest[-1]) if rest else told
    if torn:  # as if the power had gone in the middle of a write
        (hidden,) = tmp_path.glob(".ackd-one-*.gz")
        with hidden.open("ab") as file:
            file.write(hidden.read_bytes()[:77])
    after = traces(tmp_path)
    asyncio.run(_start_and_stop(after))
    last = after.counts.last
    assert last is not None
    assert not list(tmp_path.glob(".*.gz"))
    found = spans(tmp_path)
    kept = [
        each["messaging.kafka.offset"]
        for each in found
        if each["boot"] == last.boot and each["ackd.event"] == "ack"
    ]
    lost = last.lost.get(SpanEvent.ACK, 0)
    # A kill can come between an addition and the line that this test reads.
    assert made <= len(kept) + lost <= made + 50
    assert sorted(kept) == list(range(len(kept))), "lost only at the end"
    assert kept, "what is older than a flush is there"
    (status,) = (s for s in found if s["boot"] == last.boot and s["ackd.event"] == "status")
    assert last.dropped == {SpanEvent.EXPIRE: 1}
    assert status["ackd.spans.dropped.expire"] == 1, "the killed run had not told of it yet"
    assert status["ackd.spans.dropped"] == sum(last.lost.values()) + 1
    assert status.get("ackd.spans.lost.ack", 0) == lost
    assert metric(after, "crash") == sum(last.lost.values())


async def _start_and_stop(made: Traces) -> None:
    await made.start()
    await made.stop()


def test_a_clean_stop_leaves_nothing_to_tell(tmp_path: Path) -> None:
    asyncio.run(_start_and_stop(traces(tmp_path)))
    again = traces(tmp_path)
    asyncio.run(_start_and_stop(again))
    assert again.counts.last is None


# --- bounds


class Stuck:
    """An output that takes nothing until it may."""

    def open(self) -> None:
        pass

    def __init__(self) -> None:
        self.go = threading.Event()
        self.took = 0

    def put(self, batch: TraceBatch) -> int:
        self.go.wait(20)
        self.took += len(batch.spans)
        return 0

    def look(self) -> None:
        pass

    def close(self) -> None:
        pass


def test_a_full_buffer_drops_and_counts_and_never_waits() -> None:
    output = Stuck()
    done: list[int] = []
    way = TraceExporter("stuck", output, 1_000, lambda _, refused: done.append(refused))
    way.start()
    started = time.monotonic()
    taken = [way.offer(TraceBatch("", "{}", acks(100), [100])) for _ in range(50)]
    assert time.monotonic() - started < 5
    assert taken == [True] * 10 + [False] * 40
    assert way.full == 4_000
    output.go.set()
    way.stop()
    assert (way.written, way.failed, output.took) == (1_000, 0, 1_000)
    assert done == [0] * 10


async def test_a_disk_that_fails_costs_spans_and_is_counted(tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    made = traces(folder, flush_ms=60_000)
    await made.start()
    shutil.rmtree(folder)
    folder.write_text("in the way")
    made.add(SpanEvent.ACK, acks(10))
    made.flush()
    await wait_until_async(lambda: _failed(made), "the failure to be counted")
    folder.unlink()
    made.add(SpanEvent.ACK, acks(5, 100))
    await made.stop()
    found = spans(folder)
    assert [s["messaging.kafka.offset"] for s in found if s["ackd.event"] == "ack"] == [
        *range(100, 105)
    ]
    status = found[-1]
    assert status["ackd.event"] == "status"
    assert status["ackd.spans.dropped"] == 11, "the start too"
    assert status["ackd.spans.dropped.ack"] == 10


async def _failed(made: Traces) -> bool:
    return made.exports.exporters[0].failed > 0


def test_a_sample_keeps_its_share(tmp_path: Path) -> None:
    made = traces(tmp_path, sample=0.01)
    kept = sum(LIVES.trace(o) & ((1 << 56) - 1) >= made.threshold for o in range(100_000))
    assert 950 <= kept <= 1_050
    assert '"doubleValue":100.0' in made.weight
