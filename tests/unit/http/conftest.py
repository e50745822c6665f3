"""A real server (sockets) over a real sidecar, in the test's own event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp
import pytest

from ackd.config.address import TcpAddress
from ackd.config.schema import ServerSettings
from ackd.config.subscription import Payload, SubscriptionSettings
from ackd.engine.runtime import Runtime
from ackd.http.listen import Listener
from ackd.telemetry.caller import CALLER
from tests.support.sidecar import BROKER, MEMORY, Sidecar, make_queue
from tests.unit.http.wire import Wire

PAYLOADS: Mapping[str, Payload] = {"orders": "json", "notes": "text", "images": "binary"}
SUBSCRIPTIONS = {
    name: SubscriptionSettings(
        broker=BROKER, topics=(name,), group=name, start="earliest", payload=payload
    )
    for name, payload in PAYLOADS.items()
}
FREE = ServerSettings(listen="127.0.0.1:0", admin_listen="127.0.0.1:0")


@dataclass(slots=True)
class Running:
    """A server that listens, the sidecar behind it, and a client for each port."""

    sidecar: Sidecar
    listener: Listener
    data: aiohttp.ClientSession
    admin: aiohttp.ClientSession
    port: int
    admin_port: int

    @property
    def engine(self) -> Runtime:
        """What answers the server's questions."""
        return self.sidecar.runtime


Start = Callable[[ServerSettings], Awaitable[Running]]


@pytest.fixture(scope="session")
def queue() -> Iterator[Path]:
    """A queue with the topics of all subscriptions, to be copied."""
    with TemporaryDirectory(dir=MEMORY) as folder:
        made = Path(folder, "made")
        asyncio.run(make_queue(made, list(SUBSCRIPTIONS)))
        yield made


@pytest.fixture
def names() -> tuple[str, ...]:
    """The subscriptions of the test's sidecars; a file that needs others has its own."""
    return ("orders",)


@pytest.fixture
async def start(queue: Path, names: tuple[str, ...]) -> AsyncIterator[Start]:
    """Start a server with some settings; everything is closed at the end of the test."""
    async with AsyncExitStack() as stack:

        async def begin(settings: ServerSettings) -> Running:
            folder = Path(stack.enter_context(TemporaryDirectory(dir=MEMORY)))
            subscriptions = {name: SUBSCRIPTIONS[name] for name in names}
            sidecar = Sidecar.make(folder, queue, subscriptions, settings)
            stack.push_async_callback(sidecar.runtime.stop)
            await sidecar.start()
            listener = Listener(sidecar.runtime, settings, sidecar.metrics)
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
            return Running(sidecar, listener, data_client, admin_client, data.port, admin.port)

        yield begin


@pytest.fixture
async def server(start: Start) -> Running:
    """A server with default settings on free ports."""
    return await start(FREE)


@dataclass(frozen=True, slots=True)
class Call:
    """A call that was made. `caller`: whose request it belongs to."""

    args: tuple[Any, ...]
    named: Mapping[str, Any]
    caller: Mapping[str, str] | None


Calls = Callable[[object, str], list[Call]]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Note every call of a method of an object from here on; the object answers it as ever."""

    def noted(of: object, name: str) -> list[Call]:
        found: list[Call] = []
        answer = getattr(of, name)

        def note(*args: Any, **named: Any) -> Any:
            found.append(Call(args, named, CALLER.get()))
            return answer(*args, **named)

        monkeypatch.setattr(of, name, note)
        return found

    return noted


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
