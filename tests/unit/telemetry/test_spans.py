"""Spans as text: what the official messages read in them."""

import json
from base64 import b16decode

import pytest
from google.protobuf.json_format import Parse
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.trace.v1.trace_pb2 import Span, TracesData

from ackd.telemetry.acked import DEADLINE, END, PUBLISHED, texts
from ackd.telemetry.spans import (
    CONSUMER,
    INTERNAL,
    MASK_64,
    MessageSpans,
    SpanEvent,
    SpanPlace,
    link,
    number,
    ranges,
    text,
    truth,
    whole,
)
from ackd.telemetry.trace_line import line, line_parts
from tests.support.otlp import read_line

SHAPED = [event for event in SpanEvent if event < SpanEvent.RECEIVE]
NASTY = 'a "quoted" 100%s \\ \n\t name é\u2028'
PARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def lives(system: str = "kafka", topic: str = "orders", epoch: int = 0) -> MessageSpans:
    place = SpanPlace(system, "c%d", NASTY, NASTY, topic, bytes(range(16)), 3)
    return MessageSpans(place, epoch, NASTY)


def only(data: TracesData) -> Span:
    (span,) = data.resource_spans[0].scope_spans[0].spans
    return span


@pytest.mark.parametrize("event", SHAPED)
@pytest.mark.parametrize("system", ["kafka", "local"])
def test_every_kind_is_read_by_the_official_messages(event: SpanEvent, system: str) -> None:
    more = f",{number('n', -5)},{text('t', NASTY)},{truth('yes')}"
    made = lives(system, NASTY).span(event, 7, 2, 99_000_123, 5, 100_000, more, link(PARENT), 4)
    span = only(read_line(line(text("service.name", NASTY), [made], '{"name":"ackd"}')))
    found = {each.key: each.value for each in span.attributes}
    assert len(found) == len(span.attributes), "a key twice"
    assert found["ackd.event"].string_value == event.name.lower()
    assert found["ackd.subscription"].string_value == NASTY
    assert found["messaging.message.id"].string_value == f"{NASTY}/3/7"
    offset = "messaging.kafka.offset" if system == "kafka" else "ackd.offset"
    assert found[offset].int_value == 7
    assert found["ackd.delivery.attempt"].int_value == 2
    assert found["ackd.lease.fence"].int_value == 99_000_123
    assert found["n"].int_value == -5
    assert found["t"].string_value == NASTY
    assert found["yes"].bool_value
    assert (span.start_time_unix_nano, span.end_time_unix_nano) == (5_000, 100_000_000_000)
    assert len(span.trace_id) == 16
    assert len(span.span_id) == 8
    assert span.links[0].trace_id == b16decode("0AF7651916CD43DD8448EB211C80319C")
    assert span.links[0].span_id == b16decode("B7AD6B7169203331")
    assert NASTY in span.name
    assert bool(span.status.code) == (event in (SpanEvent.EXPIRE, SpanEvent.DEAD, SpanEvent.LATE))


def test_a_start_after_the_end_is_the_end() -> None:
    span = only(read_line(line("", [lives().span(SpanEvent.ACK, 1, 1, 9, 5_001, 5)], "{}")))
    assert span.start_time_unix_nano == span.end_time_unix_nano == 5_000_000


@given(
    st.integers(0, 1 << 62),
    st.integers(1, 1 << 20),
    st.integers(0, 1 << 62),
    st.integers(0, 1 << 53),
    st.sampled_from([None, PARENT, b"00-no"]),
)
def test_what_is_written_late_is_what_would_be_written_at_once(
    offset: int, attempt: int, fence: int, end_ms: int, parent: bytes | None
) -> None:
    one, other = lives(), lives("local", NASTY)
    more, holder = f",{truth('ackd.late')}", f",{text('ackd.holder', NASTY)}"
    facts = offset, attempt, fence, end_ms, 5, 6, holder, parent, more
    all_of_it = f"{more}{DEADLINE}5{PUBLISHED}6{END}{holder}"
    at_once = [
        of.span(SpanEvent.ACK, offset, attempt, fence, fence, end_ms, all_of_it, link(parent))
        for of in (one, other, one)
    ]
    assert texts([(of, *facts) for of in (one, other, one)]) == at_once


@pytest.mark.parametrize("spans", [0, 1, 48, 49])
@pytest.mark.parametrize("acks", [0, 1, 96, 97])
def test_a_line_has_all_of_both(spans: int, acks: int) -> None:
    of = lives()
    made = [of.span(SpanEvent.RETRY, at, 1, 9, 5, 6) for at in range(spans)]
    late = [(of, at, 1, 9, 5, 6, 7, "", None, "") for at in range(acks)]
    data = read_line(b"".join(line_parts(text("a", "b"), made, "{}", late)))
    assert len(data.resource_spans[0].scope_spans[0].spans) == spans + acks


def test_batches_and_own_spans_are_read_too() -> None:
    batch = lives().batch(SpanEvent.RECEIVE, 5, 7, f",{text('ackd.offsets', '1-3')}", 1)
    own = whole(1 << 127, "start ackd", INTERNAL, (1, 2), text("ackd.event", "start"))
    data = read_line(line(text("a", "b"), [batch, own], '{"name":"ackd","version":"1"}'))
    names = [span.name for span in data.resource_spans[0].scope_spans[0].spans]
    assert names == ["receive orders", "start ackd"]


def test_the_check_can_fail() -> None:
    made = lives().span(SpanEvent.ACK, 1, 1, 9, 5, 5)
    with pytest.raises(ValueError, match="unknown"):
        read_line(line("", [made.replace('"kind"', '"sort"')], "{}"))


def test_ids_hang_on_what_happened_and_on_nothing_else() -> None:
    def ids(made: str) -> tuple[str, str]:
        span = json.loads(made)
        return span["traceId"], span["spanId"]

    one, other = lives(), lives()
    assert ids(one.span(SpanEvent.ACK, 7, 1, 9, 5, 6)) == ids(
        other.span(SpanEvent.ACK, 7, 1, 9, 8, 9)
    )
    trace, span = ids(one.span(SpanEvent.ACK, 7, 1, 9, 5, 6))
    for event, offset, fence, ordinal in (
        (SpanEvent.RETRY, 7, 9, 0),
        (SpanEvent.ACK, 7, 10, 0),
        (SpanEvent.ACK, 7, 9, 1),
    ):
        same, another = ids(one.span(event, offset, 1, fence, 5, 6, ordinal=ordinal))
        assert same == trace
        assert another != span
    assert ids(one.span(SpanEvent.ACK, 8, 1, 9, 5, 6))[0] != trace
    assert ids(lives(epoch=1).span(SpanEvent.ACK, 7, 1, 9, 5, 6))[0] != trace


def test_samples_are_even_whatever_offsets_exist() -> None:
    """Neighbours, even ones only (transactions), and batches: the share is that of the sample."""
    made = lives()
    for step in (1, 2, 3, 32, 1000):
        kept = sum(made.trace(o * step) & ((1 << 56) - 1) >= 0.9 * (1 << 56) for o in range(20_000))
        assert 1_900 <= kept <= 2_100, f"step {step}: {kept}"


@pytest.mark.parametrize(
    "bad",
    [
        None,
        b"",
        b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
        b"00-" + b"0" * 32 + b"-b7ad6b7169203331-01",
        b"00-0af7651916cd43dd8448eb211c80319c-" + b"0" * 16 + b"-01",
        b"00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
        b'00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}]',
        b"\xff" * 55,
        b"000-af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    ],
)
def test_a_bad_context_is_no_link(bad: bytes | None) -> None:
    assert link(bad) == ""


def test_a_context_of_a_later_version_is_read_as_far_as_it_is_known() -> None:
    assert link(PARENT.replace(b"00-0af", b"01-0af") + b"-more") == link(PARENT) != ""


@given(st.lists(st.integers(0, 300), max_size=60))
def test_ranges_hold_exactly_the_offsets(offsets: list[int]) -> None:
    found: list[int] = []
    for part in filter(None, ranges(list(offsets)).split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    assert found == sorted(set(offsets))


def test_kinds_are_those_of_the_specification() -> None:
    assert CONSUMER == Span.SPAN_KIND_CONSUMER
    assert INTERNAL == Span.SPAN_KIND_INTERNAL
    assert Parse("{}", TracesData()) == TracesData()
    assert MASK_64 == 2**64 - 1
