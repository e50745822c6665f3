"""Whoever comes as a server of a test ends is not left to the garbage collector."""

import asyncio
import gc
import socket
import ssl
import warnings
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
import trustme

from ackd_torture.proxy import Proxy
from tests.support import proxy as other_proxy
from tests.support.serving import serving

TURNS = range(8)
"""Of the loop, which a server has for a connection before it ends: from none to enough."""
Story = Callable[[int, socket.socket], Awaitable[None]]


async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    """Wait for the end of what it is told."""
    await reader.read()


async def served(turns: int, who: socket.socket, tls: ssl.SSLContext | None = None) -> None:
    """Connect somebody, some turns before the end."""
    async with serving(silent, tls) as port:
        await asyncio.sleep(0)
        who.connect(("127.0.0.1", port))
        for _ in range(turns):
            await asyncio.sleep(0)


async def proxied(turns: int, who: socket.socket) -> None:
    """The same with a proxy between two."""
    async with serving(silent) as port:
        between = Proxy("between", port)
        await between.start()
        await asyncio.sleep(0)
        who.connect(("127.0.0.1", between.port))
        for _ in range(turns):
            await asyncio.sleep(0)
        await between.stop()


def told_of(story: Callable[[socket.socket], Awaitable[None]]) -> list[str]:
    """Run it in a loop of its own; what the collector has to say after that, and not of tests of
    before.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
    with warnings.catch_warnings(record=True) as told, socket.socket() as who:
        warnings.simplefilter("always")

        async def whole() -> None:
            await story(who)

        asyncio.run(whole())
        gc.collect()
    return [str(each.message) for each in told]


@pytest.mark.parametrize("turns", TURNS)
@pytest.mark.parametrize("story", [served, proxied])
def test_nothing_is_left(story: Story, turns: int) -> None:
    assert told_of(lambda who: story(turns, who)) == []


@pytest.mark.parametrize("turns", TURNS)
def test_nothing_is_left_of_who_has_not_ended_its_handshake(turns: int) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("server.example").configure_cert(context)
    assert told_of(lambda who: served(turns, who, context)) == []


async def test_an_error_of_what_answers_is_raised() -> None:
    async def wrong(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        raise ZeroDivisionError

    async def asked() -> None:
        async with serving(wrong) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            with suppress(ConnectionError):
                await reader.read()
            writer.transport.abort()

    with pytest.raises(ZeroDivisionError):
        await asked()


def test_nothing_is_left_of_who_comes_as_a_proxy_of_a_thread_stops() -> None:
    with warnings.catch_warnings(record=True) as told, socket.create_server(("", 0)) as listening:
        warnings.simplefilter("always")
        for _ in range(100):
            between = other_proxy.Proxy(listening.getsockname()[1])
            between.start()
            with socket.create_connection(("127.0.0.1", between.port), 60):
                between.stop()
            gc.collect()
    assert [str(each.message) for each in told] == []
