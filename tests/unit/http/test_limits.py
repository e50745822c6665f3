"""I8 on the wire: slow, huge, silent and too many clients get a problem document or are cut off."""

from __future__ import annotations

import asyncio
import io
import json
from contextlib import suppress
from dataclasses import replace

import pytest

from ackd.config.schema import ServerSettings
from ackd.config.units import KIB, MIB
from ackd.http.server.limits import BODY_FREE_BYTES
from tests.support.wait import wait_until_async
from tests.unit.http.conftest import Calls, Dial, Running, Start
from tests.unit.http.test_flow import publish, receive

SETTINGS = ServerSettings(
    listen="127.0.0.1:0",
    admin_listen="127.0.0.1:0",
    body_bytes_max=MIB,
    head_timeout_ms=300,
    body_timeout_ms=400,
    keepalive_timeout_ms=60_000,
    connections_max=20,
)
TOPIC = "/v1/topics/images/messages"
HEAD = f"POST {TOPIC} HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture
def names() -> tuple[str, ...]:
    """`images` for bytes."""
    return ("orders", "images")


@pytest.fixture
async def strict(start: Start) -> Running:
    """A server with tight limits."""
    return await start(SETTINGS)


def held(server: Running) -> int:
    """Bytes of bodies and unread answers that the data port holds."""
    limits = server.listener.data.limits
    return limits.bodies.held + limits.unread.held


async def test_head_that_does_not_come_is_408(strict: Running, dial: Dial) -> None:
    wire = await dial(strict.port)
    await wire.send("GET /v1/subscriptions HTTP/1.1\r\nHost:")
    answer = await wire.answer()
    assert (answer.status, answer.problem) == (408, "request-timeout")
    assert await wire.ended()


async def test_head_that_trickles_is_408_too(strict: Running, dial: Dial) -> None:
    """A byte now and then does not start the time anew (slowloris)."""
    wire = await dial(strict.port)
    answering = asyncio.ensure_future(wire.answer())  # noqa: TID251  held by this test
    for byte in b"GET /v1/subscriptions HTTP/1.1\r\nX: " + b"y" * 100:
        if answering.done():
            break
        await wire.send(bytes([byte]))
        await asyncio.sleep(0.02)
    assert (await answering).problem == "request-timeout"


async def test_head_in_two_parts_and_idle_between_requests_are_fine(
    start: Start, dial: Dial
) -> None:
    """Only an unfinished head is on the clock, not a connection that is kept alive."""
    server = await start(replace(SETTINGS, head_timeout_ms=3_000))
    wire = await dial(server.port)
    for _ in range(2):
        await wire.send("GET /v1/subscriptions HTTP/1.1\r\n")
        await asyncio.sleep(0.05)
        await wire.send("Host: localhost\r\n\r\n")
        assert (await wire.answer()).status == 200
        await asyncio.sleep(3.2)


async def test_body_that_does_not_come_is_408(strict: Running, dial: Dial) -> None:
    wire = await dial(strict.port)
    await wire.send(HEAD, "Content-Length: 10\r\n\r\nabc")
    answer = await wire.answer()
    assert (answer.status, answer.problem) == (408, "request-timeout")
    assert await wire.ended()
    assert await strict.sidecar.published("images") == []


async def test_announced_huge_body_is_refused_before_it_is_read(
    strict: Running, dial: Dial
) -> None:
    wire = await dial(strict.port)
    await wire.send(HEAD, f"Content-Length: {MIB + 1}\r\n\r\n")
    answer = await wire.answer()
    assert (answer.status, answer.problem) == (413, "body-too-large")
    assert json.loads(answer.body)["bytes_max"] == MIB
    assert await wire.ended()


async def test_client_that_sends_a_huge_body_can_read_the_refusal(strict: Running) -> None:
    async with strict.data.post(TOPIC, data=io.BytesIO(b"x" * (4 * MIB))) as answer:
        assert answer.status == 413


async def test_chunked_huge_body_is_refused_while_it_is_read(strict: Running, dial: Dial) -> None:
    wire = await dial(strict.port)
    await wire.send(HEAD, "Transfer-Encoding: chunked\r\n\r\n")
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    for _ in range(17):
        await wire.send(chunk)
    answer = await wire.answer()
    assert (answer.status, answer.problem) == (413, "body-too-large")
    assert held(strict) == 0


@pytest.mark.parametrize("size", [0, 1, BODY_FREE_BYTES, BODY_FREE_BYTES + 1, MIB])
async def test_bodies_up_to_the_limit_arrive_whole(strict: Running, size: int) -> None:
    value = bytes(index % 251 for index in range(size))
    await publish(strict, value, "images")
    assert [each.value for each in await strict.sidecar.published("images")] == [value]
    assert held(strict) == 0


async def test_large_bodies_share_a_budget(strict: Running, dial: Dial) -> None:
    """With the budget taken a further large body is 429, a small one passes; then all is free."""
    limits = strict.listener.data.limits
    assert limits.bodies.take(limits.bodies.limit)
    wire = await dial(strict.port)
    await wire.send(HEAD, f"Content-Length: {MIB}\r\n\r\n")
    answer = await wire.answer()
    assert (answer.status, answer.problem) == (429, "too-many-requests")
    assert answer.headers["retry-after"] == "1"
    await publish(strict, b"small", "images")
    limits.bodies.give(limits.bodies.limit)
    await publish(strict, b"x" * MIB, "images")
    assert held(strict) == 0


async def test_body_cut_off_leaves_nothing_behind(strict: Running, dial: Dial) -> None:
    wire = await dial(strict.port)
    await wire.send(HEAD, f"Content-Length: {MIB}\r\n\r\n", b"x" * (200 * KIB))

    async def holds() -> bool:
        return held(strict) == MIB

    await wait_until_async(holds, "the body is being read")
    await wire.close()

    async def free() -> bool:
        return held(strict) == 0 and strict.listener.data.server.open == 0

    await wait_until_async(free, "everything is given back")
    assert await strict.sidecar.published("images") == []


async def test_reader_that_does_not_read_is_cut_off(start: Start, dial: Dial, calls: Calls) -> None:
    """A large answer fills the socket; after the time-out the connection goes, the leases stay."""
    server = await start(replace(SETTINGS, body_bytes_max=16 * MIB))
    abandoned = calls(server.engine, "abandon")
    for _ in range(3):
        await publish(server, b"x" * (8 * MIB), "images")
    wire = await dial(server.port)
    await wire.post("/v1/subscriptions/images/receive", f'{{"max":3,"bytes_max":{32 * MIB}}}')

    async def stuck() -> bool:
        return server.listener.data.limits.unread.held > 8 * MIB

    await wait_until_async(stuck, "the answer waits for its reader")

    async def cut() -> bool:
        return held(server) == 0 and server.listener.data.server.open <= 1

    await wait_until_async(cut, "the connection was cut")
    assert await server.sidecar.states("images") == ["leased"] * 3
    assert abandoned == []


async def test_reader_that_trickles_is_cut_off_too(start: Start, dial: Dial) -> None:
    """A little now and then does not start the time anew."""
    server = await start(replace(SETTINGS, body_bytes_max=16 * MIB))
    for _ in range(2):
        await publish(server, b"x" * (8 * MIB), "images")
    wire = await dial(server.port)
    await wire.post("/v1/subscriptions/images/receive", f'{{"max":2,"bytes_max":{32 * MIB}}}')
    read = 0

    async def cut() -> bool:
        nonlocal read
        with suppress(ConnectionError):
            read += len(await wire.reader.read(1024))
        return read > 0 and held(server) == 0 and server.listener.data.server.open <= 1

    await wait_until_async(cut, "the connection was cut")
    assert read < 8 * MIB
    assert await server.sidecar.states("images") == ["leased"] * 2


async def test_receive_waits_while_too_many_answers_are_unread(strict: Running) -> None:
    await publish(strict, b"1")
    unread = strict.listener.data.limits.unread
    unread.force(unread.limit)
    answer = await receive(strict)
    assert answer == {"messages": [], "limited_by": "unread-answers"}
    unread.give(unread.limit)
    assert len((await receive(strict))["messages"]) == 1


async def test_too_many_connections_are_refused(strict: Running, dial: Dial) -> None:
    wires = [await dial(strict.port) for _ in range(SETTINGS.connections_max)]
    await wires[-1].send("GET /v1/subscriptions HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert (await wires[-1].answer()).status == 200
    refused = await dial(strict.port)
    answer = await refused.answer()
    assert (answer.status, answer.problem) == (503, "too-many-connections")
    assert await refused.ended()
    async with strict.admin.get("/metrics") as metrics:
        assert 'ackd_http_refused_connections_total{port="data"} 1.0' in await metrics.text()
    await wires[0].close()

    async def room() -> bool:
        return strict.listener.data.server.open < SETTINGS.connections_max

    await wait_until_async(room, "a place is free again")
    again = await dial(strict.port)
    await again.send("GET /v1/subscriptions HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert (await again.answer()).status == 200


async def test_closing_connection_with_unread_answer_is_swept(strict: Running, dial: Dial) -> None:
    """A closed transport waits for its reader to take the rest; it does not keep its place."""
    await publish(strict, b"x" * MIB, "images")
    for _ in range(7):
        await publish(strict, b"x" * MIB, "images")
    wire = await dial(strict.port)
    await wire.send("GET /v1/subscriptions HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert (await wire.answer()).status == 200
    server = strict.listener.data.server
    for connection in server._open:
        # No back pressure: the handler ends at once, and only the transport still holds bytes.
        assert connection.transport is not None
        connection.transport.set_write_buffer_limits(high=64 * MIB)
    body = f'{{"max":8,"bytes_max":{32 * MIB}}}'
    await wire.post("/v1/subscriptions/images/receive", body, "Connection: close")

    async def closing() -> bool:
        return any(
            each.transport is not None and each.transport.is_closing() for each in server._open
        )

    await wait_until_async(closing, "the server closes")

    async def gone() -> bool:
        return not await closing()

    await wait_until_async(gone, "it was swept")
