"""The listening side: HTTP/1.1 connections with bounds, and with problem documents of our own.

A connection reads one request at a time: what is behind it waits as bytes, and the socket waits
when those are many. Every wait has an end: a head or a body that does not come, a client that does
not read its answer, a connection that asks for nothing. A closed connection cancels only what says
so (a long poll): an ack whose sender hangs up at once still counts.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import cast

from ackd.config.units import KIB
from ackd.errors import (
    AckdError,
    ClientError,
    HeadTooLargeError,
    PressureError,
    RequestTimeoutError,
    TooManyConnectionsError,
)
from ackd.http.server.body import Body, Chunked
from ackd.http.server.kept import Kept
from ackd.http.server.limits import HEAD_FREE_BYTES, Limits
from ackd.http.server.reply import Reply, failure
from ackd.http.server.request import METHOD_CHARS_MAX, Request

LOG = logging.getLogger("ackd.http")

READ_BYTES = 32 * KIB
"""The most bytes of one read of a socket. All connections of a port share the buffer for it."""
REST_BYTES = 16 * KIB
"""More bytes than this after the request that is being served pause the socket."""
LINGER_S = 2.0
"""How long the rest of a refused request is read and dropped, so that its sender can read the
answer.
"""
SWEEP_S = 1.0
SWEEP_S_MIN = 0.025
_METHOD = re.compile(rb"[!#$%%&'*+.^_`|~0-9A-Za-z-]{1,%d}(?: |\Z)" % METHOD_CHARS_MAX)
_BARE_NEWLINE = re.compile(rb"(?<!\r)\n")
_NEWLINES = b"\r\n"

Handler = Callable[[Request], Awaitable[Reply]]


# tidy: long-class lines=390 attributes=24 -- callbacks and clocks of one, on the hot path
class Connection(asyncio.BufferedProtocol):
    """One client's connection. `transport` is None once it is lost."""

    __slots__ = (
        *("_asked", "_body", "_by_us", "_closing_since", "_drain", "_dropping", "_ending"),
        *("_handler", "_head_since", "_idle_since", "_looked", "_loop", "_paused", "_peer"),
        *("_rest", "_server", "_waiter", "_weight"),
        *("kept", "limits", "on_lost", "task", "transport", "writing_paused"),
    )

    def __init__(self, server: Server) -> None:
        self.limits = server.limits
        self.transport: asyncio.Transport | None = None
        self.task: asyncio.Task[None] | None = None
        self.writing_paused = False
        # Called when the connection is lost while a handler waits for something it then must not
        # take.
        self.on_lost: Callable[[], None] | None = None
        self.kept: Kept | None = None
        self._server = server
        self._handler = server.handler
        self._loop = asyncio.get_running_loop()
        self._peer = ""
        # Bytes that no request has taken yet, and how many of them contain no end of a head.
        self._rest = b""
        self._looked = 0
        # The body that is being received.
        self._body: Body | None = None
        # The serving task waits here for a request (None: there will be none).
        self._waiter: asyncio.Future[Request | AckdError | None] | None = None
        self._drain: asyncio.Future[None] | None = None
        self._paused = False
        # How large a head this connection has reported to the port's budget.
        self._weight = 0
        self._asked = False
        self._dropping = False
        self._ending = False
        self._by_us = False
        self._head_since = self._idle_since = self._closing_since = 0.0

    # --- what the transport calls -----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept, or refuse with a problem document when there are too many."""
        wire = cast("asyncio.Transport", transport)
        if not self._server.admit(self):
            self._ending = True
            wire.write(_goodbye(TooManyConnectionsError()))
            wire.close()
            return
        self.transport = wire
        # Held here, and by its server through `open`, until the connection is lost.
        self.task = self._loop.create_task(self._serve_all())

    def get_buffer(self, sizehint: int) -> memoryview:
        """Buffer for the next read; `buffer_updated` empties it before anybody else reads."""
        return self._server.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(bytes(self._server.buffer[:nbytes]))

    def data_received(self, data: bytes) -> None:
        """Give bytes to the body that is being received, or cut requests out of them."""
        if self._ending or self._dropping:
            return
        body = self._body
        if body is not None:
            data = body.feed(data)
            if body.done:
                self._body = None
            if not data:
                return
        self._rest = self._rest + data if self._rest else data
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            found = self._cut()
            if found is not None:
                waiter.set_result(found)
        elif len(self._rest) > REST_BYTES:
            self.pause()

    def eof_received(self) -> None:
        """A client that will send nothing more counts as gone: the transport closes."""

    def pause_writing(self) -> None:
        """Note that the client reads slower than the server writes."""
        self.writing_paused = True

    def resume_writing(self) -> None:
        """Note that the client has read most of what was written."""
        self.writing_paused = False
        if self._drain is not None and not self._drain.done():
            self._drain.set_result(None)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Inform a waiting handler first: it gives back what nobody will read."""
        self.transport = None
        self._ending = True
        called, self.on_lost = self.on_lost, None
        if called is not None:
            called()
        if self.kept is not None:
            self.kept.close(lost=not self._by_us)
            self.kept = None
        if self._body is not None:
            self._body.fail()
            self._body = None
        self._weigh(0)
        self._wake()
        if self._drain is not None and not self._drain.done():
            self._drain.set_result(None)
        self._server.left(self)

    @property
    def peer(self) -> str:
        """The client's address, `unix` on a socket file. Asking the transport is a system call."""
        if not self._peer and self.transport is not None:
            name = self.transport.get_extra_info("peername")
            self._peer = f"{name[0]}:{name[1]}" if isinstance(name, tuple) else "unix"
        return self._peer

    # --- requests out of bytes --------------------------------------------------------------------

    def _cut(self) -> Request | AckdError | None:
        """Return the next request, an error if the bytes can't be one, or None while its head is
        incomplete.
        """
        data = self._rest
        if data[0] in _NEWLINES:
            data = self._rest = data.lstrip(_NEWLINES)
            self._looked = 0
        most = self.limits.head_bytes_max
        end = data.find(b"\r\n\r\n", self._looked, most)
        if end < 0:
            return self._unfinished(data, most)
        size = end + 4
        try:
            request = Request(data[:size], self)
        except ClientError as error:
            return error
        self._looked = 0
        self._head_since = 0.0
        self._asked = True
        if (size > HEAD_FREE_BYTES or self._weight) and not self._weigh(size):
            return _crowded()
        self._rest = self._take_body(request, data, size)
        return request

    def _unfinished(self, data: bytes, most: int) -> AckdError | None:
        """Judge a head of which more bytes are to come: the error if it is wrong or too large
        already, else None.
        """
        if len(data) >= most:
            return HeadTooLargeError(f"A head may have {most} bytes here.", bytes_max=most)
        if not data:
            return None
        if not _METHOD.match(data) or _BARE_NEWLINE.search(data, self._looked):
            return ClientError("Not a valid HTTP request: it begins with something else.")
        self._looked = max(len(data) - 3, 0)
        if not self._head_since:
            self._head_since = self._loop.time()
        if len(data) > HEAD_FREE_BYTES and not self._weigh(len(data)):
            return _crowded()
        return None

    def _take_body(self, request: Request, data: bytes, at: int) -> bytes:
        """Give a request the part of its body that has come; returns what follows it."""
        if self.limits.keepalive_timeout_s <= 0:
            request.should_close = True
        length = request.length
        if request.chunked:
            body: Body = Chunked(self)
        elif not length:
            return data[at:]
        elif length <= len(data) - at:
            request.whole = data[at : at + length]
            return data[at + length :]
        else:
            body = Body(self, length)
        request.body = body
        rest = body.feed(data[at:])
        if not body.done:
            self._body = body
        return rest

    def _weigh(self, size: int) -> bool:
        """Report to the port's budget how large a head this connection holds; False: no room for
        it.
        """
        size = size if size > HEAD_FREE_BYTES else 0
        heads, more = self.limits.heads, size - self._weight
        if more > 0 and not heads.take(more):
            return False
        if more < 0:
            heads.give(-more)
        self._weight = size
        return True

    def pause(self) -> None:
        """Read no more for now."""
        wire = self.transport
        if not self._paused and wire is not None and not wire.is_closing():
            self._paused = True
            wire.pause_reading()

    def resume(self) -> None:
        wire = self.transport
        if self._paused and wire is not None and not wire.is_closing():
            self._paused = False
            wire.resume_reading()

    # --- serving ----------------------------------------------------------------------------------

    async def _serve_all(self) -> None:
        """Serve the requests of this connection, one after the other, in this one task."""
        found: Request | AckdError | None
        try:
            while not self._ending:
                found = self._cut() if self._rest else None
                if found is None:
                    self.resume()
                    self._idle_since = 0.0
                    self._waiter = self._loop.create_future()
                    found = await self._waiter
                    self._waiter = None
                if not isinstance(found, Request):
                    if found is not None:
                        await self._refuse(found)
                    break
                if not await self._serve(found):
                    break
                if self._weight:
                    self._weigh(0)
        finally:
            self._ending = True
            if self.transport is not None:
                self.transport.close()

    async def _serve(self, request: Request) -> bool:
        """Answer one request; whether the connection can take another one."""
        try:
            reply = await self._handler(request)
            body = request.body
            if body is not None and body.broken:
                reply.close = True
            await reply.send(request)
        except ConnectionError:
            return False
        except Exception:
            LOG.exception("ackd closes a connection on a bug of its own, please report it")
            return False
        if body is not None and not await self._linger(body):
            return False
        return not reply.close

    async def _linger(self, body: Body) -> bool:
        """Read and drop the rest of an unwanted body, so that the answer arrives. Returns whether
        its end was found.
        """
        with suppress(TimeoutError, AckdError):
            async with asyncio.timeout(LINGER_S):
                while not body.done:
                    await body.some()
        if body.broken:
            await self._drop()
        return body.done and not body.broken

    async def _refuse(self, error: AckdError) -> None:
        """Answer bytes that are not a request."""
        wire = self.transport
        if wire is not None and not wire.is_closing():
            wire.write(_goodbye(error))
            await self._drop()

    async def _drop(self) -> None:
        """Drop what else comes until its sender has read the last answer: unread bytes would turn
        the end of the connection into a reset.
        """
        wire = self.transport
        if wire is None or wire.is_closing() or self._ending:
            return
        self._rest = b""
        self._weigh(0)
        self._dropping = True
        with suppress(OSError, RuntimeError):
            wire.write_eof()
        self.resume()
        self._waiter = self._loop.create_future()
        with suppress(TimeoutError):
            async with asyncio.timeout(LINGER_S):
                await self._waiter

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def end(self) -> None:
        """Take no further request: close at once when idle, else after the answer."""
        self._ending = self._by_us = True
        self._wake()

    # --- slow readers -----------------------------------------------------------------------------

    async def _drained(self) -> None:
        """Wait until a slow reader has taken most of the waiting bytes. Raises
        ConnectionResetError.
        """
        while self.writing_paused and self.transport is not None:
            self._drain = self._loop.create_future()
            await self._drain
        if self.transport is None:
            raise ConnectionResetError("The client has gone.")

    async def drain(self, size: int) -> None:
        """Wait for a slow reader, bounded; cut its connection when it takes too long.

        Meanwhile its unread bytes count against the server's bound for unread answers. Raises
        ConnectionResetError.
        """
        limits = self.limits
        limits.unread.force(size)
        try:
            async with asyncio.timeout(limits.write_timeout_s):
                await self._drained()
        except TimeoutError:
            if self.transport is not None:
                self.transport.abort()
            raise ConnectionResetError("The client did not read its answer.") from None
        finally:
            limits.unread.give(size)

    async def keep_pace(self, size: int) -> None:
        """Wait for the reader of a stream, however slow; cut off one that takes nothing at all for
        the time that an answer has.
        """
        limits = self.limits
        limits.unread.force(size)

        async def drained() -> None:
            with suppress(ConnectionError):
                await self._drained()

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

    # --- time -------------------------------------------------------------------------------------

    def sweep(self, now_s: float) -> None:
        """End what takes too long: a head that does not come, an answer that nobody reads, an idle
        connection.
        """
        wire, limits = self.transport, self.limits
        if wire is None:
            return
        if wire.is_closing():
            # A closed transport still waits for its reader to take the last bytes.
            self._closing_since = self._closing_since or now_s
            if now_s - self._closing_since > limits.write_timeout_s:
                wire.abort()
        elif self._waiter is None or self._waiter.done() or self._dropping:
            return
        elif self._head_since:
            if now_s - self._head_since > limits.head_timeout_s:
                wire.write(_goodbye(RequestTimeoutError("The headers did not arrive in time.")))
                self.end()
        elif not self._idle_since:
            self._idle_since = now_s
        elif now_s - self._idle_since > self._idle_s() and not (self.kept and self.kept.open):
            # With such leases the connection stays: closing it would release them.
            self.end()

    def _idle_s(self) -> float:
        """Seconds that the connection may be idle; a new one may at least as long as for a head."""
        limits = self.limits
        keepalive_s = limits.keepalive_timeout_s
        return keepalive_s if self._asked else max(keepalive_s, limits.head_timeout_s)


def _goodbye(error: AckdError) -> bytes:
    reply = failure(error, close=True)
    return reply.head() + reply.body


def _crowded() -> PressureError:
    return PressureError("Too many large heads at once.")


class Server:
    """Makes connections for one port, counts them, and sweeps the slow ones."""

    def __init__(self, handler: Handler, limits: Limits) -> None:
        self.handler = handler
        self.limits = limits
        self.refused = 0
        self.buffer = memoryview(bytearray(READ_BYTES))
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
        self._open.discard(connection)

    async def shutdown(self, timeout_s: float) -> None:
        """Close every connection; those with a request get this long to finish."""
        for connection in tuple(self._open):
            connection.end()
        tasks = {each.task for each in self._open if each.task is not None}
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=timeout_s)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)

    async def sweep(self) -> None:
        """Check every connection from time to time, until cancelled."""
        loop = asyncio.get_running_loop()
        limits = self.limits
        keepalive_s = limits.keepalive_timeout_s or limits.head_timeout_s
        least_s = min(limits.head_timeout_s, limits.write_timeout_s, keepalive_s)
        pause_s = max(min(SWEEP_S, least_s / 4), SWEEP_S_MIN)
        while True:
            await asyncio.sleep(pause_s)
            now_s = loop.time()
            for connection in tuple(self._open):
                connection.sweep(now_s)
