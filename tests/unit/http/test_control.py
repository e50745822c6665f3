"""Pause, resume and PATCH over HTTP: admin port, bodies, and what a mistake is answered."""

from typing import Any

import msgspec
import pytest

from ackd.api.control import Cancel
from ackd.api.messages import SettleResult, Status
from ackd.engine.control import cancel
from ackd.http.formats import delivery_json, model
from tests.unit.http.conftest import Calls, Running
from tests.unit.http.test_flow import publish, receive

PATH = "/v1/subscriptions/orders"


async def patch(server: Running, body: Any, status: int) -> Any:
    async with server.admin.patch(PATH, json=body) as answer:
        assert answer.status == status, await answer.text()
        return await answer.json()


async def test_pause_and_resume(server: Running) -> None:
    body = {"reason": "deploy", "for_ms": 60_000}
    async with server.admin.post(f"{PATH}/pause", json=body) as answer:
        assert answer.status == 200
        [pause] = (await answer.json())["pauses"]
    assert (pause["scope"], pause["reason"]) == ("group", "deploy")
    assert pause["until_ms"] == pause["since_ms"] + 60_000
    async with server.admin.post(f"{PATH}/pause", json={"scope": "pod"}) as answer:
        pauses = (await answer.json())["pauses"]
        assert {each["scope"]: each["until_ms"] for each in pauses}["pod"] is None
    async with server.admin.post(f"{PATH}/resume") as answer:
        assert [each["scope"] for each in (await answer.json())["pauses"]] == ["pod"]


async def test_the_caller_of_a_change_is_known_to_the_engine(server: Running, calls: Calls) -> None:
    """Its trace context (W3C), as it was sent; the next request of the connection has none."""
    told = {"Traceparent": f"00-{'ab' * 16}-{'cd' * 8}-01", "tracestate": "x=1"}
    lower = {name.lower(): value for name, value in told.items()}
    made = {name: calls(server.engine, name) for name in ("pause", "resume", "configure")}
    for method, path, body in (
        ("POST", f"{PATH}/pause", {"reason": "deploy"}),
        ("POST", f"{PATH}/resume", {"scope": "group"}),
        ("PATCH", PATH, {"lease_ms": "45s"}),
    ):
        for headers in (told, {}):
            async with server.admin.request(method, path, json=body, headers=headers) as answer:
                assert answer.status == 200, await answer.text()
    for found in made.values():
        assert [each.caller for each in found] == [lower, None]


async def test_the_data_port_changes_nothing(server: Running) -> None:
    async with server.data.patch(PATH, json={"lease_ms": 1000}) as answer:
        assert answer.status == 405
    async with server.data.post(f"{PATH}/pause") as answer:
        assert answer.status == 404


async def test_patch_hands_the_changes_on(server: Running, calls: Calls) -> None:
    made = calls(server.engine, "configure")
    await patch(server, {"lease_ms": "45s", "span_max": None}, 200)
    assert [(*each.args, each.named) for each in made] == [
        ("orders", {"lease_ms": "45s", "span_max": None}, {}),
    ]


async def test_every_wrong_key_is_named(server: Running) -> None:
    found = await patch(server, {"lease_ms": 1, "leese_ms": 5, "group": "g"}, 422)
    assert {each["pointer"] for each in found["errors"]} == {"/lease_ms", "/leese_ms", "/group"}
    found = await patch(server, {"apply_to": "all", "force": True}, 422)
    told = {each["pointer"]: each["detail"] for each in found["errors"]}
    assert told.keys() == {"/apply_to", "/force"}
    assert "/v1/leases/{lease}/extend" in told["/apply_to"]
    assert (await patch(server, [1], 400))["type"] == "/problems/bad-body"
    async with server.admin.patch("/v1/subscriptions/none", json={}) as answer:
        assert answer.status == 404


async def test_a_message_is_cancelled_by_its_id(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2):
        await publish(server, b"%d" % number)
    await receive(server, max=2)
    path = f"{PATH}/messages/orders/0/0/cancel"
    async with server.admin.post(path, json={"then": "ack", "reason": "x"}) as answer:
        assert (answer.status, await answer.json()) == (200, {"id": "orders/0/0", "state": "acked"})
    async with server.admin.post(f"{PATH}/messages/orders/0/1/cancel") as answer:
        assert (await answer.json())["state"] == "dead"
    async with server.admin.post(path, json={"then": "drop"}) as answer:
        assert answer.status == 422
    monkeypatch.setattr(cancel, "WAIT_MS", 200)  # for another sidecar that may have it
    for other in ("orders/0/8", "orders/x/7", "orders/0/-7"):
        async with server.admin.post(f"{PATH}/messages/{other}/cancel") as answer:
            assert answer.status == 404, other
    async with server.data.post(path) as answer:
        assert answer.status in {404, 405}


async def test_a_lost_lease_says_that_the_message_was_cancelled() -> None:
    wish = Cancel("orders/0/7", "ack", "wrong", 0, "acked")
    lost = SettleResult(Status.LOST, now_state="finished", cancelled=wish)
    read = msgspec.json.decode(delivery_json.result(lost), type=model.Result)
    assert (read.status, read.cancelled) == ("lost", model.Cancelled("ack", "wrong"))
