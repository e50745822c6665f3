"""Dead letters over HTTP: bodies, bytes and statuses."""

from __future__ import annotations

import pytest

from ackd.api.dead_letters import DeadFilter, Kind, To
from tests.unit.http.conftest import Running

BASE = "/v1/subscriptions/orders/dead"


async def test_a_look(server: Running) -> None:
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
    server.engine.dead.value = None
    async with server.data.get(f"{BASE}/0-0") as answer:
        found = await answer.json()
    assert (found["json"], found["tombstone"]) == (None, True)


async def test_a_redrive_as_the_engine_gets_it(server: Running) -> None:
    body = {
        "filter": {"topic": "orders", "error": "boom", "before_ms": 7},
        "max": 5,
        "rate_per_s": 2,
        "to": "origin",
        "set_headers": {"a": "1"},
        "remove_headers": ["b"],
    }
    async with server.admin.post(f"{BASE}:redrive", json=body) as answer:
        assert answer.status == 202
        assert answer.headers["Location"] == "/v1/operations/op"
    (request,) = server.engine.dead.begun
    assert request.kind is Kind.REDRIVE
    assert request.filter == DeadFilter(topic="orders", error="boom", before_ms=7)
    assert (request.max, request.rate_per_s, request.to) == (5, 2, To.ORIGIN)
    assert (request.set_headers, request.remove_headers) == ((("a", "1"),), ("b",))
    async with server.admin.post(f"{BASE}:redrive", json={"ids": ["0-0"]}) as answer:
        assert answer.status == 409
        assert (await answer.json())["operation"] == "op"
    async with server.admin.delete("/v1/operations/op") as answer:
        assert (await answer.json())["state"] == "cancelled"


@pytest.mark.parametrize(
    ("verb", "body", "pointer"),
    [
        ("redrive", {"ids": []}, "/ids"),
        ("redrive", {"ids": ["0-0"], "filter": {}}, "/ids"),
        ("redrive", {"ids": ["0"]}, "/ids/0"),
        ("redrive", {"filter": {"nonsense": 1}}, "/filter/nonsense"),
        ("redrive", {"rate_per_s": 0}, "/rate_per_s"),
        ("redrive", {"to": "moon"}, "/to"),
        ("redrive", {"confirm": "orders"}, "/confirm"),
        ("purge", {"to": "group"}, "/to"),
    ],
)
async def test_wrong_fields_are_named(
    server: Running, verb: str, body: dict[str, object], pointer: str
) -> None:
    async with server.admin.post(f"{BASE}:{verb}", json=body) as answer:
        assert answer.status == 422
        assert [each["pointer"] for each in (await answer.json())["errors"]] == [pointer]
    assert server.engine.dead.begun == []


async def test_a_dry_run_begins_nothing(server: Running) -> None:
    for verb in ("redrive", "purge"):
        async with server.admin.post(f"{BASE}:{verb}", json={"dry_run": True}) as answer:
            assert answer.status == 200
            assert (await answer.json())["matched"] == 1
    async with server.admin.post(f"{BASE}:purge", json={"confirm": "order"}) as answer:
        assert answer.status == 422
    assert server.engine.dead.begun == []
