"""RocketMQ's older protocol, which name servers, brokers and (in part) proxies speak: frames over
TCP, each with a header in JSON.

The gRPC proxies know no positions and make no topics; this protocol does. Nothing here repeats a
call. A frame: its length (4 bytes), 1 byte 0 (JSON), the header's length (3 bytes), header, body.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import json
import ssl
import struct
from collections.abc import Mapping
from typing import Final, NamedTuple

from ackd.errors import BrokerError
from ackd_adapters.rocketmq.config import RocketMQOptions, Secrets, read_secrets
from ackd_adapters.rocketmq.rpc import NO_ANSWER, UNREACHABLE

SUCCESS: Final = 0
TOPIC_NOT_EXIST: Final = 17
NAMES: Final[Mapping[int, str]] = {
    1: "SYSTEM_ERROR",
    2: "SYSTEM_BUSY",
    3: "REQUEST_CODE_NOT_SUPPORTED",
    15: "VERSION_NOT_SUPPORTED",
    16: "NO_PERMISSION",
    TOPIC_NOT_EXIST: "TOPIC_NOT_FOUND",
    26: "GROUP_NOT_FOUND",
    29: "INVALID_PARAMETER",
}
"""The broker's own names of the answers that people meet."""

VERSION: Final = 513
"""Of RocketMQ 5.5.0; a proxy refuses clients that are far older than it."""
LINKS_MAX: Final = 64
_HEADER_MAX: Final = (1 << 24) - 1
_EXTRA_BYTES: Final = 4 * 1024 * 1024
"""A broker's answer carries at most 256 KB of messages, or one message; routes may be large."""
_ANSWER: Final = 1
_ERROR_CHARS_MAX: Final = 300


class RemotingAnswer(NamedTuple):
    """`remark`: the broker's sentence when it refuses."""

    code: int
    remark: str
    fields: Mapping[str, str]
    body: bytes


def encode(code: int, number: int, fields: Mapping[str, str], body: bytes = b"") -> bytes:
    """A request as it is sent."""
    header = json.dumps(
        {
            "code": code,
            "language": "PYTHON",
            "version": VERSION,
            "opaque": number,
            "flag": 0,
            "extFields": dict(fields),
            "serializeTypeCurrentRPC": "JSON",
        },
        separators=(",", ":"),
    ).encode()
    return struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body


def decode(frame: bytes) -> tuple[int, RemotingAnswer] | None:
    """The number of the request and its answer, from a frame without its length; None when the
    broker asks something itself. Raises ValueError when the frame is none.
    """
    if len(frame) < 4:  # noqa: PLR2004 -- the word with the header's length
        raise ValueError("a frame without a header")
    (word,) = struct.unpack_from(">I", frame)
    length = word & _HEADER_MAX
    if word >> 24 or 4 + length > len(frame):
        raise ValueError("a header that is no JSON, or longer than its frame")
    header = json.loads(frame[4 : 4 + length])
    if not isinstance(header, dict) or not isinstance(header.get("opaque"), int):
        raise ValueError("a header without a number")  # noqa: TRY004 -- of a frame, not a type
    if not int(header.get("flag") or 0) & _ANSWER:
        return None
    found = header.get("extFields") or {}
    fields = {str(name): str(value) for name, value in dict(found).items()}
    answer = RemotingAnswer(
        int(header.get("code") or 0), str(header.get("remark") or ""), fields, frame[4 + length :]
    )
    return header["opaque"], answer


def signature(secret_key: str, fields: Mapping[str, str], body: bytes) -> str:
    """What stands in `Signature`: an HMAC of all fields in the order of their names, and the
    body.
    """
    content = "".join(fields[name] for name in sorted(fields)).encode() + body
    return base64.b64encode(hmac.new(secret_key.encode(), content, hashlib.sha1).digest()).decode()


class Remoting:
    """Connections to any number of addresses, made when they are needed. Every call raises
    BrokerError, with the broker's own name of it as `code`.
    """

    def __init__(self, options: RocketMQOptions) -> None:
        self._options = options
        self._secrets = Secrets()
        self._context: ssl.SSLContext | None = None
        self._links: dict[str, _Connection] = {}
        self._opening = asyncio.Lock()
        self._number = 0

    async def start(self) -> None:
        """Read the secrets; nothing is sent yet. Raises ConfigError."""
        self._secrets = await asyncio.to_thread(read_secrets, self._options)
        if self._options.tls:
            self._context = await asyncio.to_thread(_trust, self._secrets.authorities)

    async def close(self) -> None:
        """End all connections. Never raises."""
        links, self._links = self._links, {}
        for each in links.values():
            await each.close()

    async def call(
        self,
        address: str,
        code: int,
        fields: Mapping[str, str],
        body: bytes = b"",
        *,
        wait_ms: int = 0,
    ) -> RemotingAnswer:
        """One question, one answer, whatever it says. `wait_ms`: how long the broker may wait
        with it.
        """
        limit_s = (wait_ms + self._options.request_timeout_ms) / 1000
        self._number = (self._number + 1) & 0x7FFFFFFF
        number = self._number
        request = encode(code, number, self._signed(fields, body), body)
        sent = False
        try:
            async with asyncio.timeout(limit_s):
                link = await self._link(address)
                sent = True
                return await link.ask(number, request)
        except TimeoutError:
            name = NO_ANSWER if sent else UNREACHABLE
            raise BrokerError(f"{address} did not answer in time", code=name) from None
        except (OSError, ValueError) as error:
            raise BrokerError(f"{address}: {error}", code=UNREACHABLE) from None

    def _signed(self, fields: Mapping[str, str], body: bytes) -> dict[str, str]:
        if self._options.access_key is None:
            return dict(fields)
        made = {**fields, "AccessKey": self._options.access_key}
        return {**made, "Signature": signature(self._secrets.key, made, body)}

    async def _link(self, address: str) -> _Connection:
        async with self._opening:
            link = self._links.get(address)
            if link is not None and link.open:
                return link
            if link is not None:
                await self._links.pop(address).close()
            if len(self._links) >= LINKS_MAX:
                await self._links.pop(next(iter(self._links))).close()
            host, _, port = address.rpartition(":")
            reader, writer = await asyncio.open_connection(
                host.strip("[]"), int(port), ssl=self._context
            )
            most = self._options.message_bytes_max + _EXTRA_BYTES
            link = self._links[address] = _Connection(reader, writer, most)
            return link


class _Connection:
    """One connection. Answers come in any order; when it ends, all who wait get an OSError."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, bytes_max: int
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._bytes_max = bytes_max
        self._pending: dict[int, asyncio.Future[RemotingAnswer]] = {}
        self._task = asyncio.get_running_loop().create_task(self._read(), name="rocketmq.remoting")

    @property
    def open(self) -> bool:
        """Whether it still reads."""
        return not self._task.done()

    async def ask(self, number: int, request: bytes) -> RemotingAnswer:
        """Send, and wait for the answer of this number."""
        if not self.open:
            raise ConnectionResetError("the connection has ended")
        future: asyncio.Future[RemotingAnswer] = asyncio.get_running_loop().create_future()
        self._pending[number] = future
        try:
            self._writer.write(request)
            await self._writer.drain()
            return await future
        finally:
            self._pending.pop(number, None)

    async def close(self) -> None:
        """End it."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _read(self) -> None:
        reason: Exception = ConnectionResetError("the connection has ended")
        try:
            while True:
                (length,) = struct.unpack(">I", await self._reader.readexactly(4))
                if length > self._bytes_max:
                    raise ValueError(f"an answer of {length} bytes")  # noqa: TRY301 -- ends the link
                found = decode(await self._reader.readexactly(length))
                if found is not None:
                    number, answer = found
                    future = self._pending.pop(number, None)
                    if future is not None and not future.done():
                        future.set_result(answer)
        except asyncio.IncompleteReadError:
            pass
        except (OSError, ValueError) as error:
            reason = error
        finally:
            self._writer.close()
            for future in self._pending.values():
                if not future.done():
                    future.set_exception(reason)
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await self._writer.wait_closed()


def _trust(authorities: bytes | None) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=None if authorities is None else authorities.decode())


def ensure(what: str, answer: RemotingAnswer) -> RemotingAnswer:
    """The answer, when it says yes. Raises BrokerError."""
    if answer.code != SUCCESS:
        code = NAMES.get(answer.code, str(answer.code))
        raise BrokerError(f"{what}: {answer.remark[:_ERROR_CHARS_MAX] or code}", code=code)
    return answer
