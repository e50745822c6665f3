"""A TCP proxy in this process that cuts, refuses and holds back: network faults without root."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct

CHUNK_BYTES = 64 * 1024
STOP_S = 5.0
RESET = struct.pack("ii", 1, 0)


class Proxy:
    """Forwards 127.0.0.1:`port` to 127.0.0.1:`target`. Faults last until `heal`."""

    def __init__(self, name: str, target: int) -> None:
        self.name = name
        self.target = target
        self.port = 0
        self.bytes_down = 0
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._moving = asyncio.Event()

    async def start(self) -> None:
        """Listen; the port is chosen once and kept."""
        self._moving.set()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Reset everything and stop listening; returns when nothing moves any more."""
        self.refuse()
        self._moving.set()
        if self._serving:
            await asyncio.wait(self._serving, timeout=STOP_S)

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
        if self._server is not None:
            self._server.close()
            self._server = None
        self.cut()

    def hold(self) -> None:
        """Keep connections and accept new ones, but move no bytes."""
        self._moving.clear()

    async def heal(self) -> None:
        self._moving.set()
        if self._server is None:
            await self.start()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        pair = {writer, up_writer}
        if self._server is None:  # refused while it connected
            for each in pair:
                each.transport.abort()
            return
        self._open |= pair
        try:
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
