"""One connection to a server: commands out, answers in, on asyncio and hiredis.

A call is one write and one future. A client library's own send and read cost several coroutines and
timeouts for each command, which is more than a small script call itself (ADR 14).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

from hiredis import PushNotification, Reader, pack_command

Command = tuple[str | bytes | int, ...]
Answer = Any
"""What a server answered: bytes, int, list, None, or a `ServerError` as a value."""

_packed = cast("Callable[[Command], bytes]", pack_command)  # its stub takes one word only
_MORE = object()
_CLOSED = "Connection closed by server."
_CLIENTS_MAX = "ERR max number of clients reached"
_ENDING = frozenset({"LOADING", "NOAUTH", "WRONGPASS"})


class LostError(ConnectionError):
    """The connection is of no more use. Whether the server executed the commands is unknown."""


class ServerError(Exception):
    """The server refused a command. The text is the server's line; `code` is its first word."""

    def __init__(self, line: str) -> None:
        super().__init__(line.removeprefix("ERR "))
        self.code = line.partition(" ")[0]
        self.ends = self.code in _ENDING or line == _CLIENTS_MAX
        """The server answers each further command in the same way: connect again."""

    @property
    def reason(self) -> str:
        """The text without the code."""
        return str(self).removeprefix(f"{self.code} ")


class Exchange(asyncio.Protocol):
    """A connection that carries one call at a time. After a failure every further call fails."""

    def __init__(self) -> None:
        self._reader = Reader(
            protocolError=LostError, replyError=ServerError, errors="replace", notEnoughData=_MORE
        )
        self._loop = asyncio.get_running_loop()
        self._answers: list[Answer] = []
        self._wanted = 0
        self._future: asyncio.Future[list[Answer]] | None = None
        self._failure: Exception | None = None
        self._transport: asyncio.Transport | None = None
        self._gone = asyncio.Event()

    @property
    def open(self) -> bool:
        """Whether the connection works, as far as this side knows."""
        transport = self._transport
        return self._failure is None and transport is not None and not transport.is_closing()

    async def ask(self, commands: Sequence[Command], timeout_s: float) -> list[Answer]:
        """Send all commands at once and wait for all answers.

        Raises OSError (`LostError` and TimeoutError are such) and `ServerError` if the server will
        refuse everything. Whether the server executed the commands is unknown then.
        """
        transport = self._transport
        if transport is None or not self.open or self._future is not None:
            raise self._failure or LostError("the connection is closed or in use")
        future: asyncio.Future[list[Answer]] = self._loop.create_future()
        self._future = future
        self._answers, self._wanted = [], len(commands)
        timer = self._loop.call_later(timeout_s, self._end, TimeoutError())
        try:
            transport.write(pack(commands))
            return await future
        except asyncio.CancelledError:
            self._end(LostError("nobody waits for the answers"))
            raise
        finally:
            timer.cancel()
            self._future = None

    async def drop(self) -> None:
        """Close at once and discard what is unsent: a frozen server would never take it."""
        if self._transport is not None:
            self._transport.abort()
            await self._gone.wait()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Parse what has arrived; the last expected answer completes the call."""
        if self._failure is not None:
            return
        reader, answers = self._reader, self._answers
        try:
            reader.feed(data)
            while (answer := reader.gets(False)) is not _MORE:
                kind = type(answer)
                if kind is ServerError and answer.ends:
                    self._end(answer)
                    return
                if kind is not PushNotification:  # a push answers no command
                    answers.append(answer)
        except LostError as error:
            self._end(error)
            return
        if len(answers) > self._wanted:
            self._end(LostError("an answer that nobody asked for"))
        elif self._wanted and len(answers) == self._wanted:
            self._complete(answers)

    def _complete(self, answers: list[Answer]) -> None:
        self._answers, self._wanted = [], 0
        if self._future is not None and not self._future.done():
            self._future.set_result(answers)

    def _end(self, error: Exception) -> None:
        """End the connection: nobody can tell any more which answer belongs to which command."""
        if self._failure is None:
            self._failure = error
        if self._future is not None and not self._future.done():
            self._future.set_exception(error)

    def eof_received(self) -> bool:
        self._end(LostError(_CLOSED))
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc if isinstance(exc, OSError) else LostError(_CLOSED))
        self._gone.set()

    def pause_writing(self) -> None:
        """Do nothing: the next call waits for this call's answers anyway."""

    def resume_writing(self) -> None: ...


def pack(commands: Sequence[Command]) -> bytes:
    """Encode commands as the server reads them (RESP arrays of bulk strings)."""
    return b"".join([_packed(command) for command in commands])
