"""A group's progress over HTTP: bodies and statuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ackd.api.progress import Position, SeekRequest, SeekTo
from tests.unit.http.conftest import Call, Calls, Running
from tests.unit.http.test_flow import receive, settle

BASE = "/v1/subscriptions/orders"
ONE = {"topic": "orders", "partition": 0, "offset": 7}


def started(server: Running, calls: Calls) -> list[Call]:
    """The operations that begin from here on."""
    return calls(server.engine._subscriptions["orders"].operations, "start")


async def acked(server: Running, *offsets: int) -> None:
    """Of ten messages those with these offsets."""
    batch = {"messages": [{"json": number} for number in range(10)]}
    async with server.data.post("/v1/topics/orders/messages:batch", json=batch) as answer:
        assert answer.status == 200, await answer.text()
    await server.sidecar.fetched("orders")
    found = (await receive(server, max=10))["messages"]
    await settle(server, *({"lease": found[each]["lease"], "do": "ack"} for each in offsets))


async def pause(server: Running) -> None:
    async with server.admin.post(f"{BASE}/pause") as answer:
        assert answer.status == 200, await answer.text()


async def test_an_export_goes_in_as_it_came_out(server: Running, calls: Calls) -> None:
    await acked(server, *range(7), 8, 9)
    await pause(server)
    seeks = calls(server.engine.progress, "seek")
    async with server.admin.get(f"{BASE}/progress") as answer:
        export = await answer.json()
    async with server.data.get(f"{BASE}/progress") as answer:
        assert {**await answer.json(), "exported_ms": export["exported_ms"]} == export
    async with server.admin.post(f"{BASE}/progress:import", json=export) as answer:
        assert answer.status == 202
        name = (await answer.json())["id"]
        assert answer.headers["Location"] == f"/v1/operations/{name}"
    [partition] = export["partitions"]
    position = Position("orders", 0, 7, ((8, 10),), partition["topic_id"])
    [call] = seeks
    request = call.args[1]
    assert request == SeekRequest(SeekTo.POSITIONS, None, (position,), True, True)


@pytest.mark.parametrize(
    ("to", "again", "expected"),
    [
        ("earliest", 7, SeekRequest(SeekTo.EARLIEST)),
        ("latest", 0, SeekRequest(SeekTo.LATEST)),
        ({"time": 12}, 7, SeekRequest(SeekTo.TIME, 12)),
        (
            {"positions": [{**ONE, "offset": 3, "finished": [[5, 6]]}]},
            3,
            SeekRequest(SeekTo.POSITIONS, None, (Position("orders", 0, 3, ((5, 6),)),)),
        ),
    ],
)
async def test_a_seek_as_the_engine_gets_it(
    server: Running, calls: Calls, to: object, again: int, expected: SeekRequest
) -> None:
    await acked(server, *range(7))
    seeks, begun = calls(server.engine.progress, "seek"), started(server, calls)
    async with server.admin.post(f"{BASE}/seek", json={"to": to, "dry_run": True}) as answer:
        assert answer.status == 200
        assert (await answer.json())["again"] == again
    async with server.admin.post(f"{BASE}/seek", json={"to": to}) as answer:
        assert (answer.status, (await answer.json())["type"]) == (409, "/problems/not-paused")
    assert begun == []
    await pause(server)
    async with server.admin.post(f"{BASE}/seek", json={"to": to}) as answer:
        assert answer.status == 202
    assert len(begun) == 1
    asked = [call.args[1] for call in seeks]
    assert asked == [replace(expected, dry_run=True), expected, expected]


async def test_without_something_to_undo(server: Running) -> None:
    await pause(server)
    async with server.admin.post(f"{BASE}/seek", json={"to": "before_reset"}) as answer:
        assert (answer.status, (await answer.json())["type"]) == (404, "/problems/nothing-to-undo")
    async with server.data.post(f"{BASE}/seek", json={"to": "latest"}) as answer:
        assert answer.status == 404


@pytest.mark.parametrize(
    ("path", "body", "pointer"),
    [
        ("seek", {}, "/to"),
        ("seek", {"to": "moon"}, "/to"),
        ("seek", {"to": {}}, "/to"),
        ("seek", {"to": {"time": 1, "positions": [ONE]}}, "/to"),
        ("seek", {"to": {"positions": [ONE, ONE]}}, "/to/positions/1"),
        ("progress:import", {"partitions": []}, "/partitions"),
        ("progress:import", {"partitions": [{**ONE, "offset": -1}]}, "/partitions/0/offset"),
        (
            "progress:import",
            {"partitions": [{**ONE, "finished": [[8, 9], [8, 10]]}]},
            "/partitions/0/finished/1",
        ),
        ("progress:import", {"partitions": [ONE], "version": 2}, "/version"),
    ],
)
async def test_wrong_fields_are_named(
    server: Running, calls: Calls, path: str, body: dict[str, Any], pointer: str
) -> None:
    begun = started(server, calls)
    async with server.admin.post(f"{BASE}/{path}", json=body) as answer:
        assert answer.status == 422
        assert [each["pointer"] for each in (await answer.json())["errors"]] == [pointer]
    assert begun == []
