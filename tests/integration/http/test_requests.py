"""Requests that somebody gets wrong at a real sidecar: the answer says what to do instead."""

from __future__ import annotations

import json
from http import HTTPStatus
from http.client import HTTPConnection
from typing import Any

import pytest

from tests.integration.http.conftest import Sidecar, call
from tests.support.wait import wait_until

ORDERS = "/v1/subscriptions/orders"


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
        found.extend(receive(sidecar, max=count - len(found), wait_ms=1000)["messages"])
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
