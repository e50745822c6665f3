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
from typing import cast

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_exceptions import BadHttpMessage, LineTooLong
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler

from ackd.errors import AckdError, ClientError, RequestTimeoutError, TooManyConnectionsError
from ackd.http import problems
from ackd.http.limits import KIB, Limits
from ackd.http.reply import Reply, failure

LOG = logging.getLogger("ackd.http")

# aiohttp's own default; a longer line or field is answered 400.
LINE_BYTES_MAX = 8 * KIB
HEADERS_MAX = 128
# A body is read on when less than this waits to be taken; twice as much pauses the socket.
READ_BYTES = 64 * KIB
# How long the rest of a refused body is read and dropped, so that the client can read the answer.
LINGER_S = 2.0
SWEEP_S = 1.0

Handler = Callable[[web.BaseRequest], Awaitable[Reply]]


class Connection(RequestHandler):
    """One client's connection."""

    __slots__ = ("_closing_since", "_head_since", "_wire", "limits", "on_lost")

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
        self._wire: asyncio.Transport | None = None
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
        server = cast("Server | None", self._manager)
        super().connection_lost(exc)
        if server is not None:
            server.left(self)

    def data_received(self, data: bytes) -> None:
        """Note since when an unfinished head is there."""
        super().data_received(data)
        waiter = self._waiter
        if waiter is None or waiter.done():
            self._head_since = 0.0
        elif not self._head_since:
            self._head_since = self._loop.time()

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

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """A broken request is the client's problem (400); anything else here is a bug of ours."""
        error: AckdError
        if isinstance(exc, LineTooLong):
            error = ClientError("The request line or a header field is too long.")
        elif isinstance(exc, BadHttpMessage) or status < 500:  # noqa: PLR2004  4xx
            why = (message or "").splitlines() or ["unreadable"]
            error = ClientError(f"Not a valid HTTP request: {why[0].rstrip(':')}.")
        else:
            LOG.error("request failed outside its handler", exc_info=exc)
            error = problems.bug()
        return cast("web.StreamResponse", failure(error, close=True))


def _goodbye(error: AckdError) -> bytes:
    reply = failure(error, close=True)
    return reply.head() + reply.body


class Server(web.Server):
    """Makes connections for one port, counts them, and sweeps the slow ones."""

    def __init__(self, handler: Handler, limits: Limits) -> None:
        super().__init__(
            cast("Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]", handler),
            request_factory=self._request,
        )
        self.limits = limits
        self.refused = 0
        self._open: set[Connection] = set()

    def __call__(self) -> Connection:
        """The protocol of a new connection."""
        return Connection(self)

    def _request(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: RequestHandler,
        writer: AbstractStreamWriter,
        task: asyncio.Task[None],
    ) -> web.BaseRequest:
        return web.BaseRequest(
            message, payload, protocol, writer, task, asyncio.get_running_loop(), client_max_size=0
        )

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
