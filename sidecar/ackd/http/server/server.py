"""The listening side: aiohttp's HTTP/1.1 protocol with bounds, and with problem documents of our
own.

aiohttp reads and frames requests; this adds what it leaves open: a time limit for the request line
and headers (slow clients), for clients that never read, a bound on connections, and errors of the
HTTP syntax as problem documents. A closed connection cancels only what says so (a long poll): an
ack whose sender hangs up at once still counts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import cast

from aiohttp import web
from aiohttp.http_exceptions import LineTooLong
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import ERROR, RequestHandler, _ErrInfo

from ackd.config.units import KIB
from ackd.errors import AckdError, ClientError, RequestTimeoutError, TooManyConnectionsError
from ackd.http.server.kept import Kept
from ackd.http.server.limits import Limits
from ackd.http.server.reply import Reply, failure
from ackd.http.server.request import Request

LOG = logging.getLogger("ackd.http")

# aiohttp's own default; a longer line or field is answered 400.
LINE_BYTES_MAX = 8 * KIB
HEADERS_MAX = 128
# A body is read on when less than this waits to be taken; twice as much pauses the socket.
READ_BYTES = 64 * KIB
# How long the rest of a refused body is read and dropped, so that the client can read the answer.
LINGER_S = 2.0
SWEEP_S = 1.0

Handler = Callable[[Request], Awaitable[Reply]]


class Connection(RequestHandler):
    """One client's connection."""

    __slots__ = (
        "_closing_since",
        "_handler",
        "_head_since",
        "_peer",
        "_wire",
        "kept",
        "limits",
        "on_lost",
    )

    def __init__(self, server: Server) -> None:
        limits = server.limits
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=limits.keepalive_timeout_s,
            access_log=cast("logging.Logger", None),
            auto_decompress=False,
            lingering_time=LINGER_S,
            read_bufsize=READ_BYTES,
            logger=LOG,
            max_line_size=LINE_BYTES_MAX,
            max_field_size=LINE_BYTES_MAX,
            max_headers=HEADERS_MAX,
        )
        self.limits = limits
        # Called when the connection is lost while a handler waits for something it then must not
        # take.
        self.on_lost: Callable[[], None] | None = None
        self.kept: Kept | None = None
        self._handler = server.handler
        self._wire: asyncio.Transport | None = None
        self._peer = ""
        self._head_since = 0.0
        self._closing_since = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept, or refuse with a problem document when there are too many."""
        wire = cast("asyncio.Transport", transport)
        server = cast("Server", self._manager)
        if not server.admit(self):
            wire.write(_goodbye(TooManyConnectionsError()))
            wire.close()
            self._manager = None
            self._force_close = True
            return
        self._wire = wire
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Tell a waiting handler first: it gives back what nobody will read."""
        called, self.on_lost = self.on_lost, None
        if called is not None:
            called()
        if self.kept is not None:
            self.kept.close(lost=not self._force_close)
            self.kept = None
        server = cast("Server | None", self._manager)
        super().connection_lost(exc)
        if server is not None:
            server.left(self)

    def _process_keepalive(self) -> None:
        """Close an idle connection, unless its end would take leases away."""
        if self.kept is not None and self.kept.open:
            self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout
        super()._process_keepalive()

    def data_received(self, data: bytes) -> None:
        """Note since when an unfinished head is there."""
        super().data_received(data)
        waiter = self._waiter
        if waiter is None or waiter.done():
            self._head_since = 0.0
        elif not self._head_since:
            self._head_since = self._loop.time()

    @property
    def peer(self) -> str:
        """The client's address, `unix` on a socket file. Asking the transport is a system call."""
        if not self._peer:
            name = self.peername
            self._peer = f"{name[0]}:{name[1]}" if isinstance(name, tuple) else "unix"
        return self._peer

    async def start(self) -> None:
        """Serve the requests of this connection, one after the other, in this one task.

        aiohttp's own loop makes a task and four more objects for each request, which is a fifth of
        what a small request costs; a handler of ours has no context variables to protect.
        """
        while not self._force_close:
            if not self._messages:
                self._waiter = self._loop.create_future()
                try:
                    await self._waiter
                finally:
                    self._waiter = None
            head, content = self._messages.popleft()
            parser = self._parser
            if parser is not None:
                parser.message_consumed()
            if self._buffer_paused and len(self._messages) <= self._msg_queue_resume_size:
                self._resume_reading_if_drained()
            try:
                again = await self._serve(head, content)
            except BaseException:
                self.force_close()
                raise
            if not again or self._close or self._force_close:
                break
            self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout
            if self._keepalive_handle is None:
                self._keepalive_handle = self._loop.call_at(
                    self._next_keepalive_close_time, self._process_keepalive
                )
        if not self._force_close:
            self._task_handler = None
            if self.transport is not None:
                self.transport.close()

    async def _serve(self, head: RawRequestMessage | _ErrInfo, content: StreamReader) -> bool:
        """Answer one request; whether the connection can take another one."""
        self._request_in_progress = True
        try:
            if isinstance(head, _ErrInfo):
                request = Request(ERROR, content, self)
                reply = self._unreadable(head)
            else:
                request = Request(head, content, self)
                self._current_request = request  # type: ignore[assignment]
                try:
                    reply = await self._handler(request)
                finally:
                    self._current_request = None
            if self._upgraded:
                # aiohttp reads on behind the head: this server takes no upgrade.
                theirs = cast("web.BaseRequest", request), cast("web.StreamResponse", reply)
                _, gone = await self.finish_response(*theirs, None)
                if gone:
                    return False
            else:
                await reply.send(request)
        except ConnectionError:
            return False
        except Exception:
            LOG.exception("a connection failed outside its handler")
            return False
        finally:
            self._request_in_progress = False
            if self._handler_waiter is not None and not self._handler_waiter.done():
                self._handler_waiter.set_result(None)
        if not content.is_eof():
            await self._linger(content)
        self._keepalive = not reply.close
        return self._keepalive

    async def _linger(self, content: StreamReader) -> None:
        """Read and drop the rest of a body that nobody wanted, so that the answer arrives."""
        if self._force_close:
            return
        try:
            async with asyncio.timeout(LINGER_S):
                while not content.is_eof():
                    await content.readany()
        except TimeoutError:
            self.close()
        except Exception:  # noqa: BLE001  a broken body, or a client that has gone
            self.force_close()

    async def drain(self, size: int) -> None:
        """Wait for a slow reader, bounded; its connection is cut when it takes too long.

        What it holds back counts against the server's bound for unread answers meanwhile. Raises
        ConnectionResetError.
        """
        limits = self.limits
        limits.unread.force(size)
        try:
            async with asyncio.timeout(limits.write_timeout_s):
                await self._drain_helper()
        except TimeoutError:
            if self.transport is not None:
                self.transport.abort()
            raise ConnectionResetError("The client did not read its answer.") from None
        finally:
            limits.unread.give(size)

    async def keep_pace(self, size: int) -> None:
        """Wait for the reader of a stream, who may be slow for as long as it likes; one that takes
        nothing at all for the time that an answer has is cut off.
        """
        limits = self.limits
        limits.unread.force(size)

        async def drained() -> None:
            with suppress(ConnectionError):
                await self._drain_helper()

        try:
            async with asyncio.TaskGroup() as group:
                draining = group.create_task(drained())
                while not draining.done() and (transport := self.transport) is not None:
                    before = transport.get_write_buffer_size()
                    await asyncio.wait({draining}, timeout=limits.write_timeout_s)
                    if not draining.done() and transport.get_write_buffer_size() >= before:
                        transport.abort()
        finally:
            limits.unread.give(size)

    def resume_reading(self, resume_parser: bool = True) -> None:  # noqa: FBT001, FBT002  aiohttp's
        """Nothing to do when reading was not paused: aiohttp would parse nothing, per body read."""
        if self._reading_paused or self._buffer_paused:
            super().resume_reading(resume_parser)

    def sweep(self, now_s: float) -> None:
        """End what takes too long: a head that does not come, an answer that nobody reads."""
        wire = self._wire
        if wire is None:
            return
        if wire.is_closing():
            # A closed transport still waits for its reader to take the last bytes.
            self._closing_since = self._closing_since or now_s
            if now_s - self._closing_since > self.limits.write_timeout_s:
                wire.abort()
        elif self._head_since and now_s - self._head_since > self.limits.head_timeout_s:
            self._head_since = 0.0
            wire.write(_goodbye(RequestTimeoutError("The headers did not arrive in time.")))
            self.force_close()

    def _unreadable(self, found: _ErrInfo) -> Reply:
        """A broken request is the client's problem (400); anything else here is a bug of ours."""
        if isinstance(found.exc, LineTooLong):
            error = ClientError("The request line or a header field is too long.")
        else:
            why = (found.message or "").splitlines() or ["unreadable"]
            error = ClientError(f"Not a valid HTTP request: {why[0].rstrip(':')}.")
        return failure(error, close=True)


def _goodbye(error: AckdError) -> bytes:
    reply = failure(error, close=True)
    return reply.head() + reply.body


class Server(web.Server):
    """Makes connections for one port, counts them, and sweeps the slow ones."""

    def __init__(self, handler: Handler, limits: Limits) -> None:
        super().__init__(
            cast("Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]", handler)
        )
        self.handler = handler
        self.limits = limits
        self.refused = 0
        self._open: set[Connection] = set()

    def __call__(self) -> Connection:
        """The protocol of a new connection."""
        return Connection(self)

    @property
    def open(self) -> int:
        """How many connections are open, the ones that are being closed included."""
        return len(self._open)

    def admit(self, connection: Connection) -> bool:
        """Count a connection in; False when the port has all it may have."""
        if len(self._open) >= self.limits.connections_max:
            self.refused += 1
            return False
        self._open.add(connection)
        return True

    def left(self, connection: Connection) -> None:
        """Count a connection out."""
        self._open.discard(connection)

    async def sweep(self) -> None:
        """Look at every connection from time to time, until cancelled."""
        loop = asyncio.get_running_loop()
        limits = self.limits
        pause_s = min(SWEEP_S, limits.head_timeout_s / 4, limits.write_timeout_s / 4)
        while True:
            await asyncio.sleep(pause_s)
            now_s = loop.time()
            for connection in tuple(self._open):
                connection.sweep(now_s)
