"""The proxy of torture runs: what it says it does to connections, it does."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from ackd_torture.proxy import Proxy
from tests.support.serving import serving

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send back whatever comes."""
    while data := await reader.read(100):
        writer.write(data)
        await writer.drain()


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    async with serving(echo) as port:
        found = Proxy("exporter", port)
        await found.start()
        yield found
        await found.stop()


async def say(streams: Streams, text: bytes) -> bytes:
    reader, writer = streams
    writer.write(text)
    async with asyncio.timeout(60):
        return await reader.readexactly(len(text))


async def test_moves_and_counts(proxy: Proxy) -> None:
    streams = await asyncio.open_connection("127.0.0.1", proxy.port)
    assert await say(streams, b"hello") == b"hello"
    assert proxy.bytes_down == 5
    streams[1].transport.abort()


async def test_cut_resets_and_serves_again(proxy: Proxy) -> None:
    streams = await asyncio.open_connection("127.0.0.1", proxy.port)
    await say(streams, b"1")
    proxy.cut()
    with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
        await say(streams, b"2")
    again = await asyncio.open_connection("127.0.0.1", proxy.port)
    assert await say(again, b"3") == b"3"
    again[1].transport.abort()


async def test_refuse_until_healed(proxy: Proxy) -> None:
    proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", proxy.port)
    await proxy.heal()
    streams = await asyncio.open_connection("127.0.0.1", proxy.port)
    assert await say(streams, b"x") == b"x"
    streams[1].transport.abort()


async def test_hold_keeps_bytes_until_healed(proxy: Proxy) -> None:
    streams = await asyncio.open_connection("127.0.0.1", proxy.port)
    await say(streams, b"1")
    proxy.hold()
    waiting = asyncio.ensure_future(say(streams, b"late"))  # noqa: TID251 -- awaited below
    done, _ = await asyncio.wait({waiting}, timeout=0.3)
    assert not done
    await proxy.heal()
    assert await waiting == b"late"
    streams[1].transport.abort()
