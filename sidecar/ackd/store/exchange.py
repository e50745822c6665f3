"""Commands out and answers in, on a connection that redis-py has opened and introduced itself on.

Each call through redis-py's own send and read costs four coroutines, a stream and a time-out of its
own: more than a small script call itself. Here a call is one write and one future.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import hiredis
from redis import exceptions
from redis.asyncio.connection import AbstractConnection

Command = Sequence[str | bytes | int]
Answer = Any
"""What a server said: bytes, int, list, None, or a ResponseError as a value."""

_MORE = object()


class Exchange(asyncio.Protocol):
    """Takes the transport over. One call at a time; after a failure the connection is of no use."""

    def __init__(self, connection: AbstractConnection) -> None:
        writer = connection._writer  # noqa: SLF001 - redis-py hands its transport to nobody
        if writer is None:
            raise exceptions.ConnectionError("not connected")
        self._reader = hiredis.Reader(
            protocolError=exceptions.InvalidResponse,
            replyError=connection._parser.parse_error,  # noqa: SLF001 - the classes that callers know
            notEnoughData=_MORE,
        )
        self._loop = asyncio.get_running_loop()
        self._answers: list[Answer] = []
        self._wanted = 0
        self._future: asyncio.Future[list[Answer]] | None = None
        self._lost = False
        self._transport = cast("asyncio.Transport", writer.transport)
        self._before = self._transport.get_protocol()
        self._transport.set_protocol(self)

    @property
    def open(self) -> bool:
        """Whether nothing has ended the connection yet, as far as is known."""
        return not self._lost and not self._transport.is_closing()

    async def ask(self, commands: Sequence[Command], timeout_s: float) -> list[Answer]:
        """Send all at once and wait for all answers.

        Raises TimeoutError, OSError and redis' ConnectionError and InvalidResponse; whether the
        commands were executed is not known then.
        """
        if not self.open or self._future is not None:
            raise exceptions.ConnectionError("the connection is closed or in use")
        future: asyncio.Future[list[Answer]] = self._loop.create_future()
        self._future = future
        self._answers, self._wanted = [], len(commands)
        timer = self._loop.call_later(timeout_s, self._end, TimeoutError())
        try:
            self._transport.write(pack(commands))
            return await future
        finally:
            timer.cancel()
            self._future = None

    def data_received(self, data: bytes) -> None:
        """Take what came apart; the last answer that was waited for ends the call."""
        reader, answers = self._reader, self._answers
        try:
            reader.feed(data)
            while (answer := reader.gets(False)) is not _MORE:
                if isinstance(answer, exceptions.ConnectionError):
                    self._end(answer)
                    return
                answers.append(answer)
        except exceptions.RedisError as error:
            self._end(error)
            return
        if len(answers) >= self._wanted:
            self._landed(answers)

    def _landed(self, answers: list[Answer]) -> None:
        future = self._future
        if future is None or len(answers) > self._wanted:
            self._end(exceptions.InvalidResponse("an answer that nobody asked for"))
        elif not future.done():
            future.set_result(answers)

    def _end(self, error: BaseException) -> None:
        """Nothing that comes from here on can be told from what was asked."""
        self._lost = True
        if self._future is not None and not self._future.done():
            self._future.set_exception(error)

    def eof_received(self) -> bool:
        """The server has nothing more to say."""
        self._end(exceptions.ConnectionError("Connection closed by server."))
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell redis-py's stream too: it reports to the event loop when nobody did."""
        closed = exceptions.ConnectionError("Connection closed by server.")
        self._end(exc if isinstance(exc, OSError) else closed)
        self._before.connection_lost(exc)

    def pause_writing(self) -> None:
        """Nothing to hold back: the next call waits for this one's answer anyway."""

    def resume_writing(self) -> None:
        """See `pause_writing`."""


def pack(commands: Sequence[Command]) -> bytes:
    """Commands as the server reads them (RESP arrays of bulk strings)."""
    parts: list[bytes] = []
    for command in commands:
        parts.append(b"*%d\r\n" % len(command))
        for word in command:
            data = word if isinstance(word, bytes) else str(word).encode()
            parts += (b"$%d\r\n" % len(data), data, b"\r\n")
    return b"".join(parts)
