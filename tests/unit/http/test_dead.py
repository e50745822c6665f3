"""Dead letters over HTTP: bodies, bytes and statuses."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from ackd.api.dead_letters import DeadFilter, Kind, To
from tests.support.wait import wait_until_async
from tests.unit.http.conftest import Call, Calls, Running
from tests.unit.http.test_flow import receive, settle

BASE = "/v1/subscriptions/orders/dead"
LATE_MS = 1 << 42


def started(server: Running, calls: Calls) -> list[Call]:
    """The operations that begin from here on."""
    return calls(server.engine._subscriptions["orders"].operations, "begin")


async def give_up(server: Running, *messages: Mapping[str, object], before: int = 0) -> None:
    """Publish messages and give them up; `before` them come some that stay."""
    batch = {"messages": [*[{"json": 0}] * before, *messages]}
    async with server.data.post("/v1/topics/orders/messages:batch", json=batch) as answer:
        assert answer.status == 200, await answer.text()
    await server.sidecar.fetched("orders")
    there = await dead(server)
    found = (await receive(server, max=100))["messages"][before:]
    results = await settle(
        server, *({"lease": each["lease"], "do": "dead", "reason": "boom"} for each in found)
    )
    assert results == [{"status": "dead"}] * len(messages)

    async def given_up() -> bool:
        return len(await dead(server)) == len(there) + len(messages)

    await wait_until_async(given_up, "the dead letters")


async def dead(server: Running) -> list[str]:
    """The ids of the dead letters."""
    async with server.data.get(BASE) as answer:
        return [each["id"] for each in (await answer.json())["messages"]]


async def test_a_look(server: Running) -> None:
    headers = [["a", "b"], ["bin", {"base64": "/w=="}]]
    given = {"json": {"n": 1.0}, "key": {"base64": "/g=="}, "headers": headers}
    await give_up(server, given, before=7)
    for port in (server.data, server.admin):
        async with port.get(BASE) as answer:
            page = await answer.json()
        assert [each["id"] for each in page["messages"]] == ["0-0"]
        assert page["cursor"] is None
        async with port.get(f"{BASE}/0-0") as answer:
            found = await answer.json()
        assert (found["message"], found["json"]) == ("orders/0/7", {"n": 1.0})
        assert found["key"] == {"base64": "/g=="}
        assert found["headers"] == [["a", "b"], ["bin", {"base64": "/w=="}]]
    await give_up(server, {"tombstone": True, "key": "k"})
    async with server.data.get(f"{BASE}/0-1") as answer:
        found = await answer.json()
    assert (found["json"], found["tombstone"]) == (None, True)


async def test_a_redrive_as_the_engine_gets_it(server: Running, calls: Calls) -> None:
    await give_up(server, *[{"json": number} for number in range(12)])
    begun = started(server, calls)
    body = {
        "filter": {"topic": "orders", "error": "boom", "before_ms": LATE_MS},
        "max": 12,
        "rate_per_s": 1,
        "to": "origin",
        "set_headers": {"a": "1"},
        "remove_headers": ["b"],
    }
    async with server.admin.post(f"{BASE}:redrive", json=body) as answer:
        assert answer.status == 202
        name = (await answer.json())["id"]
        assert answer.headers["Location"] == f"/v1/operations/{name}"
    [call] = begun
    request = call.args[0]
    assert request.kind is Kind.REDRIVE
    assert request.filter == DeadFilter(topic="orders", error="boom", before_ms=LATE_MS)
    assert (request.max, request.rate_per_s, request.to) == (12, 1, To.ORIGIN)
    assert (request.set_headers, request.remove_headers) == ((("a", "1"),), ("b",))
    # Not by an id: that letter may be redriven already, and is no dead letter any more then.
    again = {"filter": {"topic": "orders"}}
    async with server.admin.post(f"{BASE}:redrive", json=again) as answer:
        assert answer.status == 409
        assert (await answer.json())["operation"] == name
    async with server.admin.delete(f"/v1/operations/{name}") as answer:
        assert (await answer.json())["state"] in {"cancelling", "cancelled"}

    async def cancelled() -> bool:
        async with server.admin.get(f"/v1/operations/{name}") as answer:
            return bool((await answer.json())["state"] == "cancelled")

    await wait_until_async(cancelled, "the operation to end")
    assert len(await dead(server)) > 0
    for query, there in (
        ("", True),
        ("?subscription=orders", True),
        ("?state=cancelled", True),
        ("?state=running", False),
    ):
        async with server.admin.get(f"/v1/operations{query}") as answer:
            found = (await answer.json())["operations"]
            assert [each["id"] for each in found] == ([name] if there else []), query


@pytest.mark.parametrize(
    ("query", "status", "kind"),
    [
        ("?state=odd", 422, "query:state"),
        ("?subscription=none", 404, "unknown-subscription"),
        ("?nonsense=1", 422, "query:nonsense"),
    ],
)
async def test_a_list_of_operations_that_cannot_be(
    server: Running, query: str, status: int, kind: str
) -> None:
    async with server.admin.get(f"/v1/operations{query}") as answer:
        assert answer.status == status
        assert kind in await answer.text()


@pytest.mark.parametrize(
    ("verb", "body", "pointer"),
    [
        ("redrive", {"ids": []}, "/ids"),
        ("redrive", {"ids": ["0-0"], "filter": {}}, "/ids"),
        ("redrive", {"ids": ["0"]}, "/ids/0"),
        ("redrive", {"filter": {"nonsense": 1}}, "/filter/nonsense"),
        ("redrive", {"rate_per_s": 0}, "/rate_per_s"),
        ("redrive", {"to": "moon"}, "/to"),
        ("redrive", {}, "/confirm"),
        ("redrive", {"confirm": "other", "filter": {}}, "/confirm"),
        ("redrive", {"filter": {"reason": "", "error": "", "after_ms": 0}}, "/confirm"),
        ("purge", {"to": "group"}, "/to"),
    ],
)
async def test_wrong_fields_are_named(
    server: Running, calls: Calls, verb: str, body: dict[str, object], pointer: str
) -> None:
    begun = started(server, calls)
    async with server.admin.post(f"{BASE}:{verb}", json=body) as answer:
        assert answer.status == 422
        assert [each["pointer"] for each in (await answer.json())["errors"]] == [pointer]
    assert begun == []


async def test_a_dry_run_begins_nothing(server: Running, calls: Calls) -> None:
    await give_up(server, {"json": 1})
    begun = started(server, calls)
    for verb in ("redrive", "purge"):
        async with server.admin.post(f"{BASE}:{verb}", json={"dry_run": True}) as answer:
            assert answer.status == 200
            assert (await answer.json())["matched"] == 1
    async with server.admin.post(f"{BASE}:purge", json={"confirm": "order"}) as answer:
        assert answer.status == 422
    assert begun == []
