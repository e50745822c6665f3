"""A real sidecar that pushes, and a real aiohttp server that it pushes to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from ackd_torture.ports import free_port, give_back
from tests.integration.http.conftest import Sidecar, call, sidecar_in
from tests.support.paths import remove_run_dir, run_dir
from tests.support.wait import wait_until, wait_until_async

TOPIC = "/v1/topics/orders/messages"
Handler = Callable[["Seen"], Awaitable[web.Response]]


@dataclass(frozen=True)
class Seen:
    """One call of the application."""

    headers: dict[str, str]
    body: bytes
    at_s: float

    @property
    def lease(self) -> str:
        """Its lease."""
        return self.headers["Ackd-Lease"]

    @property
    def attempt(self) -> int:
        """Which delivery it is."""
        return int(self.headers["Ackd-Attempt"])


@dataclass
class Application:
    """A server that notes what it is called with and answers as `answer` says."""

    port: int
    answer: Handler
    calls: list[Seen] = field(default_factory=list)
    at_once: int = 0
    most: int = 0
    runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen."""
        app = web.Application(client_max_size=1 << 25)
        app.router.add_post("/orders", self._called)
        self.runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", self.port).start()

    async def stop(self) -> None:
        """Hear nothing any more."""
        if self.runner is not None:
            await self.runner.cleanup()
            self.runner = None

    async def _called(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        at_s = asyncio.get_running_loop().time()
        seen = Seen(dict(request.headers), body, at_s)
        self.calls.append(seen)
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        try:
            return await self.answer(seen)
        finally:
            self.at_once -= 1

    async def called(self, times: int, timeout_s: float = 60) -> list[Seen]:
        """Wait until there were so many calls."""

        async def enough() -> bool:
            return len(self.calls) >= times

        await wait_until_async(enough, f"{times} calls, so far {self.calls}", timeout_s=timeout_s)
        return self.calls


async def ok(_seen: Seen) -> web.Response:
    """204."""
    return web.Response(status=204)


@dataclass
class World:
    """Sidecar and application of one test."""

    sidecar: Sidecar
    app: Application
    folder: Path

    async def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> Any:
        """JSON of the data port."""
        status, answer = await asyncio.to_thread(
            call, self.sidecar.port, method, path, body, **headers
        )
        assert status < 300, answer
        return answer

    async def admin(self, method: str, path: str, body: bytes = b"") -> Any:
        """JSON of the admin port."""
        port = self.sidecar.admin_port
        status, answer = await asyncio.to_thread(call, port, method, path, body)
        assert status < 300, answer
        return answer

    async def publish(self, *values: bytes, **headers: str) -> None:
        """One message after the other."""
        for value in values:
            await self.ask("POST", TOPIC, value, **headers)

    async def finished(self, count: int, timeout_s: float = 60) -> None:
        """Wait until so many messages of the topic, and no fewer than all, are finished."""

        async def there() -> bool:
            lag = await self.ask("GET", "/v1/subscriptions/orders/lag")
            ends = [each["end"] for each in lag["partitions"]]
            marks = [each["watermark"] for each in lag["partitions"]]
            return ends == marks and sum(ends) == count

        await wait_until_async(there, f"{count} messages are finished", timeout_s=timeout_s)

    async def limits(self) -> list[str]:
        """What explain says."""
        explained = await self.ask("GET", "/v1/subscriptions/orders/explain")
        return [str(each) for each in explained["limits"]]

    async def until_limited(self, words: str) -> None:
        """Wait until explain says so."""

        async def said() -> bool:
            return any(words in each for each in await self.limits())

        await wait_until_async(said, f"explain to say {words!r}")

    async def metric(self, name: str) -> float:
        """A metric's value; 0 without it."""

        def read() -> float:
            from urllib.request import urlopen  # noqa: PLC0415

            with urlopen(f"{self.sidecar.admin_url}/metrics", timeout=60) as answer:  # noqa: S310
                for line in answer.read().decode().splitlines():
                    if line.startswith(f"{name} "):
                        return float(line.rsplit(" ", 1)[1])
            return 0.0

        return await asyncio.to_thread(read)


StartWorld = Callable[..., Awaitable[World]]


@pytest.fixture
async def start() -> AsyncIterator[StartWorld]:
    """Start a sidecar with push settings (TOML lines); `subscription`: lines of its section."""
    async with AsyncExitStack() as stack:

        async def begin(
            answer: Handler = ok, *, push: str = "", subscription: str = "", up: bool = True
        ) -> World:
            folder = run_dir("push")
            stack.callback(remove_run_dir, folder)
            port = free_port()
            stack.callback(give_back, port)
            sidecar = sidecar_in(folder, drain_ms=8_000)
            stack.callback(give_back, sidecar.port, sidecar.admin_port)
            config = folder / "ackd.toml"
            lines = f"[subscriptions.orders]\nretry_delays_ms = [200]\n{subscription}\n"
            text = config.read_text().replace("[subscriptions.orders]\n", lines)
            text += f'\n[subscriptions.orders.push]\nurl = "http://127.0.0.1:{port}/orders"\n{push}'
            config.write_text(text)
            app = Application(port, answer)
            if up:
                await app.start()
            stack.push_async_callback(app.stop)
            # Gently it would wait for leases that are still out, and for calls.
            stack.push_async_callback(asyncio.to_thread, sidecar.process.kill)
            await asyncio.to_thread(start_ready, sidecar)
            return World(sidecar, app, folder)

        yield begin


def start_ready(sidecar: Sidecar) -> None:
    """Start it with its topics there (the local broker makes one with its first message)."""
    sidecar.process.start()

    def made() -> bool:
        if not sidecar.process.running:
            raise AssertionError(sidecar.process.log())
        # Any message would be pushed: the topic that is not is enough for `images`.
        status, _ = call(sidecar.port, "POST", "/v1/topics/images/messages", b"1")
        return status == 201

    wait_until(made, "the broker is there", timeout_s=60, ignoring=(OSError,))
    wait_until(sidecar.ready, "the sidecar is ready", timeout_s=60, ignoring=(OSError,))
