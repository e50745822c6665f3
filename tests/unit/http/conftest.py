"""A real server (sockets) over an engine in memory, in the test's own event loop."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

import aiohttp
import pytest

from ackd.config.address import TcpAddress
from ackd.config.schema import ServerSettings
from ackd.http.server.listen import Listener
from ackd.telemetry.metrics import Metrics
from tests.unit.http.memory_engine import MemoryEngine
from tests.unit.http.wire import Wire

TOPICS = {"orders": "json", "notes": "text", "images": "binary"}


@dataclass(slots=True)
class Running:
    """A server that listens, its engine, and a client for each port."""

    engine: MemoryEngine
    listener: Listener
    data: aiohttp.ClientSession
    admin: aiohttp.ClientSession
    port: int
    admin_port: int


Start = Callable[[ServerSettings], Awaitable[Running]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Start a server with some settings; everything is closed at the end of the test."""
    async with AsyncExitStack() as stack:

        async def begin(settings: ServerSettings) -> Running:
            engine = MemoryEngine(TOPICS)
            listener = Listener(engine, settings, Metrics())
            stack.push_async_callback(listener.stop)
            await listener.start()
            await listener.open_data()
            data, admin = listener.address("data"), listener.address("admin")
            assert isinstance(data, TcpAddress)
            assert isinstance(admin, TcpAddress)
            data_client = aiohttp.ClientSession(f"http://{data}")
            admin_client = aiohttp.ClientSession(f"http://{admin}")
            stack.push_async_callback(data_client.close)
            stack.push_async_callback(admin_client.close)
            return Running(engine, listener, data_client, admin_client, data.port, admin.port)

        yield begin


@pytest.fixture
async def server(start: Start) -> Running:
    """A server with default settings on free ports."""
    return await start(ServerSettings(listen="127.0.0.1:0", admin_listen="127.0.0.1:0"))


Dial = Callable[[int], Awaitable[Wire]]


@pytest.fixture
async def dial() -> AsyncIterator[Dial]:
    """Open connections by hand to a port; all are closed at the end of the test."""
    opened: list[Wire] = []

    async def connect(port: int) -> Wire:
        opened.append(await Wire.open(port))
        return opened[-1]

    yield connect
    for wire in opened:
        await wire.close()
