"""An answer, and the one moment in which its bytes are handed to the transport.

That moment is what rule R21 is about: leases of an answer go back only if *not one byte* of it was
handed over. So the whole answer, head and body, goes out in a single `transport.write` with nothing
awaited between the look at the transport and the write. Before it: nothing was handed over and
`undelivered` is called. After it: the client may have read any part of it, and the leases stay.

It is also the cheap way: a head is a few joined strings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from time import monotonic_ns

from ackd.errors import AckdError
from ackd.http.formats import problems
from ackd.http.formats.quota_headers import quotas_of, rate_limit_headers
from ackd.http.server.request import Request

JSON = "application/json"
_SECOND_NS = 1_000_000_000
_REASONS = {status.value: status.phrase for status in HTTPStatus}
_NO_BODY = frozenset({204, 304})


class _Date:
    """Makes the Date header, once a second (RFC 9110 section 6.6.1)."""

    def __init__(self) -> None:
        self._until_ns = 0
        self._text = ""

    def text(self) -> str:
        now_ns = monotonic_ns()
        if now_ns >= self._until_ns:
            self._text = formatdate(usegmt=True)
            self._until_ns = now_ns + _SECOND_NS
        return self._text


_DATE = _Date()


@lru_cache(maxsize=256)
def _start(status: int, content_type: str) -> str:
    """Make status line and content type; cached, as there are few combinations."""
    line = f"HTTP/1.1 {status} {_REASONS.get(status, '')}\r\n"
    return line if not content_type else f"{line}Content-Type: {content_type}\r\n"


class Reply:
    """An answer with its whole body. Header names and values must be safe for a header line.

    `undelivered` is called, at most once, when not one byte could be handed over. `close` ends the
    connection after the answer.
    """

    __slots__ = ("body", "close", "content_type", "headers", "status", "undelivered")

    def __init__(
        self,
        body: bytes = b"",
        *,
        status: int = 200,
        content_type: str = JSON,
        headers: Sequence[tuple[str, str]] = (),
        close: bool = False,
        undelivered: Callable[[], None] | None = None,
    ) -> None:
        self.body = body
        self.status = status
        self.content_type = content_type
        self.headers = headers
        self.close = close
        self.undelivered = undelivered

    def length(self) -> str:
        """Return the header line that says where the body ends."""
        return f"Content-Length: {len(self.body)}\r\n"

    def head(self, *, http10: bool = False) -> bytes:
        """Return status line and header fields, with the empty line."""
        status = self.status
        empty = status in _NO_BODY
        start = _start(status, "" if empty else self.content_type)
        length = "" if empty else self.length()
        extra = ""
        if self.headers:
            extra = "".join([f"{name}: {value}\r\n" for name, value in self.headers])
        if self.close:
            extra += "Connection: close\r\n"
        elif http10:
            extra += "Connection: keep-alive\r\n"
        head = f"{start}{length}Date: {_DATE.text()}\r\n{extra}\r\n"
        return head.encode("ascii", "replace")

    async def send(self, request: Request) -> None:
        """Write the answer, then wait until a slow reader has taken most of it.

        Raises ConnectionResetError when the connection is gone before the first byte.
        """
        if request.should_close:
            self.close = True
        undelivered, self.undelivered = self.undelivered, None
        body = b"" if self.status in _NO_BODY or request.method == "HEAD" else self.body
        data = self.head(http10=request.http10) + body
        connection = request.connection
        transport = connection.transport
        if transport is None or transport.is_closing():
            if undelivered is not None:
                undelivered()
            raise ConnectionResetError("The client has gone.")
        transport.write(data)
        self.body = b""
        if connection.writing_paused:
            await connection.drain(len(data))


def failure(error: AckdError, *, close: bool = False, allow: str = "") -> Reply:
    """The problem document of an error, with the headers that belong to its status."""
    headers = []
    wait = problems.retry_after(error)
    if wait is not None:
        headers.append(("Retry-After", wait))
    headers.extend(rate_limit_headers(quotas_of(error)))
    if error.status == HTTPStatus.UNAUTHORIZED:
        headers.append(("WWW-Authenticate", 'Bearer realm="ackd"'))
    if allow:
        headers.append(("Allow", allow))
    return Reply(
        problems.encode(error),
        status=error.status,
        content_type=problems.MEDIA_TYPE,
        headers=headers,
        close=close,
    )
