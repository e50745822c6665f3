"""Where a request begins and ends: what two readers could understand in two ways is refused."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import pairwise

import pytest
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import HttpRequestParser
from hypothesis import given
from hypothesis import strategies as st

from ackd.config.schema import ServerSettings
from ackd.errors import BadBodyError, ClientError
from ackd.http.server.body import LINE_BYTES_MAX, TRAILERS_BYTES_MAX, Chunked
from ackd.http.server.limits import Limits
from ackd.http.server.reply import Reply
from ackd.http.server.request import Request
from ackd.http.server.server import Connection, Server
from tests.unit.http.conftest import Dial, Running, Start

TOPIC = "/v1/topics/images/messages"
POST = f"POST {TOPIC} HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = POST + "Transfer-Encoding: chunked\r\n\r\n"
SETTINGS = ServerSettings(listen="127.0.0.1:0", admin_listen="127.0.0.1:0")


async def values(server: Running) -> list[bytes | None]:
    return [each.value for each in await server.sidecar.published("images")]


AMBIGUOUS = (
    *("Content-Length: 1\r\nTransfer-Encoding: chunked", "Content-Length: 1\r\nContent-Length: 1"),
    *("Content-Length: 1\r\nContent-Length: 2", "Content-Length: 1, 1", "Content-Length: +1"),
    *("Content-Length: -1", "Content-Length: 0x1", "Content-Length: 1 1", "Content-Length:"),
    *("Content-Length: 1_0", "Content-Length: \xb2", "Content-Length: " + "1" * 30),
    *("Transfer-Encoding: gzip, chunked", "Transfer-Encoding: chunked, chunked"),
    *("Transfer-Encoding: xchunked", "Transfer-Encoding: chunked;a=b", "Transfer-Encoding:"),
    *("Transfer-Encoding: identity", 'Transfer-Encoding: "chunked"'),
    *("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", "Transfer-Encoding : chunked"),
    *("Transfer-Encoding: chunked\r\nContent-Length: 0", "Transfer-Encoding\t: chunked"),
    *(
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: x",
        "Content-Length : 1",
        " Content-Length: 1",
    ),
    *("A: b\r\n Content-Length: 1", "A: b\r\n\tc", "A: b\nContent-Length: 1", "A: b\rC: d"),
    *("A: b\r\r\nC: d", "A: \x00", "A: \x1f", "A: \x7f", "A\x00: b", ": b", "A b: c", "A(b): c"),
    *("no colon", "Host", "A: b\r\n: c", "A:\x0bb", "\xe9: b", "[a]: b", "Host: localhost"),
)


@pytest.mark.parametrize("lines", AMBIGUOUS)
async def test_what_is_ambiguous_is_refused_and_what_follows_is_no_request(
    server: Running, dial: Dial, lines: str
) -> None:
    wire = await dial(server.port)
    follows = f"{POST}Content-Length: 1\r\n\r\nx"
    await wire.send(f"{POST}{lines}\r\n\r\n".encode("latin-1"), f"1\r\na\r\n0\r\n\r\n{follows}")
    answer = await wire.answer()
    assert (answer.status, answer.problem) == (400, "bad-request")
    assert await wire.reader.read() == b""
    assert await values(server) == []


FIRST_LINES = (
    *("GET /", "GET  / HTTP/1.1", "GET / HTTP/1.1 ", "GET\t/ HTTP/1.1", "GET /\t HTTP/1.1"),
    *("GET / http/1.1", "GET / HTTP/1.2", "GET / HTTP/0.9", "GET / HTTP/1", "GET / HTTP/01.1"),
    *("GET / HTTP/1.1\x0b", "GET /\x00 HTTP/1.1", "GET /\x7f HTTP/1.1", "GET /\xe9 HTTP/1.1"),
    *("G(T / HTTP/1.1", "GET\x00 / HTTP/1.1", "\xe9 / HTTP/1.1", "GET / HTTP/\xb9.1", "GET"),
    *("M" * 41 + " / HTTP/1.1", " GET / HTTP/1.1", "GET / x HTTP/1.1", "GET  HTTP/1.1"),
)


@pytest.mark.parametrize("line", FIRST_LINES)
async def test_first_lines_that_are_none(server: Running, dial: Dial, line: str) -> None:
    wire = await dial(server.port)
    await wire.send(f"{line}\r\nHost: localhost\r\n\r\n".encode("latin-1"))
    assert (await wire.answer()).problem == "bad-request"
    assert await wire.ended()


@pytest.mark.parametrize("begins", ["\x16\x03\x01\x02", "GET / HTTP/1.1\n", "GET\n", "\x00", "{"])
async def test_what_can_not_become_a_head_is_refused_at_once(
    server: Running, dial: Dial, begins: str
) -> None:
    """Nobody waits for its end."""
    wire = await dial(server.port)
    await wire.send(begins)
    assert (await wire.answer(5)).problem == "bad-request"


@pytest.mark.parametrize(
    "line", ["GET / HTTP/2.0", "GET / HTTP/2", "PRI * HTTP/2.0", "GET / HTTP/3.0"]
)
async def test_other_versions_of_http_are_505(server: Running, dial: Dial, line: str) -> None:
    wire = await dial(server.port)
    await wire.send(f"{line}\r\n\r\nSM\r\n\r\n")
    answer = await wire.answer()
    assert (answer.status, answer.problem) == (505, "http-version")
    assert await wire.ended()


BROKEN_CHUNKS = (
    *("zz\r\n", "-1\r\n", "+1\r\na", "0x1\r\na", "1 1\r\na", "\r\n", ";a\r\n", "1\na\r\n"),
    *("1\r\nab\r\n", "1\r\na\n0\r\n", "1\r\na0\r\n\r\n", "1;\x00\r\na\r\n", "f" * 17 + "\r\n"),
    *("1" * LINE_BYTES_MAX, "0\r\nno colon\r\n\r\n", "0\r\nA: \x00\r\n\r\n", "0\r\n A: b\r\n\r\n"),
    *("0\r\n" + "A: b\r\n" * TRAILERS_BYTES_MAX, "\xb9\r\na\r\n", " 1\r\na\r\n"),
)


@pytest.mark.parametrize("text", BROKEN_CHUNKS)
async def test_broken_chunks_end_the_connection(server: Running, dial: Dial, text: str) -> None:
    """Nobody knows where the next request would begin: it is none."""
    wire = await dial(server.port)
    follows = f"{POST}Content-Length: 1\r\n\r\nx".encode()
    await wire.send(CHUNKED, text.encode("latin-1"), follows if text.endswith("\n") else b"")
    answer = await wire.answer()
    assert (answer.status, answer.problem) == (400, "bad-body")
    assert answer.headers["connection"] == "close"
    assert await wire.reader.read() == b""
    assert await values(server) == []


WHOLE = (
    f'{CHUNKED}3\r\nabc\r\n00A;x="y" \r\n0123456789\r\n0\r\nA: b\r\n\r\n'
    f"\r\n{POST}Content-Length: 4\r\n\r\n\r\n\r\n"
    f"{CHUNKED}0\r\n\r\n{POST}Content-Length: 0\r\n\r\n{POST}Content-Length: 2\r\n\r\nok"
)
MEANT = [b"abc0123456789", b"\r\n\r\n", b"", b"", b"ok"]


@pytest.mark.parametrize("step", [1, 2, 3, 7, 50, 10_000])
async def test_requests_in_any_pieces_are_the_same(server: Running, dial: Dial, step: int) -> None:
    wire = await dial(server.port)
    raw = WHOLE.encode()
    for at in range(0, len(raw), step):
        await wire.send(raw[at : at + step])
        await asyncio.sleep(0)
    for _ in MEANT:
        assert (await wire.answer()).status == 201
    assert await values(server) == MEANT


def connection() -> Connection:
    async def nobody(_: Request) -> Reply:
        raise AssertionError

    limits = Limits(10, 16384, 1024, 1.0, 1.0, 1.0, 1.0)
    return Connection(Server(nobody, limits))


@given(
    chunks=st.lists(st.binary(min_size=1, max_size=40), max_size=6),
    rest=st.binary(max_size=20),
    cuts=st.lists(st.integers(0, 400), max_size=8),
)
async def test_chunks_cut_anywhere_give_the_same_bytes(
    chunks: list[bytes], rest: bytes, cuts: list[int]
) -> None:
    raw = b"".join(b"%x;e\r\n%b\r\n" % (len(each), each) for each in chunks) + b"0\r\n\r\n" + rest
    body = Chunked(connection())
    places = sorted({0, len(raw), *(each for each in cuts if each < len(raw))})
    behind = b""
    for start, end in pairwise(places):
        piece = raw[start:end]
        behind += piece if body.done else body.feed(piece)
    assert body.done
    assert not body.broken
    assert await body.some() == b"".join(chunks)
    assert await body.some() == b""
    assert behind == rest


@given(raw=st.binary(max_size=60) | st.from_regex(rb"[0-3]{1,2}(;a)?\r\n[ab]{0,3}\r?\n0\r\n\r\n"))
async def test_noise_as_chunks_never_does_more_than_fail(raw: bytes) -> None:
    """In one piece or byte by byte: the same verdict."""
    at_once, by_byte = Chunked(connection()), Chunked(connection())
    at_once.feed(raw)
    for at in range(len(raw)):
        if not by_byte.done:
            by_byte.feed(raw[at : at + 1])
    assert (at_once.done, at_once.broken) == (by_byte.done, by_byte.broken)
    if at_once.broken:
        with pytest.raises(BadBodyError):
            await at_once.some()


async def test_a_thousand_requests_at_once_are_answered_in_order(
    server: Running, dial: Dial
) -> None:
    wire = await dial(server.port)
    raw = "".join(f"{POST}Content-Length: {len(str(n))}\r\n\r\n{n}" for n in range(1000))
    sending = asyncio.ensure_future(wire.send(raw))  # noqa: TID251  held by this test
    for number in range(1000):
        assert f'"offset":{number}}}'.encode() in (await wire.answer()).body
    await sending
    assert await values(server) == [str(number).encode() for number in range(1000)]


async def test_who_asks_on_and_never_reads_is_held_back_and_cut_off(
    start: Start, dial: Dial
) -> None:
    """The socket is not read while answers wait, so little of it is in memory."""
    server = await start(replace(SETTINGS, body_timeout_ms=1_000))
    wire = await dial(server.port)
    one = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
    most = 0

    async def ask() -> None:
        nonlocal most
        while True:
            await wire.send(one * 500)
            await asyncio.sleep(0)
            open_ = server.listener.data.server._open
            most = max([most, *(len(each._rest) for each in open_)])

    with pytest.raises(ConnectionError):
        await asyncio.wait_for(ask(), 60)
    assert 0 < most <= 64 * 1024


async def test_two_requests_of_http_1_0_on_one_connection(server: Running, dial: Dial) -> None:
    wire = await dial(server.port)
    for _ in range(2):
        await wire.send("GET /v1/subscriptions HTTP/1.0\r\nConnection: x, Keep-Alive\r\n\r\n")
        answer = await wire.answer()
        assert (answer.status, answer.headers["connection"]) == (200, "keep-alive")
    await wire.send("GET /v1/subscriptions HTTP/1.0\r\n\r\n")
    assert (await wire.answer()).headers["connection"] == "close"
    assert await wire.ended()


async def test_http_1_1_needs_a_host(server: Running, dial: Dial) -> None:
    wire = await dial(server.port)
    await wire.send("GET /v1/subscriptions HTTP/1.1\r\n\r\n")
    assert (await wire.answer()).problem == "bad-request"
    assert await wire.ended()


async def test_a_close_among_other_options_counts(server: Running, dial: Dial) -> None:
    wire = await dial(server.port)
    get = "GET /v1/subscriptions HTTP/1.1\r\nHost: localhost\r\n"
    await wire.send(f"{get}Connection: keep-alive\r\nConnection: te, Close\r\n\r\n{get}\r\n")
    assert (await wire.answer()).headers["connection"] == "close"
    assert await wire.reader.read() == b""


async def test_an_upgrade_with_a_chunked_body_is_declined_too(server: Running, dial: Dial) -> None:
    """Java's client offers HTTP/2 with every first request."""
    wire = await dial(server.port)
    offer = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEA\r\n"
    await wire.send(f"{POST}{offer}Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n")
    assert (await wire.answer()).status == 201
    await wire.send(f"{POST}Content-Length: 1\r\n\r\nb")
    assert (await wire.answer()).status == 201
    assert await values(server) == [b"a", b"b"]


async def test_a_target_in_absolute_form_keeps_its_query(server: Running, dial: Dial) -> None:
    wire = await dial(server.port)
    path = "v1/subscriptions/orders/in-flight?max=x"
    await wire.send(f"GET http://a/{path} HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert (await wire.answer()).status == 422


async def test_refused_body_that_waits_for_100_continue(server: Running, dial: Dial) -> None:
    wire = await dial(server.port)
    await wire.send(f"{POST}Content-Length: {2**40}\r\nExpect: 100-continue\r\n\r\n")
    assert (await wire.answer()).status == 413
    assert await wire.ended()


async def test_body_of_an_address_without_one_is_skipped(server: Running, dial: Dial) -> None:
    wire = await dial(server.port)
    get = "GET /v1/subscriptions HTTP/1.1\r\nHost: localhost\r\n"
    await wire.send(f"{get}Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
    assert (await wire.answer()).status == 200
    await wire.send(f"0\r\n\r\n{get}\r\n")
    assert (await wire.answer()).status == 200


# --- beside llhttp, by way of aiohttp's reader ----------------------------------------------------

METHODS = ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH")
LINES = (
    *("Host: localhost", "A: b", "a:b", "B:  c d \t", "Content-Length: 3", "X-Y: \xe9"),
    *("Transfer-Encoding: chunked", "Connection: close", "Connection: keep-alive", "A:"),
)


@st.composite
def heads(draw: st.DrawFn) -> bytes:
    """A head in which a few bytes may be wrong."""
    version = draw(st.sampled_from(("HTTP/1.1", "HTTP/1.1", "HTTP/1.0")))
    lines = [f"{draw(st.sampled_from(METHODS))} /a?b=c {version}"]
    lines += draw(st.lists(st.sampled_from(LINES), max_size=5))
    raw = bytearray("\r\n".join([*lines, "", ""]).encode("latin-1"))
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(raw) - 5))
        what = draw(st.sampled_from(("change", "cut", "add")))
        byte = draw(st.sampled_from(b"\r\n\0\t :;,\x7f\x80azGH/1"))
        if what == "add":
            raw.insert(at, byte)
        elif what == "cut":
            del raw[at]
        else:
            raw[at] = byte
    return bytes(raw)


@given(raw=heads())
async def test_what_is_taken_means_the_same_to_llhttp(raw: bytes) -> None:
    """Ours takes less. What it takes, the other one takes with the same parts."""
    if not raw.endswith(b"\r\n\r\n") or b"\r\n\r\n" in raw[:-4] or raw[:1] in b"\r\n":
        return
    try:
        ours = Request(raw, connection())
    except ClientError:
        return
    if ours.method not in METHODS:
        return  # llhttp has a list of them
    loop = asyncio.get_running_loop()
    theirs = HttpRequestParser(BaseProtocol(loop), loop, 2**16)
    [(head, _)], _, _ = theirs.feed_data(raw)
    assert (head.method, head.path) == (ours.method, ours.path)
    assert head.raw_headers == tuple(ours.fields())
    assert (head.version < (1, 1)) == ours.http10
    if len(ours.headers.getall("connection")) < 2:  # of several ours reads all
        assert head.should_close == ours.should_close
    assert head.chunked == ours.chunked
