"""Spans at a real OpenTelemetry Collector, and the report that is made of the file it wrote."""

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from pyspark.sql import SparkSession

from ackd_reports.frames.lake import Lake
from tests.integration.http.conftest import Sidecar, call
from tests.integration.reports.conftest import report
from tests.support.collector.server import Collector
from tests.support.otlp import attributes, read_files, read_line
from tests.support.wait import wait_until

pytestmark = [pytest.mark.collector, pytest.mark.slow, pytest.mark.timeout(240)]
COUNT = 300
JSON = {"Content_Type": "application/json"}
WAYS = ("ack", "ack", "ack", "retry", "release", "dead")
"""What becomes of each message, in turn; what comes again is acked."""
Spans = dict[tuple[str, str], dict[str, Any]]


def work(sidecar: Sidecar, count: int) -> None:
    """Publish, hand out and settle so many, until nothing is left."""
    body = json.dumps({"messages": [{"text": str(each)} for each in range(count)]}).encode()
    status, answer = call(sidecar.port, "POST", "/v1/topics/orders/messages:batch", body, **JSON)
    assert status == 200, answer
    seen: set[str] = set()
    ended: set[str] = set()

    def all_ended() -> bool:
        request = {"max": count, "wait_ms": 1000, "lease_ms": 60_000}
        _, answer = call(
            sidecar.port,
            "POST",
            "/v1/subscriptions/orders/receive",
            json.dumps(request).encode(),
            **JSON,
        )
        items = []
        for message in answer["messages"]:
            do = "ack" if message["id"] in seen else WAYS[len(seen) % len(WAYS)]
            seen.add(message["id"])
            items.append({"lease": message["lease"], "do": do})
            if do == "retry":
                items[-1]["delay_ms"] = 0
            if do in ("ack", "dead"):
                ended.add(message["id"])
        if items:
            raw = json.dumps({"items": items}).encode()
            status, _ = call(sidecar.port, "POST", "/v1/settle", raw, **JSON)
            assert status == 200
        return len(ended) == count

    wait_until(all_ended, "every message is settled", timeout_s=60)


def spans_of(lines: Any) -> Spans:
    """By resource and id: all that they say, whatever its order."""
    found: Spans = {}
    for data in lines:
        for resource in data.resource_spans:
            of = attributes(resource.resource)
            for scope in resource.scope_spans:
                for span in scope.spans:
                    flat = MessageToDict(span)
                    flat["attributes"] = attributes(span)
                    flat.setdefault("status", {})  # unset: left out, or empty
                    flat["scope"] = scope.scope.name
                    found[of["ackd.boot.id"], span.span_id.hex()] = {**flat, "of": of}
    return found


def taken(collector: Collector) -> Spans:
    """What it wrote so far, to the last whole line."""
    if not collector.file.exists():
        return {}
    text = collector.file.read_bytes()
    return spans_of(read_line(each) for each in text[: text.rfind(b"\n") + 1].splitlines())


def own(folder: Path) -> Spans:
    """What the sidecar's files say, the one that is being written too."""
    try:
        return spans_of(read_files(folder / "state" / "traces", hidden=True))
    except EOFError:  # a member is being written
        return {}


def stop(sidecar: Sidecar) -> None:
    """In good order: all spans are out."""
    sidecar.process.signal(15)
    assert sidecar.process.wait(60) == 0


def test_a_collector_takes_every_span_as_it_is_and_its_file_makes_the_same_report(
    spark: SparkSession, sidecar: Sidecar, collector: Collector, folder: Path, tmp_path: Path
) -> None:
    work(sidecar, COUNT)
    stop(sidecar)
    mine = own(folder)
    wait_until(lambda: len(taken(collector)) >= len(mine), "the collector has written it")
    assert taken(collector) == mine
    acked = [each for each in mine.values() if each["attributes"]["ackd.event"] == "ack"]
    assert len(acked) == COUNT - COUNT // len(WAYS)
    reports = []
    for name, source in (("own", folder / "state" / "traces"), ("theirs", collector.file)):
        lake = Lake(spark, str(tmp_path / f"lake-{name}"))
        assert lake.ingest([str(source)]).cut == ()
        reports.append(report(lake, tmp_path / name))
    assert reports[0]["totals"]["acked"] == len(acked)
    assert reports[0]["quarantine"]["counts"] == {}
    assert reports[0]["totals"]["dead"] == COUNT // len(WAYS)
    for part in reports[0].keys() - {"made"}:
        assert reports[0][part] == reports[1][part], part


def test_what_happens_while_the_collector_is_away_arrives_when_it_is_back(
    sidecar: Sidecar, collector: Collector, folder: Path
) -> None:
    work(sidecar, COUNT)

    def all_there() -> bool:
        mine = own(folder)
        return bool(mine) and mine.keys() <= taken(collector).keys()

    wait_until(all_there, "the collector has what happened so far", timeout_s=60)
    collector.process.kill()
    before = len(taken(collector))
    work(sidecar, COUNT)  # nothing waits for it
    collector.start()
    stop(sidecar)
    mine = own(folder)
    assert len(mine) > before + COUNT
    wait_until(lambda: len(taken(collector)) >= len(mine), "the collector has written it")
    assert taken(collector) == mine
