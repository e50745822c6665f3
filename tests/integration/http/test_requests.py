"""Requests that somebody gets wrong at a real sidecar: the answer says what to do instead."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from http import HTTPStatus
from http.client import HTTPConnection
from typing import Any

import pytest

from tests.integration.http.conftest import Sidecar, call
from tests.support.wait import wait_until

ORDERS = "/v1/subscriptions/orders"
LONG: Any = {"lease_ms": 600_000}
"""No message of one test comes to another."""


def receive(sidecar: Sidecar, **body: object) -> Any:
    path = f"{ORDERS}/receive"
    status, answer = call(sidecar.port, "POST", path, json.dumps(body).encode())
    assert status == HTTPStatus.OK, answer
    return answer


def taken(sidecar: Sidecar, count: int) -> list[Any]:
    """So many new messages under lease."""
    for _ in range(count):
        assert call(sidecar.port, "POST", "/v1/topics/orders/messages", b"1")[0] == 201
    found: list[Any] = []

    def enough() -> bool:
        found.extend(receive(sidecar, max=count - len(found), wait_ms=1000, **LONG)["messages"])
        return len(found) == count

    wait_until(enough, f"{count} messages", timeout_s=60)
    return found


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("POST", f"{ORDERS}/pause", 404), ("GET", "/readyz", 404), ("PATCH", ORDERS, 405)],
)
def test_the_data_port_names_the_admin_port_for_its_routes(
    sidecar: Sidecar, method: str, path: str, status: int
) -> None:
    found, problem = call(sidecar.port, method, path)
    assert (found, problem["port"]) == (status, "admin")
    assert "The admin port (setting `server.admin_listen`) serves" in problem["detail"]


def test_the_admin_port_names_the_data_port_for_its_routes(sidecar: Sidecar) -> None:
    status, problem = call(sidecar.admin_port, "POST", f"{ORDERS}/receive")
    assert (status, problem["port"]) == (404, "data")
    assert "The data port (setting `server.listen`) serves" in problem["detail"]
    status, problem = call(sidecar.admin_port, "GET", "/v1/nowhere")
    assert (status, "port" in problem) == (404, False)


def test_a_wait_that_is_cut_is_told(sidecar: Sidecar) -> None:
    """The module's sidecar has `wait_ms_max = 2000`."""
    taken(sidecar, 1)  # so that the topic has messages that others hold: each receive waits
    assert receive(sidecar, wait_ms=2_001)["wait_ms_max"] == 2_000
    assert "wait_ms_max" not in receive(sidecar, wait_ms=2_000)
    status, answer = call(sidecar.port, "POST", f"{ORDERS}/receive", Prefer="wait=3")
    assert (status, answer["wait_ms_max"]) == (HTTPStatus.OK, 2_000)
    connection = HTTPConnection("127.0.0.1", sidecar.port, timeout=60)
    headers = {"Accept": "application/octet-stream"}
    connection.request("POST", f"{ORDERS}/receive", b'{"wait_ms": 9000}', headers)
    reply = connection.getresponse()
    assert (reply.status, reply.headers["Ackd-Wait-Ms-Max"]) == (HTTPStatus.NO_CONTENT, "2000")
    connection.close()


def wrong_items(leases: list[str]) -> list[dict[str, object]]:
    """Good items, and between them wrong ones."""
    return [
        {"lease": leases[0], "do": "nack"},
        {"lease": leases[0], "do": "ack"},
        {"do": "ack"},
        {"lease": leases[1], "do": "retry", "delay_ms": -1},
        {"lease": leases[1], "do": "ack"},
    ]


STATUSES = ["invalid", "acked", "invalid", "invalid", "acked"]
POINTERS = ["/0/do", "/2/lease", "/3/delay_ms"]


def test_wrong_items_of_a_settle_are_told_and_the_others_count(sidecar: Sidecar) -> None:
    leases = [each["lease"] for each in taken(sidecar, 2)]
    body = json.dumps({"items": wrong_items(leases)}).encode()
    status, answer = call(sidecar.port, "POST", "/v1/settle", body)
    assert status == HTTPStatus.OK, answer
    results = answer["results"]
    assert [each["status"] for each in results] == STATUSES
    problems = [each["problem"] for each in results if "problem" in each]
    assert [each["status"] for each in problems] == [422] * 3
    pointers = [each["errors"][0]["pointer"] for each in problems]
    assert pointers == [f"/items{each}" for each in POINTERS]
    assert "ack, retry, extend, dead, release" in problems[0]["detail"]


def test_wrong_items_of_a_joined_call_are_told_and_the_others_count(sidecar: Sidecar) -> None:
    leases = [each["lease"] for each in taken(sidecar, 2)]
    settled = receive(sidecar, settle=wrong_items(leases))["settled"]
    assert [each["status"] for each in settled] == STATUSES
    pointers = [each["problem"]["errors"][0]["pointer"] for each in settled if "problem" in each]
    assert pointers == [f"/settle{each}" for each in POINTERS]


def test_a_body_without_any_good_item_or_with_another_mistake_is_refused(sidecar: Sidecar) -> None:
    (message,) = taken(sidecar, 1)
    good = {"lease": message["lease"], "do": "ack"}
    for body in (
        {"items": [{"do": "ack"}, {"lease": "x", "do": "nack"}]},
        {"items": [good, {"do": "ack"}], "more": 1},
        {"items": [good] * 1000 + [{"do": "ack"}]},
    ):
        status, problem = call(sidecar.port, "POST", "/v1/settle", json.dumps(body).encode())
        assert (status, problem["type"]) == (422, "/problems/bad-parameter"), body
    assert call(sidecar.port, "GET", f"/v1/leases/{message['lease']}")[1]["state"] == "leased"
    body = {"settle": [good, {"do": "ack"}], "wait": 5}
    status, problem = call(sidecar.port, "POST", f"{ORDERS}/receive", json.dumps(body).encode())
    assert {each["pointer"] for each in problem["errors"]} >= {"/wait"}
    assert call(sidecar.port, "GET", f"/v1/leases/{message['lease']}")[1]["state"] == "leased"


def test_the_last_retry_is_told_that_the_message_is_dead(sidecar: Sidecar) -> None:
    """The single form and the batch, and only the last one; uncounted ones are none."""
    path = ORDERS
    changed = b'{"attempts_max": 2}'
    assert call(sidecar.admin_port, "PATCH", path, changed)[0] == HTTPStatus.OK
    retry = b'{"delay_ms": 0, "reason": "shop closed"}'
    try:
        first = taken(sidecar, 2)
        ids = {each["id"] for each in first}
        for message in first:
            lease = message["lease"]
            status, answer = call(sidecar.port, "POST", f"/v1/leases/{lease}/retry", retry)
            assert (status, answer["status"], "due_ms" in answer) == (200, "retrying", True)
        last: list[Any] = []

        def both() -> bool:
            last.extend(receive(sidecar, max=2 - len(last), wait_ms=1000, **LONG)["messages"])
            return len(last) == 2

        wait_until(both, "both again", timeout_s=60)
        assert ({each["id"] for each in last}, {each["attempt"] for each in last}) == (ids, {2})
        one, other = (each["lease"] for each in last)
        assert call(sidecar.port, "POST", f"/v1/leases/{one}/retry", retry) == (
            HTTPStatus.OK,
            {"status": "dead"},
        )
        items = [{"lease": other, "do": "retry", "delay_ms": 60_000}]
        body = json.dumps({"items": items}).encode()
        _, answer = call(sidecar.port, "POST", "/v1/settle", body)
        assert answer["results"] == [{"status": "dead"}]

        def dead() -> bool:
            _, listed = call(sidecar.admin_port, "GET", f"{ORDERS}/dead?max=1000")
            return ids <= {each["message"] for each in listed["messages"]}

        wait_until(dead, "two dead letters", timeout_s=30)
        (message,) = taken(sidecar, 1)
        uncounted = b'{"delay_ms": 0, "count": false}'
        for _ in range(3):
            lease = message["lease"]
            _, answer = call(sidecar.port, "POST", f"/v1/leases/{lease}/retry", uncounted)
            assert answer["status"] == "retrying"
            (message,) = wait_until(
                lambda: receive(sidecar, wait_ms=1000)["messages"], "it again", timeout_s=30
            )
    finally:
        restored = b'{"attempts_max": null}'
        assert call(sidecar.admin_port, "PATCH", path, restored)[0] == HTTPStatus.OK


def test_what_is_not_known_of_a_lost_lease_is_absent(sidecar: Sidecar) -> None:
    """A lease that another deployment signed (R27), in the single form as in a batch."""
    (message,) = taken(sidecar, 1)
    raw = bytearray(urlsafe_b64decode(message["lease"].removeprefix("v1.") + "=="))
    raw[0] ^= 0xFF  # the id of the key
    lease = f"v1.{urlsafe_b64encode(raw).decode().rstrip('=')}"
    status, single = call(sidecar.port, "POST", f"/v1/leases/{lease}/ack")
    assert (status, single["now"]) == (HTTPStatus.GONE, {"state": "unknown"})
    items = json.dumps({"items": [{"lease": lease, "do": "ack"}]}).encode()
    (batch,) = call(sidecar.port, "POST", "/v1/settle", items)[1]["results"]
    assert batch == {"status": "lost", "now": {"state": "unknown"}}
