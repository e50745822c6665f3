"""One connection in Pulsar's own protocol, for what the client library does not tell.

Frames and commands are those of PulsarApi.proto: the size of the frame, the size of the command,
the command; a message has its metadata and payload behind it. Only what reading needs is here:
hand-shake, look-up, a reader's subscription, permits. Blocking, for one thread.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from ackd.errors import BrokerError
from ackd_adapters.pulsar.heads import HeadReader, Heads
from ackd_adapters.pulsar.protobuf import Fields, decode, encode, number, octets

CLIENT: Final = b"ackd"
PROTOCOL: Final = 13
FRAME_BYTES_MAX: Final = 260 * 1024 * 1024
"""Above the largest `maxMessageSize` that a broker can be given, with its framing."""
RECEIVE_BYTES: Final = 256 * 1024
SLICE_S: Final = 0.2
"""How often a wait looks whether it is still wanted."""
REDIRECTS_MAX: Final = 10
READER: Final = 1
"""The number of the one reader of a connection."""

CONNECT: Final = 2
CONNECTED: Final = 3
SUBSCRIBE: Final = 4
FLOW: Final = 11
SUCCESS: Final = 13
ERROR: Final = 14
CLOSE_CONSUMER: Final = 16
PING: Final = 18
PONG: Final = 19
LOOKUP: Final = 23
LOOKUP_ANSWER: Final = 24
AUTH_CHALLENGE: Final = 36
_REDIRECT: Final = 0
_FAILED: Final = 2


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """How to reach a cluster. `credentials` gives method and secret for each hand-shake."""

    service_url: str
    tls: ssl.SSLContext | None
    credentials: Callable[[], tuple[str, str]]
    timeout_s: float


class Wire:
    """A connection that has shaken hands. Raises BrokerError, also when the broker closes it."""

    def __init__(self, address: str, access: ClusterAccess, *, proxied_to: str = "") -> None:
        self._buffer = bytearray()
        self._at = 0
        self._heads = HeadReader()
        try:
            self._socket = _connected(address, access)
        except (OSError, ValueError) as error:
            raise BrokerError(f"{address}: {error}") from None
        method, secret = access.credentials()
        fields: Fields = {1: CLIENT, 3: secret.encode(), 4: PROTOCOL, 5: method.encode()}
        if proxied_to:
            fields[6] = proxied_to.encode()
        try:
            self.tell(CONNECT, fields)
            self._wait(CONNECTED, access.timeout_s)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """At once."""
        self._socket.close()

    def tell(self, kind: int, fields: Fields) -> None:
        """Send a command."""
        command = encode({1: kind, kind: encode(fields)})
        sizes = (len(command) + 4).to_bytes(4, "big") + len(command).to_bytes(4, "big")
        try:
            self._socket.sendall(sizes + command)
        except OSError as error:
            raise BrokerError(f"the connection broke: {error}") from None

    def ask(self, kind: int, fields: Fields, answer: int, timeout_s: float) -> Fields:
        """Send a command and wait for its answer."""
        self.tell(kind, fields)
        return self._wait(answer, timeout_s)

    def next_heads(self, until: float, going: Callable[[], bool]) -> Heads | None:
        """The heads of the next entries, of all that have arrived; None when the time (monotonic)
        is over, or nobody wants them any more.
        """
        while True:
            size = self._arrived(until, going)
            if size is None:
                return None
            try:
                self._at, heads = self._heads.read(self._buffer, self._at)
            except (ValueError, IndexError) as error:
                raise BrokerError(f"the head of an entry can't be read: {error}") from None
            if heads is not None:
                return heads
            self._other(*self._command(size))

    def _wait(self, kind: int, timeout_s: float) -> Fields:
        until = time.monotonic() + timeout_s
        while True:
            size = self._arrived(until, lambda: True)
            if size is None:
                raise BrokerError("the broker does not answer")
            found, fields = self._command(size)
            if found == kind:
                return fields
            self._other(found, fields)

    def _other(self, kind: int, command: Fields) -> None:
        if kind == PING:
            self.tell(PONG, {})
        elif kind == ERROR:
            raise BrokerError(octets(command, 3).decode(errors="replace"))
        elif kind in (CLOSE_CONSUMER, AUTH_CHALLENGE):
            # The topic moves, or the token is to be renewed: a new connection does both.
            raise BrokerError("the broker closed the reader")

    def _arrived(self, until: float, going: Callable[[], bool]) -> int | None:
        """Wait until a frame is there as a whole, and return its size."""
        while True:
            there = len(self._buffer) - self._at
            size = self._int(0) if there >= 4 else -1  # noqa: PLR2004 -- a size
            if size > FRAME_BYTES_MAX:
                raise BrokerError(f"the broker sent a frame of {size} bytes")
            if 0 <= size <= there - 4:
                return size
            if not self._receive(until, going):
                return None

    def _command(self, size: int) -> tuple[int, Fields]:
        """Take the frame that is there. What it has behind its command is dropped."""
        begin = self._at + 8
        end = min(begin + self._int(4), self._at + 4 + size)
        command = bytes(self._buffer[begin:end])
        self._at += 4 + size
        try:
            found = decode(command)
            kind = number(found, 1)
            return kind, decode(octets(found, kind))
        except (ValueError, IndexError) as error:
            raise BrokerError(f"the broker's answer can't be read: {error}") from None

    def _receive(self, until: float, going: Callable[[], bool]) -> bool:
        del self._buffer[: self._at]
        self._at = 0
        while going() and (left_s := until - time.monotonic()) > 0:
            self._socket.settimeout(min(left_s, SLICE_S))
            try:
                data = self._socket.recv(RECEIVE_BYTES)
            except TimeoutError:
                continue
            except OSError as error:
                raise BrokerError(f"the connection broke: {error}") from None
            if not data:
                raise BrokerError("the broker closed the connection")
            self._buffer += data
            return True
        return False

    def _int(self, past: int) -> int:
        at = self._at + past
        return int.from_bytes(self._buffer[at : at + 4], "big")


def reader_on(topic: str, access: ClusterAccess, *, after: tuple[int, int], name: str) -> Wire:
    """A connection to the broker that serves a topic, with a reader that begins after an entry.
    It has no permits yet.
    """
    wire = _serving(topic, access)
    start = encode({1: after[0], 2: after[1]})
    wanted: Fields = {1: topic.encode(), 2: name.encode(), 3: 0, 4: READER, 5: 2, 8: 0, 9: start}
    try:
        wire.ask(SUBSCRIBE, wanted, SUCCESS, access.timeout_s)
    except BaseException:
        wire.close()
        raise
    return wire


def _serving(topic: str, access: ClusterAccess) -> Wire:
    """A connection to the broker that serves a topic."""
    address, authoritative, error = "", 0, "no address"
    first = _addresses(access.service_url)
    for _ in range(REDIRECTS_MAX):
        wire = None
        for each in [address] if address else first:
            try:
                wire = Wire(each, access)
                break
            except BrokerError as failed:
                error = failed.detail
        if wire is None:
            raise BrokerError(error)
        asked: Fields = {1: topic.encode(), 2: 1, 3: authoritative}
        try:
            found = wire.ask(LOOKUP, asked, LOOKUP_ANSWER, access.timeout_s)
        finally:
            wire.close()
        answer = number(found, 3, _FAILED)
        if answer == _FAILED:
            raise BrokerError(octets(found, 7).decode(errors="replace") or "no look-up")
        address = octets(found, 1 if access.tls is None else 2).decode(errors="replace")
        authoritative = number(found, 5)
        if answer == _REDIRECT:
            continue
        if number(found, 8):
            return Wire(first[0], access, proxied_to=urlsplit(address).netloc)
        return Wire(address, access)
    raise BrokerError(f"the look-up of {topic} leads nowhere")


def _addresses(service_url: str) -> list[str]:
    """Each server of `pulsar://a:6650,b:6650`."""
    scheme, _, rest = service_url.partition("://")
    return [f"{scheme}://{each}" for each in rest.rstrip("/").split(",") if each]


def _connected(address: str, access: ClusterAccess) -> socket.socket:
    parts = urlsplit(address)
    host = parts.hostname or ""
    port = parts.port or (6650 if access.tls is None else 6651)
    plain = socket.create_connection((host, port), access.timeout_s)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if access.tls is None:
        return plain
    try:
        return access.tls.wrap_socket(plain, server_hostname=host)
    except BaseException:
        plain.close()
        raise
