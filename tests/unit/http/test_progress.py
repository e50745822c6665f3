"""A group's progress over HTTP: bodies and statuses."""

from __future__ import annotations

from typing import Any

import pytest

from ackd.api.progress import Position, SeekRequest, SeekTo
from tests.unit.http.conftest import Running

BASE = "/v1/subscriptions/orders"
ONE = {"topic": "orders", "partition": 0, "offset": 7}


async def test_an_export_goes_in_as_it_came_out(server: Running) -> None:
    async with server.admin.get(f"{BASE}/progress") as answer:
        export = await answer.json()
    async with server.data.get(f"{BASE}/progress") as answer:
        assert await answer.json() == export
    async with server.admin.post(f"{BASE}/progress:import", json=export) as answer:
        assert answer.status == 202
        assert answer.headers["Location"] == "/v1/operations/op"
    position = Position("orders", 0, 7, ((8, 10),), "0" * 32)
    (request,) = server.engine.progress.begun
    assert request == SeekRequest(SeekTo.POSITIONS, None, (position,), True, True)


@pytest.mark.parametrize(
    ("to", "expected"),
    [
        ("earliest", SeekRequest(SeekTo.EARLIEST)),
        ("latest", SeekRequest(SeekTo.LATEST)),
        ({"time": 12}, SeekRequest(SeekTo.TIME, 12)),
        (
            {"positions": [{**ONE, "finished": [[8, 9]]}]},
            SeekRequest(SeekTo.POSITIONS, None, (Position("orders", 0, 7, ((8, 9),)),)),
        ),
    ],
)
async def test_a_seek_as_the_engine_gets_it(
    server: Running, to: object, expected: SeekRequest
) -> None:
    async with server.admin.post(f"{BASE}/seek", json={"to": to, "dry_run": True}) as answer:
        assert answer.status == 200
        assert (await answer.json())["again"] == 7
    assert server.engine.progress.begun == []
    async with server.admin.post(f"{BASE}/seek", json={"to": to}) as answer:
        assert answer.status == 202
    assert server.engine.progress.begun == [expected]
    server.engine.progress.paused = False
    async with server.admin.post(f"{BASE}/seek", json={"to": to}) as answer:
        assert (answer.status, (await answer.json())["type"]) == (409, "/problems/not-paused")


async def test_without_something_to_undo(server: Running) -> None:
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
    server: Running, path: str, body: dict[str, Any], pointer: str
) -> None:
    async with server.admin.post(f"{BASE}/{path}", json=body) as answer:
        assert answer.status == 422
        assert [each["pointer"] for each in (await answer.json())["errors"]] == [pointer]
    assert server.engine.progress.begun == []
