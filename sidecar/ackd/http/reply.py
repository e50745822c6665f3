"""An answer, and the one moment in which its bytes are handed to the transport.

That moment is what rule R21 is about: leases of an answer go back only if *not one byte* of it was
handed over. So the whole answer, head and body, goes out in a single `transport.write` with nothing
awaited between the look at the transport and the write. Before it: nothing was handed over and
`undelivered` is called. After it: the client may have read any part of it, and the leases stay.

It is also the cheap way: a head is a few joined strings.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from time import monotonic_ns
from typing import TYPE_CHECKING, Protocol, cast

from ackd.errors import AckdError
from ackd.http import problems
from ackd.http.limits import Limits

if TYPE_CHECKING:
    from aiohttp.web import BaseRequest

JSON = "application/json"
_SECOND_NS = 1_000_000_000
_REASONS = {status.value: status.phrase for status in HTTPStatus}
_NO_BODY = frozenset({204, 304})


class HasLimits(Protocol):
    """What an answer needs to know of its connection."""

    limits: Limits


class _Date:
    """The Date header, formatted once a second (RFC 9110 section 6.6.1)."""

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
    """Status line and content type: few combinations, the same ones again and again."""
    line = f"HTTP/1.1 {status} {_REASONS.get(status, '')}\r\n"
    return line if not content_type else f"{line}Content-Type: {content_type}\r\n"


class Reply:
    """An answer with its whole body. Header names and values must be safe for a header line.

    `undelivered` is called, at most once, when not one byte could be handed over. `close` ends the
    connection after the answer. It has the three members that aiohttp asks of a response.
    """

    __slots__ = ("_request", "body", "close", "content_type", "headers", "status", "undelivered")

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
        self._request: BaseRequest | None = None

    @property
    def keep_alive(self) -> bool:
        """Whether the connection serves another request (aiohttp asks after the answer)."""
        return not self.close

    async def prepare(self, request: BaseRequest) -> None:
        """Nothing is written before `write_eof` (aiohttp calls both, one after the other)."""
        self._request = request
        if not request.keep_alive:
            self.close = True

    def length(self) -> str:
        """The header line that says where the body ends."""
        return f"Content-Length: {len(self.body)}\r\n"

    def head(self, *, http10: bool = False) -> bytes:
        """Status line and header fields, the empty line included."""
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

    async def write_eof(self) -> None:
        """Hand the answer over, then wait until a slow reader has taken most of it.

        Raises ConnectionResetError when the connection is gone before the first byte.
        """
        request, self._request = self._request, None
        assert request is not None  # noqa: S101  aiohttp calls prepare first
        undelivered, self.undelivered = self.undelivered, None
        body = b"" if request.method == "HEAD" or self.status in _NO_BODY else self.body
        data = self.head(http10=request.version < (1, 1)) + body
        protocol = request.protocol
        transport = protocol.transport
        if transport is None or transport.is_closing():
            if undelivered is not None:
                undelivered()
            raise ConnectionResetError("The client has gone.")
        transport.write(data)
        self.body = b""
        if protocol.writing_paused:
            await drain(request, len(data))


async def drain(request: BaseRequest, size: int) -> None:
    """Wait for a slow reader, bounded; its connection is cut when it takes too long.

    What it holds back counts against the server's bound for unread answers meanwhile.
    """
    protocol = request.protocol
    limits = cast("HasLimits", protocol).limits
    limits.unread.force(size)
    try:
        async with asyncio.timeout(limits.write_timeout_s):
            await request.writer.drain()
    except TimeoutError:
        if protocol.transport is not None:
            protocol.transport.abort()
        raise ConnectionResetError("The client did not read its answer.") from None
    finally:
        limits.unread.give(size)


def failure(error: AckdError, *, close: bool = False, allow: str = "") -> Reply:
    """The problem document of an error, with the headers that belong to its status."""
    headers = []
    wait = problems.retry_after(error)
    if wait is not None:
        headers.append(("Retry-After", wait))
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
