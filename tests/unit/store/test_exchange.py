"""A connection to a server: one write a call, answers in any pieces, no answer mistaken."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from ackd.store.exchange import Exchange, LostError, ServerError, pack
from ackd_torture.serving import Answer
from tests.support.serving import serving

Dial = Callable[[Answer], Awaitable[Exchange]]
TWO = [("SET", "k", b"\r\n"), ("GET", "k")]
PUSH = b">3\r\n+message\r\n$1\r\nc\r\n$1\r\nx\r\n"


@pytest.fixture
async def dial() -> AsyncIterator[Dial]:
    """An exchange with a server that behaves as the test says."""
    async with AsyncExitStack() as stack:

        async def begin(server: Answer) -> Exchange:
            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await server(reader, writer)
                await reader.read()

            port = await stack.enter_async_context(serving(serve))
            loop = asyncio.get_running_loop()
            _, exchange = await loop.create_connection(Exchange, "127.0.0.1", port)
            stack.push_async_callback(exchange.drop)
            return exchange

        yield begin


def saying(*pieces: bytes) -> Answer:
    """Read the two commands, then send these pieces."""

    async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(len(pack(TWO)))
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)

    return server


def test_commands_are_packed_as_the_protocol_wants() -> None:
    wanted = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\n\r\n\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"
    assert pack(TWO) == wanted
    assert pack([("WAIT", 1, 200)]) == b"*3\r\n$4\r\nWAIT\r\n$1\r\n1\r\n$3\r\n200\r\n"
    assert pack([("GET", "ä")]) == b"*2\r\n$3\r\nGET\r\n$2\r\n\xc3\xa4\r\n"


async def test_answers_come_in_any_pieces_and_errors_are_answers(dial: Dial) -> None:
    said = b"-NOSCRIPT No matching script.\r\n$2\r\n\r\n\r\n"
    exchange = await dial(saying(*[said[at : at + 1] for at in range(len(said))]))
    first, second = await exchange.ask(TWO, 5.0)
    assert isinstance(first, ServerError)
    assert (first.code, str(first)) == ("NOSCRIPT", "NOSCRIPT No matching script.")
    assert second == b"\r\n"
    assert exchange.open


@pytest.mark.parametrize(
    ("line", "code", "text"),
    [
        (b"READONLY You can't write.", "READONLY", "READONLY You can't write."),
        (b"MOVED 3999 127.0.0.1:6381", "MOVED", "MOVED 3999 127.0.0.1:6381"),
        (b"ASK 3999 127.0.0.1:6381", "ASK", "ASK 3999 127.0.0.1:6381"),
        (b"ERR unknown command", "ERR", "unknown command"),
        (b"ERR \xff\xfe", "ERR", "��"),
        (b"", "", ""),
    ],
)
async def test_an_error_is_an_answer_with_a_code(
    dial: Dial, line: bytes, code: str, text: str
) -> None:
    exchange = await dial(saying(b"+OK\r\n-" + line + b"\r\n"))
    first, second = await exchange.ask(TWO, 5.0)
    assert first == b"OK"
    assert isinstance(second, ServerError)
    assert (second.code, str(second)) == (code, text)
    assert exchange.open


async def test_an_error_inside_an_array_is_an_item(dial: Dial) -> None:
    exchange = await dial(saying(b"*2\r\n-LOADING x\r\n:1\r\n+OK\r\n"))
    (error, one), ok = await exchange.ask(TWO, 5.0)
    assert (str(error), one, ok) == ("LOADING x", 1, b"OK")
    assert exchange.open


@pytest.mark.parametrize(
    "line",
    [
        b"LOADING Redis is loading the dataset in memory",
        b"NOAUTH Authentication required.",
        b"WRONGPASS invalid username-password pair or user is disabled.",
        b"ERR max number of clients reached",
    ],
)
async def test_a_server_that_refuses_everything_ends_the_connection(
    dial: Dial, line: bytes
) -> None:
    exchange = await dial(saying(b"+OK\r\n-" + line + b"\r\n"))
    with pytest.raises(ServerError):
        await exchange.ask(TWO, 5.0)
    assert not exchange.open


@pytest.mark.parametrize("at", range(3))
async def test_push_messages_answer_nothing(dial: Dial, at: int) -> None:
    answers = [b"+OK\r\n", b"$1\r\nv\r\n"]
    exchange = await dial(saying(*answers[:at], PUSH, *answers[at:]))
    assert await exchange.ask(TWO, 5.0) == [b"OK", b"v"]
    assert exchange.open


async def test_answer_too_many_ends_the_connection(dial: Dial) -> None:
    exchange = await dial(saying(b"+OK\r\n+OK\r\n+OK\r\n"))
    with pytest.raises(LostError):
        await exchange.ask(TWO, 5.0)
    assert not exchange.open


async def test_an_answer_after_the_last_one_changes_no_result(dial: Dial) -> None:
    """It arrives after the call is complete, before its caller has looked at the answers."""
    exchange = await dial(saying())
    asking = asyncio.get_running_loop().create_task(exchange.ask(TWO, 5.0))
    await asyncio.sleep(0)
    exchange.data_received(b"+OK\r\n+OK\r\n")
    exchange.data_received(b"+OK\r\n")
    assert await asking == [b"OK", b"OK"]
    assert not exchange.open


@pytest.mark.parametrize(
    "noise",
    [
        b"HTTP/1.1 400 Bad Request\r\n",
        b"\x15\x03\x01\x00\x02\x02\x46",
        b"+OK\r\n*9999999999999999\r\n",
        b"$-5\r\n",
    ],
)
async def test_nonsense_ends_the_connection(dial: Dial, noise: bytes) -> None:
    exchange = await dial(saying(noise))
    with pytest.raises(LostError):
        await exchange.ask(TWO, 5.0)
    assert not exchange.open


async def test_late_answer_is_never_the_next_calls_answer(dial: Dial) -> None:
    exchange = await dial(saying(b"+OK\r\n"))
    with pytest.raises(TimeoutError):
        await exchange.ask(TWO, 0.05)
    assert not exchange.open
    with pytest.raises(OSError):
        await exchange.ask(TWO, 5.0)


async def test_a_call_that_was_given_up_ends_the_connection(dial: Dial) -> None:
    exchange = await dial(saying())
    asking = asyncio.get_running_loop().create_task(exchange.ask(TWO, 5.0))
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.wait([asking])
    assert not exchange.open
    with pytest.raises(LostError):
        await exchange.ask(TWO, 5.0)


async def test_one_call_at_a_time(dial: Dial) -> None:
    exchange = await dial(saying())
    asking = asyncio.get_running_loop().create_task(exchange.ask(TWO, 5.0))
    await asyncio.sleep(0)
    with pytest.raises(LostError, match="in use"):
        await exchange.ask(TWO, 5.0)
    exchange.data_received(b"+OK\r\n+OK\r\n")
    assert await asking == [b"OK", b"OK"]


@pytest.mark.parametrize("said", [b"", b"+OK\r\n", b"+OK\r\n$100\r\nhalf"])
async def test_server_that_hangs_up_fails_the_call(dial: Dial, said: bytes) -> None:
    async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(len(pack(TWO)))
        writer.write(said)
        writer.write_eof()

    exchange = await dial(server)
    with pytest.raises(LostError, match="closed by server"):
        await exchange.ask(TWO, 5.0)
    assert not exchange.open


async def test_a_drop_throws_away_what_a_frozen_server_does_not_take(dial: Dial) -> None:
    dropped = asyncio.Event()

    async def server(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await dropped.wait()
        writer.transport.abort()

    exchange = await dial(server)
    asking = asyncio.get_running_loop().create_task(
        exchange.ask([("SET", "k", bytes(64 << 20))], 5.0)
    )
    await asyncio.sleep(0)
    async with asyncio.timeout(1):
        await exchange.drop()
    dropped.set()
    with pytest.raises(LostError):
        await asking
    assert not exchange.open
