"""CloudEvents in and out, held against the CNCF's own library as the foreign side."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import aiohttp
import pytest
from cloudevents.core.bindings import http as foreign_http
from cloudevents.core.bindings import kafka as foreign_kafka
from cloudevents.core.v1.event import CloudEvent
from hypothesis import given
from hypothesis import strategies as st

from ackd.api.messages import Delivery
from ackd.http.formats.cloudevents import EventForm, event_of, structured_in
from ackd.http.formats.negotiation import CE_BATCH, CE_JSON, OCTETS
from ackd.ports import Record
from tests.unit.http.conftest import Running
from tests.unit.http.test_flow import publish

TOPIC = "/v1/topics/orders/messages"
RECEIVE = "/v1/subscriptions/orders/receive"
TIME = datetime(2026, 11, 21, 15, 16, 17, 250_000, tzinfo=UTC)
OURS = {"ackdlease", "ackdid", "ackdattempt", "ackdattemptsmax", "ackddeadline"}


def event(data: Any = None, **more: Any) -> CloudEvent:
    attributes = {
        "id": "a 1%",
        "source": "/shop/grüße",
        "type": "order.placed",
        "specversion": "1.0",
        "time": TIME,
        "datacontenttype": "application/json",
        "partitionkey": "customer-17",
        **more,
    }
    return CloudEvent({k: v for k, v in attributes.items() if v is not None}, data)


def own(attributes: dict[str, Any]) -> dict[str, Any]:
    """The event's own attributes: without those of the lease."""
    assert set(attributes) >= OURS
    return {name: value for name, value in attributes.items() if name not in OURS}


async def send(server: Running, given: CloudEvent, mode: str) -> None:
    make = {
        "binary": foreign_http.to_binary_event,
        "structured": foreign_http.to_structured_event,
    }[mode]
    message = make(given)
    async with server.data.post(TOPIC, data=message.body, headers=message.headers) as answer:
        assert answer.status == 201, await answer.text()
    await server.sidecar.fetched("orders")


async def take(server: Running, accept: str, prefer: str = "") -> aiohttp.ClientResponse:
    headers = {"Accept": accept, **({"Prefer": prefer} if prefer else {})}
    answer = await server.data.post(RECEIVE, headers=headers)
    await answer.read()
    return answer


@pytest.mark.parametrize("sent", ["binary", "structured"])
@pytest.mark.parametrize("taken", ["binary", "structured", "batch"])
@pytest.mark.parametrize(
    ("data", "kind"),
    [
        ({"total": 9.9, "text": "grüße"}, "application/json"),
        ("some text", "text/plain"),
        (b"\x00\xff", "application/x-thing"),
        (None, None),
    ],
)
async def test_foreign_events_come_back_whole(
    server: Running, sent: str, taken: str, data: Any, kind: str | None
) -> None:
    given_event = event(data, datacontenttype=kind)
    await send(server, given_event, sent)
    if taken == "binary":
        answer = await take(server, OCTETS, "cloudevents=binary")
        assert answer.headers["Preference-Applied"] == "cloudevents=binary"
        # The library takes absent data for empty text.
        headers = dict(answer.headers)
        found = foreign_http.from_http_event(foreign_http.HTTPMessage(headers, await answer.read()))
    elif taken == "structured":
        answer = await take(server, CE_JSON)
        message = foreign_http.HTTPMessage(dict(answer.headers), await answer.read())
        found = foreign_http.from_http_event(message)
    else:
        answer = await take(server, CE_BATCH)
        assert answer.content_type == CE_BATCH
        [one] = json.loads(await answer.read())
        body = json.dumps(one).encode()
        found = foreign_http.from_structured_event(
            foreign_http.HTTPMessage({"content-type": CE_JSON}, body)
        )
    attributes = own(found.get_attributes())
    wanted = dict(given_event.get_attributes())
    if data is None:
        attributes.pop("datacontenttype", None)
        assert not found.get_data()
    else:
        assert found.get_data() == data
    assert attributes == wanted


@pytest.mark.parametrize("mode", ["binary", "structured"])
async def test_in_the_broker_it_stands_as_the_kafka_binding_says(
    server: Running, mode: str
) -> None:
    given_event = event({"n": 1})
    await send(server, given_event, mode)
    [record] = await server.sidecar.published("orders")
    assert record.key == b"customer-17"
    headers = {name: value for name, value in record.headers if value is not None}
    message = foreign_kafka.KafkaMessage(headers, record.key, record.value or b"")
    found = foreign_kafka.from_kafka_event(message)
    assert found.get_data() == {"n": 1}
    attributes = found.get_attributes()
    assert attributes["id"] == "a 1%"
    assert attributes["source"] == "/shop/grüße"


async def test_batch_in_keeps_order_and_bytes(server: Running) -> None:
    raws = [
        b'{"specversion":"1.0","id":"1","source":"s","type":"t","data":{"n":1.10}}',
        b'{ "specversion":"1.0","id":"2","source":"s","type":"t","n":7,"partitionkey":"k"}',
    ]
    body = b"[" + b", ".join(raws) + b"]"
    headers = {"Content-Type": f"{CE_BATCH}; charset=utf-8"}
    async with server.data.post(f"{TOPIC}:batch", data=body, headers=headers) as answer:
        assert answer.status == 200, await answer.text()
        assert len((await answer.json())["results"]) == 2
    await server.sidecar.fetched("orders")
    records = await server.sidecar.published("orders")
    assert [record.value for record in records] == raws
    assert [record.key for record in records] == [None, b"k"]
    answer = await server.data.post(RECEIVE, json={"max": 5}, headers={"Accept": CE_BATCH})
    raw = await answer.read()
    assert b'"data":{"n":1.10}' in raw
    first, second = json.loads(raw)
    assert (first["id"], second["id"], second["n"]) == ("1", "2", 7)
    empty = await take(server, CE_BATCH)
    assert (empty.status, await empty.read()) == (200, b"[]")
    assert (await take(server, CE_JSON)).status == 204


async def test_ordinary_messages_are_events_of_ackd(server: Running) -> None:
    await publish(server, b'{"n": 1.50}', Ackd_Key="k", traceparent="00-1-2-01")
    answer = await take(server, CE_JSON)
    assert answer.headers["Content-Type"] == "application/cloudevents+json; charset=UTF-8"
    raw = await answer.read()
    assert b'"data":{"n": 1.50}' in raw
    found = json.loads(raw)
    assert found["id"] == found["ackdid"] == "orders/0/0"
    assert (found["type"], found["source"]) == ("ackd.message", "/v1/topics/orders")
    assert (found["partitionkey"], found["traceparent"]) == ("k", "00-1-2-01")
    lease = found["ackdlease"]
    async with server.data.post(f"/v1/leases/{lease}/ack") as settled:
        assert (await settled.json()) == {"status": "acked"}


GOOD = {"specversion": "1.0", "id": "1", "source": "s", "type": "t"}


@pytest.mark.parametrize(
    ("wrong", "pointer"),
    [
        ({"id": ""}, "/id"),
        ({"id": 1}, "/id"),
        ({"source": None}, "/source"),
        ({"specversion": "0.3"}, "/specversion"),
        ({"time": "yesterday"}, "/time"),
        ({"Big": "x"}, "/Big"),
        ({"many": [1]}, "/many"),
        ({"half": 1.5}, "/half"),
        ({"data": 1, "data_base64": "AA=="}, "/data_base64"),
        ({"data_base64": "?"}, "/data_base64"),
        ({"subject": ""}, "/subject"),
    ],
)
async def test_what_is_no_event_is_refused_with_the_place(
    server: Running, wrong: dict[str, object], pointer: str
) -> None:
    body = json.dumps({**GOOD, **wrong}).encode()
    async with server.data.post(TOPIC, data=body, headers={"Content-Type": CE_JSON}) as answer:
        assert answer.status == 422
        errors = (await answer.json())["errors"]
    assert [each["pointer"] for each in errors] == [pointer]
    headers = {"Content-Type": CE_BATCH}
    batch = b"[%b,%b]" % (json.dumps(GOOD).encode(), body)
    async with server.data.post(f"{TOPIC}:batch", data=batch, headers=headers) as answer:
        assert [each["pointer"] for each in (await answer.json())["errors"]] == [f"/1{pointer}"]
    assert await server.sidecar.published("orders") == []


async def test_a_name_that_is_not_utf_8_is_refused(server: Running) -> None:
    """It was 500."""
    body = json.dumps(GOOD).encode().replace(b'"id"', b'"i\xff"')
    async with server.data.post(TOPIC, data=body, headers={"Content-Type": CE_JSON}) as answer:
        assert answer.status == 422
        assert [each["pointer"] for each in (await answer.json())["errors"]] == [""]
    headers = {"Content-Type": CE_BATCH}
    batch = b"[%b]" % body
    async with server.data.post(f"{TOPIC}:batch", data=batch, headers=headers) as answer:
        assert answer.status in {400, 422}
    assert await server.sidecar.published("orders") == []


async def test_binary_mode_without_what_it_needs_is_refused(server: Running) -> None:
    headers = {"ce-specversion": "1.0", "ce-id": "1", "ce-type": "t"}
    async with server.data.post(TOPIC, data=b"1", headers=headers) as answer:
        assert answer.status == 422
        assert (await answer.json())["errors"][0]["pointer"] == "header:ce-source"


def delivery(record: Record) -> Delivery:
    return Delivery("v1.x", "orders", 0, record, 1, 17, 0, 1000)


names = st.sampled_from(["ce_id", "ce_type", "ce_source", "ce_specversion", "content-type", "ce_x"])
headers = st.lists(st.tuples(names, st.none() | st.binary(max_size=20)), max_size=8)
payloads = st.sampled_from(["json", "text", "binary"])
kinds = st.sampled_from([b"application/cloudevents+json", b"text/plain", b"a/json", b"x"])
scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=9) | st.floats()
objects = st.dictionaries(st.sampled_from([*GOOD, "data", "data_base64", "n"]), scalars)


@given(headers, st.none() | st.binary(max_size=60), st.none() | st.binary(max_size=9), payloads)
def test_any_message_is_an_event(
    fields: list[tuple[str, bytes | None]], value: bytes | None, key: bytes | None, payload: str
) -> None:
    """Whatever stands in the broker, what goes out is JSON with the attributes that must be."""
    _is_event(event_of(delivery(Record(0, key, value, tuple(fields), 5)), payload))


@given(objects, kinds, payloads)
def test_any_json_is_taken_or_refused_in_words(
    given_object: dict[str, object], kind: bytes, payload: str
) -> None:
    raw = json.dumps(given_object).encode()
    faults: list[tuple[str, str]] = []
    structured_in(raw, "", faults)
    out = event_of(delivery(Record(0, None, raw, (("content-type", kind),), 5)), payload)
    _is_event(out)
    if not faults and kind == b"application/cloudevents+json":
        assert out.attributes["type"] == given_object["type"]


def _is_event(out: EventForm) -> None:
    members = json.loads(out.structured())
    assert all(isinstance(members[name], str) and members[name] for name in GOOD)
    content_type, pairs = out.binary()
    for text in (content_type, *(value for _, value in pairs)):
        assert text.isascii()
        assert text.isprintable()
