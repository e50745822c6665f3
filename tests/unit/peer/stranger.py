"""Somebody who speaks the protocol by hand, and so may break it anywhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from struct import pack
from typing import cast

from ackd.peer.handshake import CONNECTING, HELLO_BYTES, LISTENING, Hello, proof
from tests.unit.peer.recorder import BOUND_S, KEY


@dataclass(slots=True)
class Stranger:
    """A connection to a sidecar."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def say(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.writer.write(data)

    def frame(self, body: bytes) -> None:
        """Send one frame."""
        self.say(pack(">I", len(body)) + body)

    async def read(self, size: int) -> bytes:
        """As many bytes."""
        async with asyncio.timeout(BOUND_S):
            return await self.reader.readexactly(size)

    async def rest(self) -> bytes:
        """All that comes until the sidecar closes."""
        found = b""
        async with asyncio.timeout(BOUND_S):
            try:
                while more := await self.reader.read(65_536):
                    found += more
            except ConnectionError:
                pass
        return found

    async def prove(self, name: str, instance: str, key: bytes = KEY) -> bytes:
        """Do the whole handshake; returns what was sent."""
        mine = Hello.fresh(name, instance).packed()
        self.say(mine)
        hellos = mine + await self.read(HELLO_BYTES)
        said = proof(key, CONNECTING, hellos, b"")
        self.say(said)
        verdict = await self.read(33)
        assert verdict == b"\0" + proof(key, LISTENING, hellos, b"")
        return mine + said


@asynccontextmanager
async def stranger(address: str) -> AsyncIterator[Stranger]:
    """Connect by TCP."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield Stranger(reader, writer)
    finally:
        writer.transport.abort()
        await asyncio.sleep(0)


class _Impostor(asyncio.Protocol):
    """A server's side of a connection: reads a hello and says something."""

    def __init__(self, answer: bytes, made: list[asyncio.Transport]) -> None:
        self._answer = answer
        self._made = made
        self._missing = HELLO_BYTES

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._made.append(cast("asyncio.Transport", transport))

    def data_received(self, data: bytes) -> None:
        self._missing -= len(data)
        if self._missing <= 0:
            self._made[-1].write(self._answer)


@asynccontextmanager
async def impostor(answer: bytes) -> AsyncIterator[str]:
    """A server that is no sidecar; its address."""
    made: list[asyncio.Transport] = []
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Impostor(answer, made), "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for transport in made:
            transport.abort()
        await asyncio.sleep(0)
