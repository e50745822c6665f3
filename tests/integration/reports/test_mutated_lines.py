"""Trace files in which most lines are broken in every way: the good ones count, none ends the job.

Spark reads them, in Java, so no fuzzer is guided by what they reach; a seed makes the mistakes.
"""

import json
import random
from pathlib import Path

from pyspark.sql import SparkSession

from ackd_reports.frames import reading
from tests.integration.reports.test_bad_input import line, span

GOOD, BROKEN = 150, 2_000
SEED = 18
PIECES = (
    *(b"null", b"[]", b"{}", b"-1", b"1e400", b"99999999999999999999", b'"x"', b"true", b"\\u0000"),
    *(b"\xff", b"\xed\xa0\x80", b"\0", b'"', b",", b"[" * 200, b"}" * 3, b"\\ud800", b"NaN"),
    *(b"stringValue", b"doubleValue", b"arrayValue", b"traceId", b"attributes", b"spans"),
)


def broken(rng: random.Random) -> bytes:
    """A line with a few mistakes."""
    raw = bytearray(line(span(ackd_event=rng.choice(("ack", "commit", "batch", "extend"))))[:-1])
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(raw))
        until = at + rng.choice((0, 0, 1, 3, 20, 200))
        raw[at:until] = rng.choice((*PIECES, bytes((rng.randrange(256),))))
    return bytes(raw).replace(b"\n", b"").replace(b"\r", b"")


def test_good_lines_count_among_broken_ones(spark: SparkSession, tmp_path: Path) -> None:
    rng = random.Random(SEED)
    good = [line(span(messaging_kafka_offset=str(at)))[:-1] for at in range(GOOD)]
    good = [each.replace(b'"traceId": "aa"', b'"traceId": "good"') for each in good]
    lines = [*good, *(broken(rng) for _ in range(BROKEN))]
    rng.shuffle(lines)
    source = tmp_path / "mutated.jsonl"
    source.write_bytes(b"\n".join(lines) + b"\n")
    rows = reading.events(reading.lines(spark, [str(source)])).collect()
    found = sorted(int(row["message"]) for row in rows if row["trace_id"] == "good")
    assert found == list(range(GOOD))
    bad = [row for row in rows if row["kind"] == reading.BAD]
    assert all(row["why"] for row in bad)
    assert all(len(row["text"]) <= reading.QUARANTINE_CHARS for row in bad)
    # What is no JSON to Python either is bad, or has no event.
    unreadable = sum(not _is_json(each) for each in lines)
    told = [row for row in bad if row["why"] == "line is no OTLP JSON"]
    assert unreadable * 0.5 < len(told) <= BROKEN


def _is_json(raw: bytes) -> bool:
    try:
        json.loads(raw)
    except (ValueError, RecursionError):
        return False
    return True
