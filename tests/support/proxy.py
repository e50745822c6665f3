"""A TCP proxy that breaks connections on command.

It stands between a client and a server, so that a network fault can be made without touching
either. It runs its own event loop in a thread; all methods may be called from any other thread.
"""

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from typing import Literal, TypeVar

from ackd_torture.ports import free_port, give_back
from ackd_torture.serving import Serving

Direction = Literal["up", "down", "both"]
T = TypeVar("T")
Edit = Callable[[bytes], bytes]
_CHUNK = 64 * 1024
_QUEUE = 64
_RESET = struct.pack("ii", 1, 0)


class Proxy:
    """Forward 127.0.0.1:`port` to `target_port`. Faults last until `heal`.

    `up` is the way from client to server. Freezing only `down` makes the classic case in which the
    server does what it was asked and the client never hears of it.
    """

    def __init__(self, target_port: int, *, port: int | None = None) -> None:
        self.target_port = target_port
        self.port = free_port() if port is None else port
        self._own_port = port is None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"proxy-{self.port}")
        self._server = Serving(self._serve)
        self._pairs: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()
        self._flow = {"up": asyncio.Event(), "down": asyncio.Event()}
        self._delay_ms = 0
        self._accepted = 0
        self._bytes_down = 0
        self._editor: Callable[[], Edit] | None = None

    @property
    def bytes_down(self) -> int:
        """How many bytes came from the server so far, over all connections."""
        return self._bytes_down

    @property
    def accepted(self) -> int:
        """How many connections were accepted so far."""
        return self._accepted

    @property
    def connections(self) -> int:
        """How many connections are open now."""
        return len(self._pairs)

    def start(self) -> None:
        """Listen and forward."""
        self._thread.start()
        self._on_loop(self._open())

    def stop(self) -> None:
        """Reset what is open and end the thread."""
        if not self._thread.is_alive():
            return
        self._on_loop(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()
        if self._own_port:
            give_back(self.port)

    def cut(self) -> None:
        """Reset every open connection; new ones are served."""
        self._on_loop(self._reset_all())

    def refuse(self) -> None:
        """Reset every open connection and refuse new ones."""
        self._on_loop(self._refuse())

    def freeze(self, direction: Direction = "both") -> None:
        """Keep connections, accept new ones, but move no bytes in this direction."""
        self._on_loop(self._set_flow(direction, moving=False))

    def delay(self, delay_ms: int) -> None:
        """Hand on every chunk of bytes this much later, in each direction."""
        self._delay_ms = delay_ms

    def edit(self, editor: Callable[[], Edit] | None) -> None:
        """Hand on what an edit makes of each chunk on its way up; one is made for each connection
        from now on. It may keep bytes back until later ones come.
        """
        self._editor = editor

    def heal(self) -> None:
        """End every fault. Bytes held back by `freeze` go on."""
        self._editor = None
        self._delay_ms = 0
        self._on_loop(self._open())

    def _on_loop(self, act: Coroutine[None, None, T]) -> T:
        return asyncio.run_coroutine_threadsafe(act, self._loop).result(10)

    async def _open(self) -> None:
        await self._set_flow("both", moving=True)
        if not self._server.listens:
            self._server.listen(self.port)

    async def _close(self) -> None:
        await self._refuse()
        await self._server.stop()

    async def _refuse(self) -> None:
        self._server.refuse()
        await self._reset_all()

    async def _reset_all(self) -> None:
        for pair in list(self._pairs):
            for writer in pair:
                _reset(writer)

    async def _set_flow(self, direction: Direction, *, moving: bool) -> None:
        for name, flow in self._flow.items():
            if direction in (name, "both"):
                (flow.set if moving else flow.clear)()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._accepted += 1
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self.target_port)
        except (OSError, asyncio.CancelledError):
            _reset(writer)
            return
        pair = (writer, up_writer)
        if not self._server.listens:  # refused while it connected
            for each in pair:
                _reset(each)
            return
        self._pairs.add(pair)
        try:
            async with asyncio.TaskGroup() as group:
                edit = None if self._editor is None else self._editor()
                group.create_task(self._pump(reader, up_writer, self._flow["up"], edit))
                group.create_task(self._pump(up_reader, writer, self._flow["down"]))
        except* (OSError, asyncio.CancelledError):
            pass
        finally:
            self._pairs.discard(pair)
            for each in pair:
                each.transport.abort()

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        flow: asyncio.Event,
        edit: Edit | None = None,
    ) -> None:
        """Move bytes one way, each chunk not before its due time, until the source ends."""
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_QUEUE)

        async def read() -> None:
            while True:
                await flow.wait()
                chunk = await reader.read(_CHUNK)
                if flow is self._flow["down"]:
                    self._bytes_down += len(chunk)
                await queue.put((self._loop.time() + self._delay_ms / 1000, chunk))
                if not chunk:
                    return

        async def write() -> None:
            while True:
                due, chunk = await queue.get()
                await asyncio.sleep(max(due - self._loop.time(), 0))
                await flow.wait()
                if not chunk:
                    with contextlib.suppress(OSError):
                        writer.write_eof()
                    return
                writer.write(chunk if edit is None else edit(chunk))
                await writer.drain()

        async with asyncio.TaskGroup() as group:
            group.create_task(read())
            group.create_task(write())


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close so that the other side gets a reset, not an orderly end."""
    raw = writer.get_extra_info("socket")
    if raw is not None:
        with contextlib.suppress(OSError):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
