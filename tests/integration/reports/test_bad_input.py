"""Bad lines, bad spans and files cut short: counted with a reason, never a failed job."""

import gzip
import json
from pathlib import Path

from pyspark.sql import SparkSession

from ackd_reports.frames.lake import Lake
from tests.integration.reports.conftest import PLAN, World, report

KEY = {
    "messaging.system": "kafka",
    "messaging.destination.name": "orders",
    "messaging.destination.partition.id": "0",
    "messaging.consumer.group.name": "g",
    "messaging.kafka.offset": "7",
    "ackd.event": "ack",
    "ackd.delivery.attempt": "1",
    "ackd.publish.unix_ms": "1790000000000",
}
SECOND = 1_790_000_000_000_000_000


def span(start: object = SECOND, end: object = SECOND + 10**9, **changed: str | None) -> object:
    """A good span, with attributes changed (None = left out; `_` stands for `.`)."""
    named = dict(KEY)
    for name, value in changed.items():
        attribute = next(each for each in KEY if each.replace(".", "_") == name)
        if value is None:
            del named[attribute]
        else:
            named[attribute] = value
    listed = [{"key": key, "value": {"stringValue": value}} for key, value in named.items()]
    return {
        "traceId": "aa",
        "startTimeUnixNano": str(start),
        "endTimeUnixNano": str(end),
        "attributes": listed,
        "flags": 257,
    }


def line(*spans: object) -> bytes:
    """A line of a trace file."""
    data = {"resourceSpans": [{"resource": {}, "scopeSpans": [{"spans": list(spans)}]}]}
    return json.dumps(data).encode() + b"\n"


FOREIGN = {
    "traceId": "bb",
    "attributes": [{"key": "http.route", "value": {"stringValue": "/"}}],
}


def test_every_reason_is_told_and_the_good_is_used(spark: SparkSession, tmp_path: Path) -> None:
    bad = [
        span(start="yesterday"),
        span(start=SECOND + 2 * 10**9),
        span(end=10**19 - 1),
        span(messaging_kafka_offset=None),
        span(messaging_consumer_group_name=""),
        span(ackd_delivery_attempt="0"),
        span(ackd_delivery_attempt="many"),
        span(ackd_event="dance"),
    ]
    source = tmp_path / "traces"
    source.mkdir()
    (source / "a.jsonl").write_bytes(
        line(span(), *bad, FOREIGN)
        + b"no json at all\n"
        + b'{"resourceSpans": 5}\n'
        + b'{"resourceMetrics": [{"a": 1}]}\n'
        + b"{}\n\n"
        + line(span(messaging_kafka_offset="8", ackd_publish_unix_ms=None))
        + line(span(messaging_kafka_offset="9"))[:-30]
    )
    # The same once more: a line is bad once.
    (source / "b.jsonl").write_bytes((source / "a.jsonl").read_bytes())
    (source / ".hidden.jsonl").write_bytes(line(span(messaging_kafka_offset="10")))
    (source / "c.txt").write_bytes(line(span(messaging_kafka_offset="11")))
    lake = Lake(spark, str(tmp_path / "lake"))
    assert lake.ingest([str(source)]).files == 2
    found = report(lake, tmp_path / "out")
    assert found["quarantine"]["counts"] == {
        "line has no spans": 1,
        "line is no OTLP JSON": 3,
        "span ends before it starts": 1,
        "span without an attempt": 2,
        "span without its message": 2,
        "span without its times": 2,
        "unknown event": 1,
    }
    assert found["totals"]["acked"] == found["totals"]["messages"] == 2
    assert found["durations"]["time_to_ack"]["n"] == 1
    examples = found["quarantine"]["examples"]
    assert {each["file"] for each in examples} == {"a.jsonl"}
    assert any("no json at all" in each["text"] for each in examples)


def test_a_file_cut_short_gives_what_is_whole_in_it(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    source = tmp_path / "traces"
    source.mkdir()
    whole = gzip.compress(line(span()) + line(span(messaging_kafka_offset="8")))
    torn = gzip.compress(line(span(messaging_kafka_offset="9")) * 50)
    (source / "cut.jsonl.gz").write_bytes(whole + torn[: len(torn) // 2])
    lake = Lake(spark, str(tmp_path / "lake"))
    taken = lake.ingest([str(source)])
    assert [Path(name).name for name in taken.cut] == ["cut.jsonl.gz"]
    assert lake.cut() == ["cut.jsonl.gz"]
    assert lake.rows().where("kind = 'life'").select("message").distinct().count() >= 2
    assert PLAN.bad_lines == world.report["quarantine"]["counts"]["line is no OTLP JSON"]


def test_sampled_lives_count_for_those_left_out(spark: SparkSession, tmp_path: Path) -> None:
    """A weight of 4, beside a life that was always kept; its extend span was sampled."""
    weight = {"key": "ackd.sample.weight", "value": {"doubleValue": 4.0}}
    sampled, kept, extended = (
        span(),
        span(messaging_kafka_offset="8"),
        span(messaging_kafka_offset="8", ackd_event="extend"),
    )
    for each in (sampled, extended):
        assert isinstance(each, dict)
        each["attributes"].append(weight)
    (tmp_path / "a.jsonl").write_bytes(line(sampled, kept, extended))
    lake = Lake(spark, str(tmp_path / "lake"))
    lake.ingest([str(tmp_path / "a.jsonl")])
    found = report(lake, tmp_path / "out")
    assert (found["totals"]["messages"], found["totals"]["rows"]) == (5, 2)
    assert found["durations"]["work"]["n"] == 5
