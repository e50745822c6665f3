"""Streams: the forms, the bound, the ends, who gets leases back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from ackd.http.handlers import stream as streams
from tests.support import sse
from tests.support.wait import wait_until_async
from tests.unit.http.conftest import Dial, Running
from tests.unit.http.test_flow import publish, receive, settle

STREAM = "/v1/subscriptions/orders/stream"
NAMED = {"Ackd-Worker": "reader"}


async def lines(answer: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
    async for line in answer.content:
        assert line.endswith(b"\n")
        yield json.loads(line)


async def until_open(server: Running, leased: int) -> None:
    async def there() -> bool:
        return len(await server.engine.in_flight("orders", 0, 1000)) == leased

    await wait_until_async(there, f"{leased} messages are leased")


async def test_messages_come_as_lines_and_room_is_made_by_settling(server: Running) -> None:
    """Bytes stay as they are, but for the newlines between JSON's tokens."""
    for value in (b"1", b'{"n": 1.0,\r\n "t": "a\\nb"}', b"3"):
        await publish(server, value)
    params = {"in_flight": "2", "duration_ms": "20000"}
    async with server.data.get(STREAM, params=params, headers=NAMED) as answer:
        assert answer.status == 200
        assert answer.content_type == "application/x-ndjson"
        reading = lines(answer)
        first, second = [await anext(reading) for _ in range(2)]
        assert first["json"] == 1
        assert second["json"] == {"n": 1.0, "t": "a\nb"}
        assert (await receive(server))["messages"][0]["json"] == 3
        await publish(server, b"4")
        await until_open(server, 3)  # the fourth has no room in the stream
        await settle(server, {"lease": second["lease"], "do": "ack"})
        assert (await anext(reading))["json"] == 4


async def test_events_are_what_a_strict_reader_takes(server: Running) -> None:
    await publish(server, b'{"a":\n1}')
    headers = {"Accept": "text/event-stream", **NAMED}
    async with server.data.get(STREAM, params={"duration_ms": "200"}, headers=headers) as answer:
        assert answer.content_type == "text/event-stream"
        events = sse.parse(await answer.read())
    assert [event.name for event in events] == ["message", "end"]
    assert json.loads(events[0].data)["json"] == {"a": 1}
    assert json.loads(events[1].data) == {"end": "duration"}


async def test_heartbeats_come_while_nothing_else_does(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "HEARTBEAT_S", 0.05)
    await publish(server, b"1")
    params = {"in_flight": "1", "duration_ms": "400"}
    async with server.data.get(STREAM, params=params, headers=NAMED) as answer:
        found = [line async for line in lines(answer)]
    beats = [line for line in found if "heartbeat" in line]
    assert len(beats) >= 3
    assert all(beat["unsettled"] == 1 for beat in beats)
    assert found[-1] == {"end": "duration"}


async def test_drain_ends_it_with_a_line_and_the_leases_stay(server: Running) -> None:
    await publish(server, b"1")
    async with server.data.get(
        STREAM, params={"release_on_close": "true"}, headers=NAMED
    ) as answer:
        reading = lines(answer)
        message = await anext(reading)
        server.listener.service.draining = True
        await publish(server, b"2")  # wakes the waiting receive
        rest = [line async for line in reading]
        assert rest[-1] == {"end": "drain"}
    assert (await settle(server, {"lease": message["lease"], "do": "ack"})) == [{"status": "acked"}]
    async with server.data.get(STREAM, headers=NAMED) as answer:
        assert answer.status == 503
        assert (await answer.json())["type"] == "/problems/draining"


@pytest.mark.parametrize("release", [True, False])
async def test_lost_connection_gives_back_only_when_asked(server: Running, release: bool) -> None:  # noqa: FBT001
    """R21, R28: uncounted with `release_on_close`, else the lease runs to its deadline."""
    await publish(server, b"1")
    params = {"in_flight": "1", **({"release_on_close": "true"} if release else {})}
    async with server.data.get(STREAM, params=params, headers=NAMED) as answer:
        assert (await anext(lines(answer)))["attempt"] == 1
        answer.close()

    async def ended() -> bool:
        text = server.listener.service.metrics.render("")[0]
        return b'ackd_streams{subscription="orders"} 0.0' in text

    await wait_until_async(ended, "the stream ended", timeout_s=60)
    if release:
        [again] = (await receive(server, wait_ms=30_000))["messages"]
        assert again["attempt"] == 1
    else:
        assert (await receive(server, wait_ms=200))["messages"] == []


async def test_store_away_is_waited_for(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "PAUSE_S", 0.02)
    monkeypatch.setattr(streams, "HEARTBEAT_S", 0.05)
    await publish(server, b"1")
    server.sidecar.store.away = True
    async with server.data.get(STREAM, headers=NAMED) as answer:
        reading = lines(answer)
        beat = await anext(reading)
        assert beat["limited_by"] == "store-unavailable"
        server.sidecar.store.away = False
        async for line in reading:
            if "json" in line:
                return
    pytest.fail("the stream ended without the message")


async def test_head_takes_no_lease_and_http10_gets_plain_lines(server: Running, dial: Dial) -> None:
    await publish(server, b"1")
    async with server.data.head(STREAM, headers=NAMED) as answer:
        assert answer.status == 200
    assert await server.engine.in_flight("orders", 0, 10) == []
    wire = await dial(server.port)
    await wire.send(f"GET {STREAM}?duration_ms=1000 HTTP/1.0\r\nAckd-Worker: w\r\n\r\n")
    raw = await wire.reader.read()
    head, _, body = raw.partition(b"\r\n\r\n")
    assert b"chunked" not in head
    assert [json.loads(line).get("end") for line in body.splitlines()] == [None, "duration"]


async def test_connection_serves_on_after_a_stream(server: Running, dial: Dial) -> None:
    wire = await dial(server.port)
    await wire.send(
        f"GET {STREAM}?duration_ms=1 HTTP/1.1\r\nHost: localhost\r\nAckd-Worker: w\r\n\r\n"
    )
    async with asyncio.timeout(60):
        await wire.reader.readuntil(b"0\r\n\r\n")
    await wire.post("/v1/subscriptions/orders/receive", "{}")
    assert (await wire.answer()).status == 200


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("in_flight=0", 422),
        ("in_flight=1001", 422),
        ("duration_ms=x", 422),
        ("release_on_close=yes", 422),
        ("wait=1", 422),
    ],
)
async def test_mistakes_are_named_before_the_stream(
    server: Running, query: str, status: int
) -> None:
    async with server.data.get(f"{STREAM}?{query}", headers=NAMED) as answer:
        assert answer.status == status
    async with server.data.get(STREAM, headers={"Accept": "application/json", **NAMED}) as answer:
        assert answer.status == 406
    async with server.data.get("/v1/subscriptions/none/stream", headers=NAMED) as answer:
        assert answer.status == 404
