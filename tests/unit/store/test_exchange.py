"""Calls on a connection to a server: one write each, answers in any pieces, no answer mistaken."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest
from redis import exceptions
from redis.asyncio.connection import Connection

from ackd.store.exchange import Exchange, pack

Server = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Dial = Callable[[Server], Awaitable[Exchange]]
TWO = [("SET", "k", b"\r\n"), ("GET", "k")]


@pytest.fixture
async def dial() -> AsyncIterator[Dial]:
    """An exchange with a server that behaves as the test says."""
    async with AsyncExitStack() as stack:

        async def begin(server: Server) -> Exchange:
            ended = asyncio.Event()

            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await server(reader, writer)
                await reader.read()
                writer.close()
                ended.set()

            listening = await asyncio.start_server(serve, "127.0.0.1", 0)
            stack.callback(listening.close)
            stack.push_async_callback(ended.wait)
            port = listening.sockets[0].getsockname()[1]
            connection = Connection(host="127.0.0.1", port=port, protocol=2, driver_info=None)
            await connection.connect()  # type: ignore[no-untyped-call]
            stack.push_async_callback(connection.disconnect, nowait=True)
            return Exchange(connection)

        yield begin


def saying(*pieces: bytes) -> Server:
    """Read the two commands, then send these pieces."""

    async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(len(pack(TWO)))
        for piece in pieces:
            writer.write(piece)
            await writer.drain()

    return server


def test_commands_are_packed_as_the_protocol_wants() -> None:
    wanted = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\n\r\n\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"
    assert pack(TWO) == wanted
    assert pack([("WAIT", 1, 200)]) == b"*3\r\n$4\r\nWAIT\r\n$1\r\n1\r\n$3\r\n200\r\n"


async def test_answers_come_in_any_pieces_and_errors_are_answers(dial: Dial) -> None:
    said = b"-NOSCRIPT No matching script.\r\n$2\r\n\r\n\r\n"
    exchange = await dial(saying(*[said[at : at + 1] for at in range(len(said))]))
    first, second = await exchange.ask(TWO, 5.0)
    assert isinstance(first, exceptions.NoScriptError)
    assert second == b"\r\n"
    assert exchange.open


async def test_answer_too_many_ends_the_connection(dial: Dial) -> None:
    exchange = await dial(saying(b"+OK\r\n+OK\r\n+OK\r\n"))
    with pytest.raises(exceptions.InvalidResponse):
        await exchange.ask(TWO, 5.0)
    assert not exchange.open


async def test_nonsense_ends_the_connection(dial: Dial) -> None:
    exchange = await dial(saying(b"HTTP/1.1 400 Bad Request\r\n"))
    with pytest.raises(exceptions.RedisError):
        await exchange.ask(TWO, 5.0)
    assert not exchange.open


async def test_late_answer_is_never_the_next_calls_answer(dial: Dial) -> None:
    exchange = await dial(saying(b"+OK\r\n"))
    with pytest.raises(TimeoutError):
        await exchange.ask(TWO, 0.05)
    assert not exchange.open
    with pytest.raises(exceptions.ConnectionError):
        await exchange.ask(TWO, 5.0)


async def test_server_that_hangs_up_fails_the_call(dial: Dial) -> None:
    async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(len(pack(TWO)))
        writer.write(b"+OK\r\n")
        writer.write_eof()

    exchange = await dial(server)
    with pytest.raises(exceptions.ConnectionError):
        await exchange.ask(TWO, 5.0)
    assert not exchange.open
