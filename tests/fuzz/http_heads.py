"""Connections: whatever comes, and in whatever pieces, the same requests are found in it."""

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ackd.errors import BadBodyError, ClientError
from ackd.http.server.limits import Limits
from ackd.http.server.reply import Reply, failure
from ackd.http.server.request import Request
from ackd.http.server.server import Server

_LOOP = asyncio.new_event_loop()
_TURNS_MAX = 10_000
_PIECES_MAX = 64


class _Wire(asyncio.Transport):
    """A socket whose other end reads everything at once."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.closed = False

    def write(self, data: Any) -> None:
        self.written += data

    def writelines(self, list_of_data: Any) -> None:
        for each in list_of_data:
            self.write(each)

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def write_eof(self) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass


@dataclass
class _Found:
    """The requests of a connection, each with its body, None for one that was broken."""

    requests: list[tuple[str, str, tuple[tuple[bytes, bytes], ...], bytes | None]] = field(
        default_factory=list
    )
    answers: list[bytes] = field(default_factory=list)


async def _served(pieces: list[bytes]) -> _Found:
    found = _Found()

    async def handler(request: Request) -> Reply:
        body: bytes | None = request.whole
        if request.body is not None:
            try:
                body = b""
                while part := await request.body.some():
                    body += part
            except BadBodyError as error:
                found.requests.append((request.method, request.path, (*request.fields(),), None))
                return failure(error)
        found.requests.append((request.method, request.path, (*request.fields(),), body))
        return Reply(b"{}")

    wire, connection = _Wire(), Server(handler, Limits(9, 4096, 1024, 9.0, 9.0, 9.0, 9.0))()
    connection.connection_made(wire)
    for piece in pieces:
        await asyncio.sleep(0)
        if not wire.closed:
            connection.data_received(piece)
    task = connection.task
    assert task is not None
    for _ in range(_TURNS_MAX):
        if task.done() or (connection._waiter is not None and not connection._waiter.done()):
            break
        if connection._body is not None:  # the rest of a body that does not come
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            break
        await asyncio.sleep(0)
    connection.connection_lost(None)
    await task  # an error of ours is raised here
    found.answers = [bytes(line) for line in wire.written.split(b"\r\n") if line[:5] == b"HTTP/"]
    return found


def run(data: bytes) -> None:
    """Two bytes say how the rest is cut."""
    step, rest = 1 + int.from_bytes(data[:2], "big") % 97, data[2:]
    whole = _LOOP.run_until_complete(_served([rest] if rest else []))
    step = max(step, len(rest) // _PIECES_MAX + 1)
    pieces = [rest[at : at + step] for at in range(0, len(rest), step)]
    cut = _LOOP.run_until_complete(_served(pieces))
    assert cut.requests == whole.requests, (cut.requests, whole.requests)
    for method, path, fields, body in whole.requests:
        assert method.isascii()
        assert path.isascii()
        assert "\r" not in path
        for name, value in fields:
            assert name.isascii()
            assert not set(name + value) & set(b"\r\n\0"), (name, value)
        assert body is None or len(body) <= len(rest)
    _parsed_alone(rest)


def _parsed_alone(raw: bytes) -> None:
    """A head by itself: a request, or an error that is the client's."""
    head, end, _ = raw.partition(b"\r\n\r\n")
    if end:
        connection = Server(_nobody, Limits(9, 4096, 1024, 9.0, 9.0, 9.0, 9.0))
        with contextlib.suppress(ClientError):
            request = Request(head + end, _LOOP.run_until_complete(_made(connection)))
            assert request.length is None or not request.chunked


async def _made(server: Server) -> Any:
    return server()


async def _nobody(_: Request) -> Reply:
    raise AssertionError


def seeds() -> Iterator[bytes]:
    """Several requests on one connection, in each way that a body can end."""
    post = b"POST /v1/settle HTTP/1.1\r\nHost: a\r\n"
    yield b"\0\0" + post + b"Content-Length: 3\r\n\r\nabcGET / HTTP/1.1\r\nHost: a\r\n\r\n"
    chunked = post + b"Transfer-Encoding: chunked\r\n\r\n"
    yield b"\0\5" + chunked + b"3;x=y\r\nabc\r\n0\r\nT: u\r\n\r\n" + post + b"\r\n"
    yield b"\0\1GET http://a/b?c=d HTTP/1.0\r\nConnection: keep-alive\r\nX: \xc3\xa4\r\n\r\n"
    yield b"\0\2\r\n\r\nGET /%00 HTTP/1.1\r\nhost:a\r\nConnection: te, close\r\nA: b\r\nA:\r\n\r\n"
    yield b"\0\7" + post + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    yield b"\0\7" + post + b"Expect: 100-continue\r\nContent-Length: 9\r\n\r\nab"
