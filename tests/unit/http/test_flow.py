"""Publish, receive, settle over HTTP: what a client sees (rules R21 and R22 among it)."""

from __future__ import annotations

import base64
import io
from typing import Any

import pytest

from tests.unit.http.conftest import Running


@pytest.fixture
def names() -> tuple[str, ...]:
    """One of each payload."""
    return ("orders", "notes", "images")


async def publish(server: Running, body: bytes, topic: str = "orders", **headers: str) -> None:
    """Publish, and wait until the subscription has it."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    path = f"/v1/topics/{topic}/messages"
    async with server.data.post(path, data=io.BytesIO(body), headers=named) as answer:
        assert answer.status == 201, await answer.text()
    await server.sidecar.fetched(topic)


async def receive(server: Running, topic: str = "orders", **body: object) -> Any:
    async with server.data.post(f"/v1/subscriptions/{topic}/receive", json=body) as answer:
        assert answer.status == 200, await answer.text()
        return await answer.json()


async def settle(server: Running, *items: dict[str, object]) -> Any:
    async with server.data.post("/v1/settle", json={"items": list(items)}) as answer:
        assert answer.status == 200, await answer.text()
        return (await answer.json())["results"]


async def test_a_message_goes_round(server: Running) -> None:
    await publish(server, b'{"n": 1.0}', Ackd_Key="k", Ackd_Header_Color="red")
    [message] = (await receive(server))["messages"]
    assert message["json"] == {"n": 1.0}
    assert message["key"] == "k"
    assert ["Color", "red"] in message["headers"]
    assert message["attempt"] == 1
    assert message["id"] == "orders/0/0"
    results = await settle(server, {"lease": message["lease"], "do": "ack"})
    assert results == [{"status": "acked"}]
    results = await settle(server, {"lease": message["lease"], "do": "ack"})
    assert results == [{"status": "already_acked"}]
    assert (await receive(server))["messages"] == []


async def test_joined_call_settles_and_receives(server: Running) -> None:
    for number in range(3):
        await publish(server, b"%d" % number)
    [first] = (await receive(server))["messages"]
    answer = await receive(server, settle=[{"lease": first["lease"], "do": "ack"}], max=5)
    assert answer["settled"] == [{"status": "acked"}]
    assert [each["json"] for each in answer["messages"]] == [1, 2]


@pytest.mark.parametrize(
    ("topic", "value", "field", "expected"),
    [
        ("orders", b' {"a":1} ', "json", {"a": 1}),
        ("orders", b"not json", "base64", base64.b64encode(b"not json").decode()),
        ("orders", b'"\xff"', "base64", base64.b64encode(b'"\xff"').decode()),
        ("orders", b"null", "json", None),
        ("notes", "grüße\n".encode(), "text", "grüße\n"),
        ("notes", b"\xff\x00", "base64", base64.b64encode(b"\xff\x00").decode()),
        ("images", b"abc", "base64", "YWJj"),
        ("images", b"", "base64", ""),
    ],
)
async def test_bytes_in_are_bytes_out(
    server: Running, topic: str, value: bytes, field: str, expected: object
) -> None:
    """Rule 6 of the design: exactly one field holds the value, chosen by the subscription."""
    await publish(server, value, topic)
    [message] = (await receive(server, topic))["messages"]
    assert message[field] == expected
    assert len({"json", "text", "base64"} & set(message)) == 1
    assert "tombstone" not in message


async def test_tombstone_is_not_the_json_null(server: Running) -> None:
    await publish(server, b"", Ackd_Tombstone="true", Ackd_Key_Base64="AP8=")
    [message] = (await receive(server))["messages"]
    assert message["json"] is None
    assert message["tombstone"] is True
    assert message["key"] == {"base64": "AP8="}


async def test_headers_keep_order_repeats_and_bytes(server: Running) -> None:
    body = {
        "messages": [
            {
                "text": "x",
                "headers": [["b", "1"], ["a", "2"], ["b", {"base64": "/w=="}], ["n", None]],
            }
        ]
    }
    async with server.data.post("/v1/topics/orders/messages:batch", json=body) as answer:
        assert (await answer.json())["results"] == [{"status": "stored", "id": "orders/0/0"}]
    await server.sidecar.fetched("orders")
    [message] = (await receive(server))["messages"]
    assert message["headers"] == [["b", "1"], ["a", "2"], ["b", {"base64": "/w=="}], ["n", None]]


async def test_single_forms_map_results_to_statuses(server: Running) -> None:
    await publish(server, b"1")
    [message] = (await receive(server))["messages"]
    lease = message["lease"]

    async def post(what: str, body: object = None) -> tuple[int, Any]:
        async with server.data.post(f"/v1/leases/{lease}/{what}", json=body or {}) as answer:
            return answer.status, await answer.json()

    status, answer = await post("extend", {"lease_ms": 60_000})
    assert (status, answer["status"]) == (200, "extended")
    assert answer["deadline_ms"] > message["deadline_ms"]
    status, answer = await post("retry", {"delay_ms": 3_600_000, "reason": "busy"})
    assert (status, answer["status"]) == (200, "retrying")
    status, answer = await post("ack")
    assert (status, answer["type"]) == (410, "/problems/lease-lost")
    assert answer["now"] == {"state": "retrying", "attempt": 1}
    lease = "v1.cut"
    status, answer = await post("ack")
    assert (status, answer["type"]) == (422, "/problems/bad-lease-token")


async def test_lease_can_be_looked_at_without_changing_it(server: Running) -> None:
    await publish(server, b"1")
    [message] = (await receive(server))["messages"]
    for _ in range(2):
        async with server.data.get(f"/v1/leases/{message['lease']}") as answer:
            expected = {"state": "leased", "attempt": 1, "deadline_ms": message["deadline_ms"]}
            assert await answer.json() == expected


async def test_attempt_id_replays_the_same_leases_r21(server: Running) -> None:
    await publish(server, b"1")
    first = await receive(server, attempt_id="a1")
    again = await receive(server, attempt_id="a1")
    assert again["messages"] == first["messages"]
    assert again["replayed"] is True
    body = {"attempt_id": "a1", "max": 2}
    async with server.data.post("/v1/subscriptions/orders/receive", json=body) as answer:
        assert answer.status == 422
        assert (await answer.json())["type"] == "/problems/attempt-mismatch"


async def test_idempotency_key_publishes_once(server: Running) -> None:
    path = "/v1/topics/orders/messages"
    key = {"Idempotency-Key": '"k-1"'}
    async with server.data.post(path, data=b"1", headers=key) as answer:
        first = await answer.json()
    async with server.data.post(path, data=b"1", headers=key) as answer:
        assert await answer.json() == first
        assert answer.headers["Idempotent-Replayed"] == "true"
    async with server.data.post(path, data=b"2", headers=key) as answer:
        assert answer.status == 422
        assert (await answer.json())["type"] == "/problems/idempotency-mismatch"
    assert len(await server.sidecar.published("orders")) == 1
