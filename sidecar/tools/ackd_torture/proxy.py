"""A TCP proxy in this process that cuts, refuses and holds back: network faults without root."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct

from ackd_torture.serving import Serving

CHUNK_BYTES = 64 * 1024
RESET = struct.pack("ii", 1, 0)


class Proxy:
    """Forwards 127.0.0.1:`port` to 127.0.0.1:`target`. Faults last until `heal`."""

    def __init__(self, name: str, target: int) -> None:
        self.name = name
        self.target = target
        self.port = 0
        self.bytes_down = 0
        self._server = Serving(self._serve)
        self._open: set[asyncio.StreamWriter] = set()
        self._moving = asyncio.Event()

    async def start(self) -> None:
        """Listen; the port is chosen once and kept."""
        self._moving.set()
        self.port = self._server.listen(self.port)

    async def stop(self) -> None:
        """Reset everything and stop listening; returns when nothing moves any more."""
        self.refuse()
        self._moving.set()
        await self._server.stop()

    def cut(self) -> None:
        """Reset every connection; new ones are served."""
        for writer in list(self._open):
            raw = writer.get_extra_info("socket")
            if raw is not None:
                with contextlib.suppress(OSError):
                    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            writer.transport.abort()

    def refuse(self) -> None:
        """Reset every connection and refuse new ones."""
        self._server.refuse()
        self.cut()

    def hold(self) -> None:
        """Keep connections and accept new ones, but move no bytes."""
        self._moving.clear()

    async def heal(self) -> None:
        self._moving.set()
        if not self._server.listens:
            await self.start()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pair = {writer}
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self.target)
            pair.add(up_writer)
            if not self._server.listens:  # refused while it connected
                return
            self._open |= pair
            async with asyncio.TaskGroup() as group:
                group.create_task(self._move(reader, up_writer, down=False))
                group.create_task(self._move(up_reader, writer, down=True))
        except* OSError:
            pass
        finally:
            self._open -= pair
            for each in pair:
                each.transport.abort()

    async def _move(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, down: bool
    ) -> None:
        while chunk := await reader.read(CHUNK_BYTES):
            await self._moving.wait()
            if down:
                self.bytes_down += len(chunk)
            writer.write(chunk)
            await writer.drain()
        with contextlib.suppress(OSError):
            writer.write_eof()
