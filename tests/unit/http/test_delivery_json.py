"""Hand-made bytes are read back: JSON by the documented structs, headers by the stdlib."""

from __future__ import annotations

import base64
import json
from contextlib import suppress
from http.client import HTTPMessage, parse_headers
from io import BytesIO

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackd.api.messages import Delivery, Received, SettleResult, Status
from ackd.errors import ClientError, NotAcceptableError, StoreError
from ackd.http.formats import delivery_json, model, raw
from ackd.http.formats.decode import BodyDecoder
from ackd.http.formats.negotiation import CE_BATCH, JSON, OCTETS, Negotiator, preferred_wait_ms
from ackd.ports import Record

READ = msgspec.json.Decoder(model.Messages, strict=True)

values = st.one_of(
    st.none(),
    st.binary(max_size=200),
    st.text(max_size=50).map(str.encode),
    st.recursive(
        st.none()
        | st.booleans()
        | st.floats(allow_nan=False)
        | st.integers()
        | st.text(max_size=9),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
        max_leaves=8,
    ).map(lambda value: json.dumps(value).encode()),
)
names = st.text(min_size=1, max_size=20) | st.sampled_from(["content-type", "Trace", "\udcff"])
headers = st.lists(st.tuples(names, st.none() | st.binary(max_size=30)), max_size=5).map(tuple)
numbers = st.integers(0, 2**53)


@st.composite
def deliveries(draw: st.DrawFn) -> Delivery:
    key = draw(st.none() | st.binary(max_size=30))
    record = Record(draw(numbers), key, draw(values), draw(headers), draw(numbers))
    return Delivery(
        lease="v1.AAAA-_",
        topic=draw(st.text(min_size=1, max_size=10)),
        partition=draw(st.integers(0, 2**31)),
        record=record,
        attempt=draw(st.integers(1, 65535)),
        attempts_max=draw(st.integers(1, 65535)),
        first_seen_ms=draw(numbers),
        deadline_ms=draw(numbers),
        note=draw(st.none() | st.text(max_size=30)),
    )


def value_of(text: str | model.Base64Text | None) -> bytes | None:
    if isinstance(text, model.Base64Text):
        return base64.b64decode(text.base64, validate=True)
    return None if text is None else text.encode()


@given(st.lists(deliveries(), max_size=3), st.sampled_from(["json", "text", "binary"]))
def test_what_is_read_is_what_was_there(given_: list[Delivery], payload: str) -> None:
    """Bytes in, same bytes out; every answer is also readable for the strict parsers of others."""
    encoded = delivery_json.DeliveryEncoder(payload).received(Received(given_))
    read = READ.decode(encoded)
    json.loads(encoded)
    assert len(read.messages) == len(given_)
    for message, delivery in zip(read.messages, given_, strict=True):
        record = delivery.record
        assert message.topic == delivery.topic
        assert message.id == delivery.id
        assert (message.attempt, message.published_ms) == (delivery.attempt, record.timestamp_ms)
        assert value_of(message.key) == record.key
        assert (message.note if _has(message, "note") else None) == delivery.note
        assert [value_of(value) for _, value in message.headers] == [v for _, v in record.headers]
        _check_value(message, record.value, payload)


def _check_value(message: model.Message, value: bytes | None, payload: str) -> None:
    given_ = [name for name in ("json", "text", "base64") if _has(message, name)]
    assert len(given_) == 1
    assert given_[0] in {"base64" if payload == "binary" else payload, "base64"}
    assert (message.tombstone is True) == (value is None)
    if value is None:
        return
    if isinstance(message.json, msgspec.Raw):
        assert bytes(message.json) == value.strip(b" \t\r\n")
    elif isinstance(message.text, str):
        assert message.text.encode() == value
    else:
        assert isinstance(message.base64, str)
        assert base64.b64decode(message.base64, validate=True) == value


def _has(message: model.Message, name: str) -> bool:
    return getattr(message, name) is not msgspec.UNSET


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_only_json_is_embedded(value: bytes) -> None:
    """Whatever passes as JSON is JSON for the standard library, too."""
    if delivery_json.is_json(value):
        json.loads(value.decode())


@pytest.mark.parametrize(
    "value",
    [b"NaN", b"{} {}", b"[1,]", b"\xef\xbb\xbf{}", b'"\xed\xa0\x80"', b"[" * 100_000, b"", b"01"],
)
def test_nearly_json_is_not_embedded(value: bytes) -> None:
    assert not delivery_json.is_json(value)


def test_digits_of_numbers_are_kept() -> None:
    value = b'{"price":12.340000000000000001,"n":1E400}'
    record = Record(0, None, value, (), 0)
    delivery = Delivery("v1.A", "t", 0, record, 1, 2, 0, 0)
    assert value in delivery_json.DeliveryEncoder("json").one(delivery)


# --- the raw form ---------------------------------------------------------------------------------


plain_headers = st.lists(
    st.tuples(st.from_regex(r"[A-Za-z][A-Za-z-]{0,8}", fullmatch=True), st.binary(max_size=9)),
    max_size=4,
).map(tuple)


@given(plain_headers, st.binary(max_size=9))
def test_header_lines_keep_every_byte(pairs: tuple[tuple[str, bytes], ...], key: bytes) -> None:
    record = Record(7, key, b"", pairs, 5)
    facts = raw.facts(Delivery("v1.A", "t", 0, record, 1, 2, 0, 0))
    lines = "".join(f"{name}: {text}\r\n" for name, text in facts) + "\r\n"
    read = parse_headers(BytesIO(lines.encode("ascii")))
    assert (read["Ackd-Id"], read["Ackd-Lease"]) == ("t/0/7", "v1.A")
    _check_key(read, key)
    _check_headers(read, record)


def _check_key(read: HTTPMessage, key: bytes | None) -> None:
    if "Ackd-Key" in read:
        assert read["Ackd-Key"].encode() == key
    else:
        assert base64.b64decode(read["Ackd-Key-Base64"]) == key


def _check_headers(read: HTTPMessage, record: Record) -> None:
    if "Ackd-Headers" in read:
        listed = msgspec.json.decode(
            str(read["Ackd-Headers"]), type=list[tuple[str, str | model.Base64Text | None]]
        )
        assert tuple((name, value_of(value)) for name, value in listed) == record.headers
    else:
        start = "ackd-header-"
        found = [(n[len(start) :], v.encode()) for n, v in read.items() if n.lower()[:12] == start]
        assert found == list(record.headers)


def test_values_that_would_break_a_header_line_are_not_written_as_one() -> None:
    for value in (b"a\r\nEvil: 1", b"\x00", "ü".encode(), b" a", b"a ", b"\x7f"):
        assert raw.plain(value) is None
    for value in (b"", b"a", b"a b", b'{"x":1}'):
        assert raw.plain(value) == value.decode()


# --- results --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (SettleResult(Status.ACKED), {"status": "acked"}),
        (SettleResult(Status.ACKED, late=True), {"status": "acked", "late": True}),
        (
            SettleResult(Status.LOST, now_state="dead", now_attempt=3),
            {"status": "lost", "now": {"state": "dead", "attempt": 3}},
        ),
        (SettleResult(Status.EXTENDED, deadline_ms=0), {"status": "extended", "deadline_ms": 0}),
        (SettleResult(Status.RETRYING, due_ms=9), {"status": "retrying", "due_ms": 9}),
    ],
)
def test_results(result: SettleResult, expected: dict[str, object]) -> None:
    assert orjson.loads(delivery_json.result(result)) == expected
    msgspec.json.decode(delivery_json.result(result), type=model.Result, strict=True)


def test_unavailable_result_carries_its_problem() -> None:
    encoded = delivery_json.result(SettleResult(Status.UNAVAILABLE, error=StoreError()))
    read = msgspec.json.decode(encoded, type=model.Result, strict=True)
    assert isinstance(read.problem, model.Problem)
    assert read.problem.type == "/problems/store-unavailable"


# --- requests -------------------------------------------------------------------------------------


def test_publish_body_keeps_the_very_bytes_of_its_json() -> None:
    body = BodyDecoder(model.MessageBody).decode(b'{"json": {"n": 1.00 }, "headers":[["a",null]]}')
    assert isinstance(body.json, msgspec.Raw)
    assert bytes(body.json) == b'{"n": 1.00 }'


@given(st.binary(max_size=80))
def test_no_bytes_make_the_decoder_fail_in_another_way(body: bytes) -> None:
    """Bad input is a ClientError, whatever it is."""
    for kind in (model.ReceiveBody, model.SettleBody, model.BatchBody):
        with suppress(ClientError):
            BodyDecoder(kind).decode(body)


# --- Accept and Prefer ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        ("", JSON),
        ("*/*", JSON),
        ("application/*", JSON),
        ("application/json; charset=utf-8", JSON),
        ("application/octet-stream", OCTETS),
        ("application/cloudevents-batch+json, application/json;q=0.5", CE_BATCH),
        ("application/json;q=0, */*;q=0.1", OCTETS),
        ("text/html, application/xhtml+xml, */*;q=0.8", JSON),
        ("APPLICATION/JSON", JSON),
        ("image/png", None),
        ("application/json;q=0", None),
        ("application/json;q=x", None),
        (",;,", None),
    ],
)
def test_accept(accept: str, chosen: str | None) -> None:
    negotiator = Negotiator([JSON, OCTETS, CE_BATCH])
    for _ in range(2):
        if chosen is None:
            with pytest.raises(NotAcceptableError):
                negotiator.choose(accept)
        else:
            assert negotiator.choose(accept) == chosen


@pytest.mark.parametrize(
    ("prefer", "wait_ms"),
    [
        (None, None),
        ("wait=20", 20_000),
        ("respond-async, WAIT=1", 1_000),
        ('handling=strict,wait="5"; foo', 5_000),
        ("wait=-1", None),
        ("wait", None),
        ("await=3", None),
        ("wait=99999999999999", None),
    ],
)
def test_prefer(prefer: str | None, wait_ms: int | None) -> None:
    assert preferred_wait_ms(prefer) == wait_ms
