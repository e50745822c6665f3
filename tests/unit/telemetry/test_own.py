"""The sidecar's own spans: made by the SDK, read by the official messages, never twice (I8)."""

import logging
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.util.types import AttributeValue

from ackd.telemetry.caller import CALLER, calling
from ackd.telemetry.own import OwnSpans
from ackd.telemetry.spans import MessageSpans, SpanEvent, SpanPlace, text
from ackd.telemetry.trace_line import line
from tests.support.otlp import read_line, spans
from tests.unit.telemetry.acked import acks, traces

NASTY = 'a "quoted" 100%s \\ \n\t name é\u2028'
PARENT = f"00-{'ab' * 16}-{'cd' * 8}-01"
RESOURCE = {"service.name": "ackd"}
LIVES = MessageSpans(SpanPlace("kafka", "c", "work", "work", "orders", bytes(16), 3), 0, "till")


def only(made: list[str]) -> Span:
    """The one span, read by the official messages."""
    data = read_line(line(text("service.name", NASTY), made, '{"name":"ackd"}'))
    (span,) = data.resource_spans[0].scope_spans[0].spans
    return span


def test_a_span_of_the_sdk_is_read_by_the_official_messages() -> None:
    made: list[str] = []
    own = OwnSpans(RESOURCE, made.append)
    values: dict[str, AttributeValue] = {
        "t": NASTY,
        "n": -5,
        "yes": True,
        "half": 0.5,
        "many": ("a", "b"),
    }
    own.tell(NASTY, values, (5, 7), "s", error=True)
    span = only(made)
    found = {each.key: each.value for each in span.attributes}
    assert len(found) == len(span.attributes) == len(values)
    assert found["t"].string_value == NASTY
    assert found["n"].int_value == -5
    assert found["yes"].bool_value
    assert found["half"].double_value == 0.5
    assert [each.string_value for each in found["many"].array_value.values] == ["a", "b"]
    assert (span.name, span.kind) == (NASTY, Span.SPAN_KIND_INTERNAL)
    assert (span.start_time_unix_nano, span.end_time_unix_nano) == (5_000, 7_000)
    assert (len(span.trace_id), len(span.span_id), span.parent_span_id) == (16, 8, b"")
    assert span.status.code == 2
    assert not span.events


def test_what_is_told_again_has_the_same_ids_and_nothing_else_has() -> None:
    made: list[str] = []
    for _ in range(2):
        own = OwnSpans(RESOURCE, made.append)
        for seed in ("seek/1", "seek/2"):
            own.tell("seek", {}, (1, 1), seed)
    ids = [(each.trace_id, each.span_id) for each in (only([one]) for one in made)]
    assert ids[:2] == ids[2:]
    assert len(set(ids)) == 2
    assert len({one for pair in ids for one in pair}) == 4


def test_the_caller_is_the_parent_if_its_context_is_valid() -> None:
    made: list[str] = []
    own = OwnSpans(RESOURCE, made.append)
    own.tell("config", {}, (1, 1), "a", caller={"traceparent": PARENT, "tracestate": "x=1,y=2"})
    span = only(made)
    assert (span.trace_id, span.parent_span_id) == (b"\xab" * 16, b"\xcd" * 8)
    assert span.trace_state == "x=1,y=2"
    assert span.flags == 0x301
    assert span.span_id != span.parent_span_id
    for wrong in ("", "nonsense", PARENT.replace("ab", "00"), f"{PARENT}-more"):
        made.clear()
        own.tell("config", {}, (1, 1), "b", caller={"traceparent": wrong})
        assert only(made).parent_span_id == b"", wrong


def test_a_caller_that_does_not_sample_takes_nothing_away() -> None:
    """Reports count on these spans."""
    made: list[str] = []
    caller = {"traceparent": f"{PARENT[:-2]}00"}
    OwnSpans(RESOURCE, made.append).tell("config", {}, (1, 1), "a", caller=caller)
    assert only(made).trace_id == b"\xab" * 16


def test_who_calls_is_known_in_the_block_only() -> None:
    with calling({"traceparent": PARENT, "authorization": "Bearer secret"}):
        assert CALLER.get() == {"traceparent": PARENT}
    assert CALLER.get() is None
    with calling({"tracestate": "x=1"}):
        assert CALLER.get() is None


def test_a_clock_that_went_back_gives_no_negative_time() -> None:
    made: list[str] = []
    OwnSpans(RESOURCE, made.append).tell("outage", {}, (9, 7), "a")
    span = only(made)
    assert span.start_time_unix_nano == span.end_time_unix_nano == 7_000


def test_the_sdks_environment_takes_nothing_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sidecar inherits what the application's container has set."""
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=other")
    monkeypatch.setenv("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "1")
    monkeypatch.setenv("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "1")
    made: list[str] = []
    OwnSpans(RESOURCE, made.append).tell("start", {"a": "long", "b": "long"}, (1, 1), "a")
    assert [each.value.string_value for each in only(made).attributes] == ["long", "long"]


def test_a_disabled_sdk_is_told_and_leaves_messages_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    made: list[str] = []
    with caplog.at_level(logging.WARNING, "ackd.traces"):
        OwnSpans(RESOURCE, made.append).tell("start", {}, (1, 1), "a")
    assert not made
    assert "OTEL_SDK_DISABLED" in caplog.text


async def test_own_spans_leave_by_the_way_of_all_others(tmp_path: Path) -> None:
    """One resource, one writer, in order; nothing global is set, and boots do not share ids."""
    for _ in range(2):
        made = traces(tmp_path)
        made.own("early")  # before the start there is nowhere to put it
        await made.start()
        made.add(SpanEvent.ACK, acks(2))
        made.own("takeover", LIVES.attributes, of="orders", start_us=1_000)
        await made.stop()
    found = spans(tmp_path)
    told = ["start", "ack", "ack", "takeover", "stop", "status"]
    assert [each["ackd.event"] for each in found] == told * 2
    own = [each for each in found if each["ackd.event"] != "ack"]
    assert len({each["trace"] for each in own}) == len(own)
    assert len({each["boot"] for each in found}) == 2
    assert all(one["end"] <= other["end"] for one, other in pairwise(own))
    takeover = own[1]
    assert (takeover["name"], takeover["start"]) == ("takeover orders", 1_000_000)
    assert takeover["ackd.application"] == "till"
    assert takeover["messaging.destination.partition.id"] == "3"
    assert own[3]["ackd.spans.dropped"] == 0
    assert isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def test_attributes_are_those_of_message_spans() -> None:
    """`common`, which message spans have as text, and `attributes` are the same."""
    made: list[str] = []
    OwnSpans(RESOURCE, made.append).tell("takeover", LIVES.attributes, (1, 1), "a")
    own = {each.key: each.value for each in only(made).attributes}
    span = only([LIVES.span(SpanEvent.ACK, 1, 1, 1, 1, 1)])
    common = {each.key: each.value for each in span.attributes}
    assert own == {key: common[key] for key in own}
    assert LIVES.common.count('"key"') == len(own)


def test_the_sdk_is_loaded_when_traces_are_on_only() -> None:
    code = (
        "import sys, ackd.cli.commands.serve, ackd.engine.runtime;"
        "import ackd.serve, ackd.telemetry.traces;"
        "print(*sorted(each for each in sys.modules if each.startswith('opentelemetry')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
