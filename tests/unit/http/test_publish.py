"""What a publish refuses: headers of ackd's that there are not, and a message without a value."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from ackd.api.messages import Delivery
from ackd.http import routes
from ackd.http.formats.raw import facts
from ackd.http.handlers import own_headers
from ackd.ports import Record
from tests.unit.http.conftest import Running

ONE = "/v1/topics/orders/messages"
BATCH = f"{ONE}:batch"


async def post(
    server: Running, path: str, body: bytes, headers: Mapping[str, str]
) -> tuple[int, list[dict[str, str]]]:
    """(status, errors of the problem)."""
    async with server.data.post(path, data=body, headers=headers) as answer:
        document: dict[str, Any] = await answer.json()
        return answer.status, document.get("errors", [])


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Ackd-Delay", "Ackd-Delay-Ms"),
        ("ackd-delay-seconds", "Ackd-Delay-Ms"),
        ("Ackd-Kye", "Ackd-Key"),
        ("Ackd-Header-", "Ackd-Headers"),
        ("Ackd-Zoom", None),
    ],
)
async def test_an_unknown_header_is_named(server: Running, name: str, hint: str | None) -> None:
    """Nothing is published; with `Ackd-Delay: 5` nobody means: at once."""
    status, errors = await post(server, ONE, b"1", {name: "5", "Ackd-Partition": "x"})
    assert status == 422
    found = {each["pointer"].lower(): each["detail"] for each in errors}
    told = found[f"header:{name.lower()}"]
    assert told == "There is no such header here" + (f"; did you mean {hint}?" if hint else ".")
    assert "header:ackd-partition" in found
    assert not await server.sidecar.published("orders")


async def test_headers_of_others_and_those_of_a_received_message_are_taken(server: Running) -> None:
    """Traces, CloudEvents, message headers of any name, and whatever a receive gives."""
    record = Record(0, b"k", b"1", (("content-type", b"text/plain"), ("Source", b"shop")), 1)
    brought = dict(facts(Delivery("v1.A", "t", 0, record, 1, 2, 0, 0, note="so far")))
    given = brought | {
        "Ackd-Header-ackd-redriven-from": "d/0/1",
        "traceparent": "00-1",
        "ce-kind": "x",
        "Ackd-Worker": "w7",
        "X-Ackd": "1",
    }
    assert {"Ackd-Id", "Ackd-Lease", "Ackd-Key"} <= brought.keys()
    status, errors = await post(server, ONE, b"1", given)
    assert (status, errors) == (201, [])


async def test_a_batch_takes_none_of_the_headers_of_one(server: Running) -> None:
    body = json.dumps({"messages": [{"json": 1}]}).encode()
    kind = {"Content-Type": "application/json"}
    status, [error] = await post(server, BATCH, body, kind | {"Ackd-Delay-Ms": "5"})
    assert (status, error["pointer"].lower()) == (422, "header:ackd-delay-ms")
    assert error["detail"] == "Not with a batch: its messages say it, each for itself."
    assert (await post(server, BATCH, body, kind | {"Ackd-Worker": "w"}))[0] == 200


def test_all_documented_headers_are_known() -> None:
    """The table of routes and what is looked for name the same headers."""
    documented = {
        param.name
        for route in routes.ROUTES
        if route.name == "publish"
        for param in route.params
        if param.where == "header" and param.name.startswith("Ackd-")
    }
    assert documented == set(own_headers.READ)


@pytest.mark.parametrize(
    ("message", "pointer"),
    [
        ({}, "/messages/0"),
        ({"key": "k"}, "/messages/0"),
        ({"text": None}, "/messages/0"),
        ({"base64": None, "tombstone": False}, "/messages/0"),
        ({"tombstone": True, "text": ""}, "/messages/0/tombstone"),
        ({"tombstone": True, "json": 0}, "/messages/0/tombstone"),
        ({"tombstone": True, "base64": "AA=="}, "/messages/0/tombstone"),
    ],
)
async def test_nobody_publishes_a_tombstone_unasked(
    server: Running, message: dict[str, object], pointer: str
) -> None:
    body = json.dumps({"messages": [message]}).encode()
    kind = {"Content-Type": "application/json"}
    status, [error] = await post(server, BATCH, body, kind)
    assert (status, error["pointer"]) == (422, pointer)
    assert not await server.sidecar.published("orders")


@pytest.mark.parametrize(
    ("message", "value"),
    [
        ({"tombstone": True}, None),
        ({"tombstone": True, "json": None}, None),
        ({"tombstone": True, "text": None}, None),
        ({"json": None}, b"null"),
        ({"text": ""}, b""),
        ({"base64": ""}, b""),
        ({"base64": "AP8=", "tombstone": False}, b"\x00\xff"),
    ],
)
async def test_a_value_is_as_it_was_given(
    server: Running, message: dict[str, object], value: bytes | None
) -> None:
    """As a receive shows it, so it is published again: null is JSON, a tombstone says so."""
    body = json.dumps({"messages": [message | {"key": "k"}]}).encode()
    kind = {"Content-Type": "application/json"}
    assert await post(server, BATCH, body, kind) == (200, [])
    [record] = await server.sidecar.published("orders")
    assert record.value == value
