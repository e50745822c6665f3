"""A stream of messages in one answer: NDJSON or server-sent events, by Accept.

Leases begin when the stream asks for messages, and it asks only while fewer than `in_flight` of
those that it gave are unsettled and the reader keeps up. So a worker that does nothing, or reads
nothing, holds `in_flight` messages at most, and the sidecar one batch of them at most.

Rule R21 as everywhere: from the engine's answer to the write nothing is awaited, and leases of
which nothing could be written go back. What was written stays with the client until it settles, or
to the deadline; `release_on_close` gives it back, uncounted, when the connection is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from time import time_ns

import orjson

from ackd.api.messages import Received, ReceiveRequest, Unsettled
from ackd.config.units import HOUR_MS, KIB
from ackd.errors import AckdError, DrainingError, PressureError
from ackd.http.formats.model import LEASE_MS_MAX
from ackd.http.formats.negotiation import NDJSON, SSE, Negotiator
from ackd.http.formats.problems import problem
from ackd.http.handlers.receive import SLOW_READERS, listening
from ackd.http.server.reply import Reply
from ackd.http.server.request import Request
from ackd.http.server.service import HandlerCall, number, truth

FORMS = Negotiator([NDJSON, SSE])
IN_FLIGHT = 50
IN_FLIGHT_MAX = 1000
DURATION_MS = HOUR_MS
DURATION_MS_MAX = 24 * HOUR_MS
"""A stream ends at some time, so that a changed token or a new sidecar takes effect."""
BATCH_BYTES = 256 * KIB
HEARTBEAT_S = 10.0
PAUSE_S = 1.0
_ONE_LINE = bytes.maketrans(b"\r\n", b"  ")


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """The query parameters of a stream."""

    in_flight: int
    duration_ms: int
    lease_ms: int | None
    release_on_close: bool


def _options(call: HandlerCall) -> StreamOptions:
    fields = call.query("in_flight", "duration_ms", "lease_ms", "release_on_close")
    lease_ms = number(fields, "lease_ms", 0, 1, LEASE_MS_MAX)
    return StreamOptions(
        in_flight=number(fields, "in_flight", IN_FLIGHT, 1, IN_FLIGHT_MAX),
        duration_ms=number(fields, "duration_ms", DURATION_MS, 1, DURATION_MS_MAX),
        lease_ms=lease_ms or None,
        release_on_close=truth(fields, "release_on_close"),
    )


async def stream(call: HandlerCall) -> Reply:
    """GET /v1/subscriptions/{subscription}/stream."""
    call.service.encoder(call.params[0])
    form = FORMS.choose(call.header("Accept"))
    options = _options(call)
    if call.service.draining:
        raise DrainingError
    return Stream(call, form, options)


# --- lines ----------------------------------------------------------------------------------------


def _ndjson(_event: str, data: bytes) -> bytes:
    return data + b"\n"


def _sse(event: str, data: bytes) -> bytes:
    """Write lines as a server-sent event; one without a name is a `message` to its reader."""
    return (b"event: %b\n" % event.encode() if event else b"") + b"data: %b\n\n" % data


_LINES: dict[str, Callable[[str, bytes], bytes]] = {NDJSON: _ndjson, SSE: _sse}


class Stream(Reply):
    """An answer that lasts until its time is over, the sidecar stops, or the client leaves."""

    __slots__ = (
        "_beat_s",
        "_call",
        "_chunked",
        "_encoder",
        "_end_s",
        "_limited_by",
        "_line",
        "_now",
        "_options",
        "_unsettled",
    )

    def __init__(self, call: HandlerCall, form: str, options: StreamOptions) -> None:
        super().__init__(
            content_type=form,
            headers=(("Cache-Control", "no-store"), ("X-Accel-Buffering", "no")),
        )
        self._call = call
        self._options = options
        self._line = _LINES[form]
        self._encoder = call.service.encoder(call.params[0])
        self._unsettled: Unsettled = call.service.engine.unsettled(call.params[0])
        self._now = asyncio.get_running_loop().time
        self._end_s = self._beat_s = 0.0
        self._limited_by: str | None = None
        self._chunked = True

    def length(self) -> str:
        """Chunks instead of a length; HTTP/1.0 ends by closing."""
        return "Transfer-Encoding: chunked\r\n" if self._chunked else ""

    async def send(self, request: Request) -> None:
        """Send the whole stream. Raises ConnectionResetError when the client has left."""
        self._chunked = not request.http10
        self.close = request.should_close or not self._chunked
        gauge = self._call.service.metrics.streams.at(self._call.params[0])
        gauge.inc()
        try:
            self._write(self.head())
            if request.method != "HEAD":
                await self._run()
                if self._chunked:
                    self._write(b"0\r\n\r\n")
        except ConnectionResetError:
            self._lost()
            raise
        finally:
            gauge.dec()
            self._unsettled.close()

    def _lost(self) -> None:
        if self._options.release_on_close:
            self._call.service.release(self._unsettled.leases())

    # --- sending

    def _write(self, data: bytes) -> None:
        """Write bytes to the transport. Raises ConnectionResetError before the first one."""
        transport = self._call.connection.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("The client has gone.")
        transport.write(data)

    def _say(self, event: str, data: bytes) -> int:
        """Send a line as one chunk; returns its bytes."""
        line = self._line(event, data)
        self._write(b"%x\r\n%b\r\n" % (len(line), line) if self._chunked else line)
        return len(line)

    def _give(self, received: Received) -> int:
        """Send messages; release those that can't be sent (R21)."""
        # A newline in valid JSON is never part of a string: a space does as well.
        lines = [
            self._line("", self._encoder.one(each).translate(_ONE_LINE))
            for each in received.messages
        ]
        data = b"".join(lines)
        try:
            self._write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)
        except ConnectionResetError:
            self._call.service.abandon(received)
            raise
        self._unsettled.add(received.messages)
        return len(data)

    # --- the loop

    async def _run(self) -> None:
        """Send messages and heartbeats until the end, then the reason why it ended."""
        self._beat_s = self._now() + HEARTBEAT_S
        self._end_s = self._now() + self._options.duration_ms / 1000
        service = self._call.service
        try:
            while self._now() < self._end_s and not service.draining:
                if self._call.connection.transport is None:
                    raise ConnectionResetError("The client has gone.")
                if self._now() >= self._beat_s:
                    self._heartbeat()
                room = self._options.in_flight - self._unsettled.count()
                if room > 0:
                    await self._more(room)
                else:
                    await listening(self._call, self._unsettled.wait(self._pause_s()), None)
            reason: dict[str, object] = {"end": "drain" if service.draining else "duration"}
        except DrainingError:
            reason = {"end": "drain"}
        except AckdError as error:
            reason = {"end": "error", "problem": problem(error)}
        self._say("end", orjson.dumps(reason, default=str))

    def _pause_s(self) -> float:
        """Seconds until the next heartbeat or the stream's end."""
        return max(min(self._beat_s, self._end_s) - self._now(), 0.001)

    def _heartbeat(self) -> None:
        self._beat_s = self._now() + HEARTBEAT_S
        members: dict[str, object] = {
            "heartbeat": time_ns() // 1_000_000,
            "unsettled": self._unsettled.count(),
        }
        if self._limited_by is not None:
            members["limited_by"] = self._limited_by
        self._say("heartbeat", orjson.dumps(members))

    async def _more(self, room: int) -> None:
        """Wait for messages and send them. Raises AckdError when waiting can't help."""
        call, options = self._call, self._options
        unread = call.connection.limits.unread
        if unread.full:
            self._limited_by = SLOW_READERS
            await listening(call, unread.room(min(self._pause_s(), PAUSE_S)), False)
            return
        request = ReceiveRequest(
            max=min(room, call.service.settings.receive_max),
            wait_ms=max(int(self._pause_s() * 1000), 1),
            lease_ms=options.lease_ms,
            bytes_max=BATCH_BYTES,
            holder=call.worker(),
        )
        try:
            asking = call.service.engine.receive(call.params[0], request)
            received = await listening(call, asking, Received([]))
        except AckdError as error:
            if call.service.draining or not (
                error.status >= HTTPStatus.INTERNAL_SERVER_ERROR or isinstance(error, PressureError)
            ):
                raise
            self._limited_by = error.type
            await listening(call, asyncio.sleep(min(self._pause_s(), PAUSE_S)), None)
            return
        self._limited_by = received.limited_by
        if received.messages:
            size = self._give(received)
            if call.connection.writing_paused:
                await call.connection.keep_pace(size)
