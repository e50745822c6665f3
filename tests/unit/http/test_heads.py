"""Bounds of heads (I8): one, all together, on every port, before anybody is asked for a token."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from ackd.config.address import TcpAddress
from ackd.config.schema import ServerSettings
from ackd.config.units import KIB
from ackd.http.server.limits import HEAD_FREE_BYTES
from tests.support.wait import wait_until_async
from tests.unit.http.conftest import Dial, Running, Start
from tests.unit.http.test_flow import publish

SETTINGS = ServerSettings(listen="127.0.0.1:0", admin_listen="127.0.0.1:0")
GET = "GET /v1/subscriptions HTTP/1.1\r\nHost: localhost\r\n"
RECEIVE = "POST /v1/subscriptions/orders/receive HTTP/1.1\r\nHost: localhost\r\n"
MOST = 16 * KIB


def head(size: int, start: str = GET) -> bytes:
    """A whole head of so many bytes."""
    raw = start.encode()
    while size - len(raw) > 1_100:
        raw += b"A: %b\r\n" % (b"a" * 1_000)
    return raw + b"A: %b\r\n\r\n" % (b"a" * (size - len(raw) - 7))


async def test_a_head_may_have_16_kib_and_no_byte_more(server: Running, dial: Dial) -> None:
    wire = await dial(server.port)
    assert len(head(MOST)) == MOST
    await wire.send(head(MOST))
    assert (await wire.answer()).status == 200
    await wire.send(head(MOST + 1))
    answer = await wire.answer()
    assert (answer.status, answer.problem) == (431, "head-too-large")
    assert await wire.ended()


@pytest.mark.parametrize(
    "raw",
    [
        b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nA: " + b"a" * 20_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"A: b\r\n" * 500 + b"\r\n",
        b"GET / HTTP/1.1\r\n" + b"A:\r\n" * 5_000,
    ],
)
async def test_line_field_and_number_of_fields_are_bounded_too(
    server: Running, dial: Dial, raw: bytes
) -> None:
    wire = await dial(server.port)
    await wire.send(raw)
    assert (await wire.answer()).problem == "head-too-large"
    assert await wire.ended()


async def test_the_setting_counts(start: Start, dial: Dial) -> None:
    server = await start(replace(SETTINGS, head_bytes_max=64 * KIB))
    wire = await dial(server.port)
    await wire.send(head(60 * KIB))
    assert (await wire.answer()).status == 200


async def test_who_sends_on_can_read_the_refusal(server: Running, dial: Dial) -> None:
    """What was not read would turn the end of the connection into a reset."""
    wire = await dial(server.port)
    sending = asyncio.ensure_future(wire.send(GET + "A: ", b"a" * 2_000_000))  # noqa: TID251  held here
    assert (await wire.answer()).problem == "head-too-large"
    assert await wire.ended()
    await sending


async def test_every_port_is_bounded_before_it_asks_for_a_token(
    start: Start, dial: Dial, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    settings = replace(SETTINGS, token_file=token, admin_token_file=token)
    server = await start(replace(settings, health_listen="127.0.0.1:0"))
    health = server.listener.address("health")
    assert isinstance(health, TcpAddress)
    for port in (server.port, server.admin_port, health.port):
        wire = await dial(port)
        await wire.send(GET + "A: b\r\n" * 3_000)
        answer = await wire.answer()
        assert (answer.status, answer.problem) == (431, "head-too-large")
        assert await wire.ended()


async def test_large_heads_share_a_budget(server: Running, dial: Dial) -> None:
    """With the budget taken, a further large head is 429, finished or not; a small one passes."""
    heads = server.listener.data.limits.heads
    assert heads.take(heads.limit)
    for raw in (head(8 * KIB), head(8 * KIB)[:-1]):
        wire = await dial(server.port)
        await wire.send(raw)
        answer = await wire.answer()
        assert (answer.status, answer.problem) == (429, "too-many-requests")
        assert await wire.ended()
    wire = await dial(server.port)
    await wire.send(head(HEAD_FREE_BYTES))
    assert (await wire.answer()).status == 200
    heads.give(heads.limit)
    await wire.send(head(8 * KIB))
    assert (await wire.answer()).status == 200
    assert heads.held == 0


async def test_heads_count_until_they_are_answered_or_gone(server: Running, dial: Dial) -> None:
    heads = server.listener.data.limits.heads
    size = 8 * KIB
    waiting = await dial(server.port)
    raw = head(size, f"{RECEIVE}Prefer: wait=20\r\n")
    await waiting.send(raw, head(size))  # what follows waits unread
    unfinished = await dial(server.port)
    await unfinished.send(head(size)[:-1])

    async def both() -> bool:
        return heads.held == 2 * size - 1

    await wait_until_async(both, "both are counted")
    await publish(server, b"1")
    for _ in range(2):
        assert (await waiting.answer()).status == 200
    await unfinished.close()

    async def none() -> bool:
        return heads.held == 0

    await wait_until_async(none, "nothing is counted")


# --- time -----------------------------------------------------------------------------------------


async def test_no_keepalive_closes_behind_each_answer(start: Start, dial: Dial) -> None:
    server = await start(replace(SETTINGS, keepalive_timeout_ms=0))
    wire = await dial(server.port)
    await wire.send(f"{GET}\r\n")
    assert (await wire.answer()).headers["connection"] == "close"
    assert await wire.ended()


@pytest.mark.parametrize("keepalive_ms", [0, 100, 400])
async def test_a_silent_connection_ends_whatever_the_settings(
    start: Start, dial: Dial, keepalive_ms: int
) -> None:
    """Nothing at all, or only empty lines, which no head needs."""
    settings = replace(SETTINGS, head_timeout_ms=300, keepalive_timeout_ms=keepalive_ms)
    server = await start(settings)
    for said in ("", "\r\n\r\n"):
        wire = await dial(server.port)
        await wire.send(said)
        assert await wire.ended(20)
    assert server.listener.data.server.open == 0


async def test_an_idle_connection_ends_in_time(start: Start, dial: Dial) -> None:
    server = await start(replace(SETTINGS, keepalive_timeout_ms=200))
    wire = await dial(server.port)
    await wire.send(f"{GET}\r\n")
    assert (await wire.answer()).status == 200
    assert await wire.ended(20)
