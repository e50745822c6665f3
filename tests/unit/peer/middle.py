"""Somebody between two sidecars who ends TLS on both sides, or changes what passes."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Protocol

from tests.support.serving import serving

Change = Callable[[bytes], bytes]


class Sides(Protocol):
    """TLS of both directions."""

    @property
    def listening(self) -> Tls: ...
    @property
    def connecting(self) -> Tls: ...


class Tls(Protocol):
    """TLS of one direction."""

    @property
    def context(self) -> ssl.SSLContext: ...


def same(data: bytes) -> bytes:
    """Change nothing."""
    return data


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, change: Change) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(change(data))
            await writer.drain()
    except OSError:
        pass
    writer.close()


@asynccontextmanager
async def between(
    address: str, tls: Sides | None = None, forth: Change = same, back: Change = same
) -> AsyncIterator[tuple[str, int]]:
    """Pass on what goes to `address` and comes from there; where to connect instead, and the port.

    `tls`: what it shows and connects with; without it passes bytes on as they are.
    """
    host, _, port = address.rpartition(":")

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        context = None if tls is None else tls.connecting.context
        there = await asyncio.open_connection(host, int(port), ssl=context)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(_pump(reader, there[1], forth))
                both.create_task(_pump(there[0], writer, back))
        finally:
            there[1].transport.abort()

    async with serving(relay, None if tls is None else tls.listening.context) as where:
        yield f"127.0.0.1:{where}", where
