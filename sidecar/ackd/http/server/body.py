"""Bodies that came after their head: by length, or in chunks (RFC 9112 section 7.1)."""

from __future__ import annotations

import asyncio
import re
from typing import Protocol

from ackd.config.units import KIB
from ackd.errors import BadBodyError

UNREAD_BYTES_MAX = 128 * KIB
"""If the handler has left more bytes than this, the connection pauses its socket."""
LINE_BYTES_MAX = 1 * KIB
"""Bound of a chunk's size line with its extensions, or of one trailer field."""
TRAILERS_BYTES_MAX = 8 * KIB
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,12})[\t ]*(?:;[\t\x20-\x7e\x80-\xff]*)?")
_TRAILER = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t\x20-\x7e\x80-\xff]*")


class Reading(Protocol):
    """A connection whose reading can be paused."""

    def pause(self) -> None: ...
    def resume(self) -> None: ...


class Body:
    """A body of `left` more bytes, which comes piece by piece."""

    __slots__ = ("_connection", "_error", "_pieces", "_unread", "_waiter", "done", "left")

    def __init__(self, connection: Reading, left: int = 0) -> None:
        self._connection = connection
        self._pieces: list[bytes] = []
        self._unread = 0
        self._waiter: asyncio.Future[None] | None = None
        self._error: BadBodyError | None = None
        self.left = left
        # Nothing more comes: the body is complete, or broken.
        self.done = False

    @property
    def broken(self) -> bool:
        """Whether the connection can no longer find the end of the body."""
        return self._error is not None

    def feed(self, data: bytes) -> bytes:
        """Take the bytes that belong to the body; returns those after its end."""
        rest = self._cut(data)
        if self._unread > UNREAD_BYTES_MAX and not self.done:
            self._connection.pause()
        self._wake()
        return rest

    def _cut(self, data: bytes) -> bytes:
        left = self.left
        if len(data) < left:
            self._keep(data)
            self.left = left - len(data)
            return b""
        self._keep(data[:left])
        self.left = 0
        self.done = True
        return data[left:]

    def _keep(self, piece: bytes) -> None:
        if piece:
            self._pieces.append(piece)
            self._unread += len(piece)

    def fail(self) -> None:
        """The body broke off, or is malformed: give its reader the error."""
        if not self.done:
            self._error = BadBodyError("The body broke off, or its framing is wrong.")
            self.done = True
            self._wake()

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def some(self) -> bytes:
        """Return the bytes that came since the last call, after a wait if there are none; empty at
        the end. Raises BadBodyError.
        """
        while not self._pieces and not self.done:
            self._connection.resume()
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        if self._error is not None:
            raise self._error
        data = b"".join(self._pieces)
        self._pieces.clear()
        self._unread = 0
        return data


class Chunked(Body):
    """A body of unknown length, in chunks. `left`: bytes of the current chunk."""

    __slots__ = ("_ended", "_held", "_last", "_trailers")

    def __init__(self, connection: Reading) -> None:
        super().__init__(connection)
        self._held = b""
        # A chunk's last byte was there, but not the end of its line.
        self._ended = False
        # The last chunk was there: trailers follow.
        self._last = False
        self._trailers = 0

    def _cut(self, data: bytes) -> bytes:
        data, self._held = self._held + data, b""
        at = 0
        pieces: list[bytes] = []
        while at < len(data) and not self.done:
            if self.left:
                pieces.append(data[at : at + self.left])
                at += len(pieces[-1])
                self.left -= len(pieces[-1])
                self._ended = not self.left
                continue
            end = data.find(b"\r\n", at, at + LINE_BYTES_MAX)
            if end < 0:
                self._unfinished(data[at:])
                break
            self._line(data[at:end])
            at = end + 2
        self._keep(b"".join(pieces))
        return data[at:] if self.done and not self.broken else b""

    def _unfinished(self, line: bytes) -> None:
        """Keep the begin of a line; refuse at once what can't become one."""
        if len(line) >= LINE_BYTES_MAX or b"\n" in line or (self._ended and line != b"\r"):
            self.fail()
        else:
            self._held = line

    def _line(self, line: bytes) -> None:
        if self._ended:
            self._ended = False
            if line:
                self.fail()
        elif self._last:
            self._trailers += len(line)
            if not line:
                self.done = True
            elif self._trailers > TRAILERS_BYTES_MAX or not _TRAILER.fullmatch(line):
                self.fail()
        elif (found := _SIZE.fullmatch(line)) is None:
            self.fail()
        else:
            self.left = int(found[1], 16)
            self._last = not self.left
