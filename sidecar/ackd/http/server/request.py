"""One request as the handlers see it, read from the bytes of its head.

The reader takes what RFC 9112 says and nothing that two readers could understand in two ways: lines
end with CR LF, no field goes on in the next line, nothing stands between a name and its colon, and
a body has one length or is chunked. Why it is our own: ADR 12.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol, TypeVar, overload

from ackd.errors import ClientError, HeadTooLargeError, HttpVersionError
from ackd.http.server.body import Body
from ackd.http.server.kept import Kept
from ackd.http.server.limits import Limits

T = TypeVar("T")
FIELDS_MAX = 128
_END = 2
"""The two lines without text at the end of a head."""
_LINE_PARTS = 3
_LENGTH_DIGITS_MAX = 15
_TEXT = bytes((0x09, *range(0x20, 0x7F), *range(0x80, 0x100)))
"""The characters that a line may have; the rest of a head are the ends of its lines."""
METHOD_CHARS_MAX = 40
"""A longer method is refused as soon as so much of it is there."""
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+").fullmatch
_METHODS = frozenset({"GET", "POST"})
_TOO_NEW = frozenset({"HTTP/2", "HTTP/2.0", "HTTP/3", "HTTP/3.0"})
_NAMES: dict[str, str] = {}
"""Field names that were seen, in lower case: most are the same ones again and again."""
_NAMES_MAX = 512


class Headers(Mapping[str, str]):
    """Fields by name, whatever its case; of a repeated one the first value."""

    __slots__ = ("_first", "_more")

    def __init__(self, first: dict[str, str], more: dict[str, list[str]]) -> None:
        self._first = first
        self._more = more

    def __getitem__(self, name: str) -> str:
        return self._first[name.lower()]

    @overload
    def get(self, name: str, /) -> str | None: ...

    @overload
    def get(self, name: str, /, default: str) -> str: ...

    @overload
    def get(self, name: str, /, default: T) -> str | T: ...

    def get(self, name: str, /, default: object = None) -> object:
        """The value, or the default; `Mapping` would raise and catch an error for that."""
        return self._first.get(name.lower(), default)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self._first

    def __iter__(self) -> Iterator[str]:
        return iter(self._first)

    def __len__(self) -> int:
        return len(self._first)

    def getall(self, name: str) -> list[str]:
        """All values, in order; empty without the field."""
        name = name.lower()
        first = self._first.get(name)
        return [] if first is None else [first, *self._more.get(name, ())]


class Connected(Protocol):
    """The connection of a request, as handlers and replies see it."""

    limits: Limits
    transport: asyncio.Transport | None
    writing_paused: bool
    on_lost: Callable[[], None] | None
    kept: Kept | None

    @property
    def peer(self) -> str: ...
    async def drain(self, size: int) -> None: ...
    async def keep_pace(self, size: int) -> None: ...


class Request:
    """A head that has arrived. `whole` is the body when all of it came with the head, else `body`
    gives it as it comes. Raises ClientError for a head that is none.

    Text that is not UTF-8 keeps its bytes as surrogates.
    """

    __slots__ = (
        *("body", "chunked", "connection", "head_bytes", "headers", "http10", "length"),
        *("method", "path", "should_close", "whole", "_lines"),
    )

    def __init__(self, raw: bytes, connection: Connected) -> None:
        lines = raw.decode("utf-8", "surrogateescape").split("\r\n")
        if raw.translate(None, _TEXT) != b"\r\n" * (len(lines) - 1):
            raise _unreadable("a line has characters that can't be in it")
        if len(lines) > FIELDS_MAX + _END + 1:
            raise HeadTooLargeError(
                f"A request may have {FIELDS_MAX} fields.", fields_max=FIELDS_MAX
            )
        self.connection = connection
        self.head_bytes = len(raw)
        self.whole = b""
        self.body: Body | None = None
        self._lines = lines
        self._start(lines[0])
        first, more = _fields(lines)
        self.headers = Headers(first, more)
        self._framing(first, more)
        named = first.get("connection")
        if named is None:
            self.should_close = self.http10
        else:
            options = ",".join((named, *more.get("connection", ()))).lower().split(",")
            given = {each.strip(" \t") for each in options}
            self.should_close = "close" in given or (self.http10 and "keep-alive" not in given)

    def _start(self, line: str) -> None:
        parts = line.split(" ")
        if len(parts) != _LINE_PARTS:
            raise _unreadable("the first line is not `METHOD target HTTP/1.1`")
        self.method, target, version = parts
        self.http10 = version == "HTTP/1.0"
        if version != "HTTP/1.1" and not self.http10:
            if version in _TOO_NEW:
                raise HttpVersionError
            raise _unreadable("the version is none")
        known = self.method in _METHODS or (
            len(self.method) <= METHOD_CHARS_MAX and _TOKEN(self.method)
        )
        if not (known and target and target.isascii()) or "\t" in target:
            raise _unreadable("the method or the target has characters that can't be in it")
        # Path and query as they were sent; of a target in absolute form without scheme and host.
        if not target.startswith("/") and "://" in target:
            _, slash, rest = target.partition("://")[2].partition("/")
            target = slash + rest
        self.path = target

    def _framing(self, first: dict[str, str], more: dict[str, list[str]]) -> None:
        """Find out how the body ends; refuse a head that says it twice."""
        self.length: int | None = None
        self.chunked = False
        if "host" in more or ("host" not in first and not self.http10):
            raise _unreadable("it has not exactly one Host")
        coding, length = first.get("transfer-encoding"), first.get("content-length")
        if length is not None:
            if coding is not None or "content-length" in more:
                raise _unreadable("its body has two lengths")
            if not (length.isascii() and length.isdigit() and len(length) <= _LENGTH_DIGITS_MAX):
                raise _unreadable("Content-Length is no number")
            self.length = int(length)
        elif coding is not None:
            if coding.lower() != "chunked" or "transfer-encoding" in more or self.http10:
                raise _unreadable("its Transfer-Encoding is not `chunked`")
            self.chunked = True

    def fields(self) -> Iterator[tuple[bytes, bytes]]:
        """Every field as it was sent, in order."""
        for line in self._lines[1:-_END]:
            name, _, value = line.partition(":")
            yield name.encode(), value.strip(" \t").encode("utf-8", "surrogateescape")


def _fields(lines: list[str]) -> tuple[dict[str, str], dict[str, list[str]]]:
    first: dict[str, str] = {}
    more: dict[str, list[str]] = {}
    known = _NAMES.get
    for at in range(1, len(lines) - _END):
        name, colon, value = lines[at].partition(":")
        lower = known(name) or _lower(name)
        if not colon:
            raise _unreadable("a field has no colon")
        if lower in first:
            more.setdefault(lower, []).append(value.strip(" \t"))
        else:
            first[lower] = value.strip(" \t")
    return first, more


def _lower(name: str) -> str:
    if not _TOKEN(name):
        raise _unreadable("a field's name has characters that can't be in it")
    lower = name.lower()
    if len(_NAMES) < _NAMES_MAX:
        _NAMES[name] = lower
    return lower


def _unreadable(why: str) -> ClientError:
    return ClientError(f"Not a valid HTTP request: {why}.")
