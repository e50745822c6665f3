"""A TCP server of which nothing is left when it has stopped."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
LOST = (OSError, asyncio.IncompleteReadError)


class Serving:
    """Calls `answer` for each connection to 127.0.0.1, and closes it after that.

    asyncio's own servers hand what they accept to tasks of theirs. If the server is closed or the
    loop ends before such a task begins, the garbage collector finds an open socket some time later.
    """

    def __init__(self, answer: Answer, tls: ssl.SSLContext | None = None) -> None:
        self._answer = answer
        self._tls = tls
        self._listening: socket.socket | None = None
        self._going: dict[asyncio.Task[None], socket.socket] = {}

    @property
    def listens(self) -> bool:
        """Whether it takes new connections."""
        return self._listening is not None

    def listen(self, port: int = 0) -> int:
        """Take new connections; the port."""
        listening = self._listening = socket.create_server(("127.0.0.1", port))
        listening.setblocking(False)
        asyncio.get_running_loop().add_reader(listening, self._accept, listening)
        chosen: int = listening.getsockname()[1]
        return chosen

    def refuse(self) -> None:
        """Take no new connections; those that there are go on."""
        if self._listening is not None:
            asyncio.get_running_loop().remove_reader(self._listening)
            self._listening.close()
            self._listening = None

    async def stop(self) -> None:
        """Abort everything. Raises what an `answer` has raised, unless it lost its connection."""
        self.refuse()
        going = dict(self._going)
        for task in going:
            task.cancel()
        ended = await asyncio.gather(*going, return_exceptions=True)
        for wire in going.values():  # a task that was cancelled before it began closed nothing
            wire.close()
        for each in ended:
            if isinstance(each, Exception):
                raise each

    def _accept(self, listening: socket.socket) -> None:
        with suppress(BlockingIOError, ConnectionAbortedError):  # it has hung up since
            wire, _ = listening.accept()
            wire.setblocking(False)
            task = asyncio.get_running_loop().create_task(self._serve(wire))
            self._going[task] = wire
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or task.exception() is None:
            del self._going[task]

    async def _serve(self, wire: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        try:
            transport, protocol = await loop.connect_accepted_socket(
                lambda: asyncio.StreamReaderProtocol(reader), wire, ssl=self._tls
            )
        except OSError:
            return
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        try:
            await self._answer(reader, writer)
            writer.close()
            await writer.wait_closed()
        except LOST:
            pass
        finally:
            transport.abort()
