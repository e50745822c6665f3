"""Bad lines, bad spans and files cut short: counted with a reason, never a failed job."""

import gzip
import json
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from ackd_reports.frames import partials, reading
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
    # Its end is as it was written, so only the read of it tells.
    (source / "damaged.jsonl.gz").write_bytes(whole + torn[: len(torn) // 2] + whole)
    (source / "empty.jsonl.gz").write_bytes(b"")
    lake = Lake(spark, str(tmp_path / "lake"))
    taken = lake.ingest([str(source)])
    broken = ["cut.jsonl.gz", "damaged.jsonl.gz"]
    assert [Path(name).name for name in taken.cut] == broken
    assert lake.files() == (3, broken)
    found = lake.rows().where("kind = 'life'").select("message").distinct().collect()
    assert {"7", "8"} <= {row["message"] for row in found}
    assert PLAN.bad_lines == world.report["quarantine"]["counts"]["line is no OTLP JSON"]


def test_what_a_span_says_is_put_together_once(spark: SparkSession, tmp_path: Path) -> None:
    """A map of its attributes, beside that of its run's."""
    (tmp_path / "a.jsonl").write_bytes(line(span()))
    found = partials.partials(reading.events(reading.lines(spark, [str(tmp_path)])))
    frame: Any = found
    plan = frame._jdf.queryExecution().optimizedPlan().toString()
    assert plan.count("map_from_entries(") == 2


def batch(event: str, at_ms: int, named: str, count: int, **more: str) -> object:
    """A batch of the same partition, so many milliseconds after `SECOND`."""
    at = SECOND + at_ms * 10**6
    made = span(at, at, ackd_event=event)
    assert isinstance(made, dict)
    told = {"ackd.offsets": named, "messaging.batch.message_count": str(count), **more}
    left = [each for each in made["attributes"] if "offset" not in each["key"]]
    added = [{"key": key, "value": {"stringValue": value}} for key, value in told.items()]
    return {**made, "attributes": left + added}


def sampled_lives() -> list[object]:
    """A weight of 4, beside a life that was always kept; its extend span was sampled."""
    weight = {"key": "ackd.sample.weight", "value": {"doubleValue": 4.0}}
    first, kept, extended = (
        span(messaging_destination_name="sampled"),
        span(messaging_destination_name="sampled", messaging_kafka_offset="8"),
        span(
            messaging_destination_name="sampled",
            messaging_kafka_offset="8",
            ackd_event="extend",
        ),
    )
    for each in (first, extended):
        assert isinstance(each, dict)
        each["attributes"].append(weight)
    return [first, kept, extended]


def test_samples_weigh_and_batches_show_what_was_not_sampled(
    spark: SparkSession, tmp_path: Path
) -> None:
    """I2 from batches alone: of offsets 20 to 29 one is handed out again after its ack in the same
    reset epoch; another one in the next epoch and another one of a newer topic of that name, as it
    should be. A sampled life counts for those left out.
    """
    good = [
        batch("receive", 0, "20-29", 10),
        batch("settle", 10, "20-29", 10),
        batch("receive", 20, "23", 1, **{"ackd.again": "1"}),
        batch("receive", 20, "24", 1, **{"ackd.reset.epoch": "1"}),
        batch("receive", 20, "25", 1, **{"ackd.topic.id": "ff"}),
        batch("receive", 11, "26", 1),
    ]
    bad = [
        batch("receive", 30, "1-1000000000000", 5),
        batch("receive", 30, "1,a", 5),
        batch("receive", 30, "0-5000000,5000000-0", 9),
    ]
    again = [*sampled_lives(), good[0]]
    (tmp_path / "a.jsonl").write_bytes(line(*sampled_lives(), *good, *bad) + line(*again))
    lake = Lake(spark, str(tmp_path / "lake"))
    lake.ingest([str(tmp_path / "a.jsonl")])
    found = report(lake, tmp_path / "out")
    assert [each["message"] for each in found["acked_again"]] == ["23"]
    assert found["verdict"] == "broken"
    assert found["quarantine"]["counts"] == {"batch without its messages": 3}
    assert [(each["deliveries"], each["redeliveries"]) for each in found["batches"]] == [(14, 1)]
    (sampled,) = [each for each in found["groups"] if each["topic"] == "sampled"]
    assert (sampled["messages"], sampled["rows"]) == (5, 2)
    assert sampled["durations"]["work"]["n"] == 5
