"""Two sidecars prove to each other that they share a store before they send anything else.

    connecting               listening
        hello  ------------->
               <-------------  hello
        proof  ------------->
               <-------------  verdict, proof

Each hello holds a random nonce, so a recorded proof fits no later handshake. A proof is an
HMAC-SHA256 over the sender's role, both hellos and both TLS certificates. Therefore nobody can
reflect a proof, use it under another name, or relay it over another certificate. Without TLS
files, only the listening side has a certificate. The connecting side proves first: strangers can
reach the listening side, and must not collect its proofs. Every message has a fixed size.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import secrets
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, cast

from ackd.peer.tls import explained

Reason = Literal["garbage", "version", "key", "name", "crowded", "timeout", "tls", "lost"]

MAGIC = b"ackdpeer"
VERSION = 1
NONCE_BYTES = 32
NAME_BYTES = 100
INSTANCE_BYTES = 32
HELLO_BYTES = len(MAGIC) + 1 + NONCE_BYTES + INSTANCE_BYTES + NAME_BYTES
PROOF_BYTES = 32
KEY_BYTES_MIN = 16
CONNECTING, LISTENING = b"connecting", b"listening"
_PURPOSE = b"ackd peer v1"
_WORD = re.compile(rb"([A-Za-z0-9][A-Za-z0-9._-]*)\0*")
_GOOD = 0
_VERDICTS: dict[int, tuple[Reason, str]] = {
    1: ("key", "it says that this sidecar is of another store: its secret differs{}"),
    2: ("crowded", "it has all the connections that it may have"),
}


class NoLinkError(Exception):
    """The handshake failed, so there is no link. The text tells the operator why."""

    def __init__(self, reason: Reason, text: str) -> None:
        self.reason: Reason = reason
        super().__init__(text)


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message of each side: the sidecar's identity, its process, and a nonce.

    `instance` is a string that the process chose at its start.
    """

    name: str
    instance: str
    nonce: bytes

    @classmethod
    def fresh(cls, name: str, instance: str) -> Hello:
        """Make a hello with a new random nonce."""
        return cls(name, instance, secrets.token_bytes(NONCE_BYTES))

    def packed(self) -> bytes:
        """Encode the hello in `HELLO_BYTES` bytes."""
        instance = self.instance.encode().ljust(INSTANCE_BYTES, b"\0")
        name = self.name.encode().ljust(NAME_BYTES, b"\0")
        return b"".join((MAGIC, bytes((VERSION,)), self.nonce, instance, name))

    @classmethod
    def parse(cls, data: bytes) -> Hello:
        """Decode a hello. Raises NoLinkError."""
        if not data.startswith(MAGIC):
            raise _foreign()
        at = len(MAGIC)
        if data[at] != VERSION:
            problem = f"it speaks version {data[at]} of the protocol, this sidecar {VERSION}"
            raise NoLinkError("version", problem)
        nonce = data[at + 1 : at + 1 + NONCE_BYTES]
        at += 1 + NONCE_BYTES
        instance = _WORD.fullmatch(data[at : at + INSTANCE_BYTES])
        name = _WORD.fullmatch(data[at + INSTANCE_BYTES :])
        if instance is None or name is None:
            raise NoLinkError("garbage", "it has no name as sidecars have")
        return cls(name[1].decode(), instance[1].decode(), nonce)


def proof(key: bytes, role: bytes, hellos: bytes, certificates: bytes) -> bytes:
    """Compute the proof of the side `role`, for which a sidecar needs the store's secret.

    `hellos`: that of the connecting side, then that of the listening side. `certificates`: the
    SHA-256 of their TLS certificates in the same order, of the only one there is, or empty without
    TLS.
    """
    own = hmac.digest(key, _PURPOSE, "sha256")
    return hmac.digest(own, b"\0".join((role, hellos, certificates)), "sha256")


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What one side brings to a handshake, and whom it accepts."""

    hello: Hello
    key: bytes
    """The secret of the store."""
    expected: str = ""
    """The name that the other side must have; empty on the listening side."""
    room: Callable[[Hello], bool] = lambda _: True
    """Whether this sidecar may have one more link. Called after the other side's proof."""
    certificates: Callable[[asyncio.Transport], bytes] = lambda _: b""
    """The certificates of a connection, as `proof` takes them."""
    hint: str = ""
    """The likely reason if the other side closes without a hello, for the operator."""
    done: Callable[[asyncio.Transport, Hello | NoLinkError], None]
    """Called once. When it is given an error, the transport is closed already."""


def _refusal(verdict: int) -> bytes:
    return bytes((verdict,)) + bytes(PROOF_BYTES)


def _foreign() -> NoLinkError:
    return NoLinkError("garbage", "it does not speak as a sidecar does")


class Handshake(asyncio.BufferedProtocol):
    """One side of a handshake. It reads no byte of the frames that follow."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._transport: asyncio.Transport | None = None
        self._certificates = b""
        self._other: Hello | None = None
        self._next: Callable[[bytes], None] | None = self._meet
        self._buffer = bytearray(HELLO_BYTES)
        self._filled = 0
        self._over = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin. With TLS, the other side's hello may be in the buffer already."""
        wire = self._transport = cast("asyncio.Transport", transport)
        if len(self._terms.key) < KEY_BYTES_MIN:
            self.refuse(NoLinkError("key", "this sidecar has no secret of its store yet"))
            return
        self._certificates = self._terms.certificates(wire)
        if self._terms.expected:
            wire.write(self._terms.hello.packed())
        self._advance()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return room for the rest of the expected message; for one byte if none is expected."""
        return memoryview(self._buffer)[self._filled :] or memoryview(bytearray(1))

    def buffer_updated(self, nbytes: int) -> None:
        """Take the next step when the expected message is complete."""
        self._filled += nbytes
        if self._transport is not None and not self._over:
            self._advance()

    def _advance(self) -> None:
        if self._filled < len(self._buffer):
            start = bytes(self._buffer[: min(self._filled, len(MAGIC))])
            if self._other is None and not MAGIC.startswith(start):
                self.refuse(_foreign())
            return
        step, self._next = self._next, None
        try:
            if step is None or self._filled > len(self._buffer):
                raise NoLinkError("garbage", "it says more than belongs there")  # noqa: TRY301
            step(bytes(self._buffer))
        except NoLinkError as error:
            self.refuse(error)

    def eof_received(self) -> None:
        self._lost(NoLinkError("lost", "it closed the connection"))

    def connection_lost(self, exc: BaseException | None) -> None:
        if isinstance(exc, ssl.SSLError):
            self.refuse(NoLinkError("tls", explained(exc)))
        else:
            self._lost(NoLinkError("lost", f"the connection was lost: {exc or 'closed'}"))

    def _lost(self, error: NoLinkError) -> None:
        hint = self._terms.hint if self._other is None else ""
        self.refuse(NoLinkError(error.reason, f"{error}; {hint}") if hint else error)

    def refuse(self, error: NoLinkError, last: bytes = b"") -> None:
        """End the handshake. Send `last` before, so that the other side knows why."""
        wire = self._transport
        if self._over or wire is None:
            return
        self._over = True
        if last:
            wire.write(last)
            wire.close()
        else:
            wire.abort()
        self._terms.done(wire, error)

    def _want(self, size: int, then: Callable[[bytes], None]) -> None:
        self._buffer, self._filled, self._next = bytearray(size), 0, then

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def _meet(self, data: bytes) -> None:
        """Check the other side's hello and answer it."""
        terms = self._terms
        try:
            other = Hello.parse(data)
        except NoLinkError as error:
            speaks = not terms.expected and error.reason == "version"
            self.refuse(error, terms.hello.packed() if speaks else b"")
            return
        if terms.expected and other.instance == terms.hello.instance:
            raise NoLinkError("name", "this sidecar itself is there")
        if terms.expected and other.name != terms.expected:
            problem = f"the sidecar {other.name} answers there, not {terms.expected}"
            raise NoLinkError("name", problem)
        self._other = other
        if terms.expected:
            self._write(self._proof(CONNECTING))
            self._want(1 + PROOF_BYTES, self._accepted)
        else:
            self._write(terms.hello.packed())
            self._want(PROOF_BYTES, self._judge)

    def _judge(self, data: bytes) -> None:
        """Check the proof of the connecting side, and send it the verdict."""
        other = self._other
        if other is None or not hmac.compare_digest(data, self._proof(CONNECTING)):
            problem = f"it is of another store: its secret differs{self._or_between}"
            self.refuse(NoLinkError("key", problem), _refusal(1))
        elif not self._terms.room(other):
            problem = "this sidecar has all the connections that it may have"
            self.refuse(NoLinkError("crowded", problem), _refusal(2))
        else:
            self._write(bytes((_GOOD,)) + self._proof(LISTENING))
            self._finish(other)

    def _accepted(self, data: bytes) -> None:
        """Read the verdict of the listening side and check its proof."""
        other = self._other
        if data[0] != _GOOD:
            unknown: tuple[Reason, str] = ("garbage", "it refuses without a reason")
            reason, text = _VERDICTS.get(data[0], unknown)
            raise NoLinkError(reason, text.format(self._or_between))
        if other is None or not hmac.compare_digest(data[1:], self._proof(LISTENING)):
            problem = f"it is of another store: its secret differs{self._or_between}"
            raise NoLinkError("key", problem)
        self._finish(other)

    @property
    def _or_between(self) -> str:
        return ", or somebody stands between" if self._certificates else ""

    def _finish(self, other: Hello) -> None:
        self._over = True
        if self._transport is not None:
            self._terms.done(self._transport, other)

    def _proof(self, role: bytes) -> bytes:
        """Compute the proof that the side `role` must send in this handshake."""
        mine, theirs = self._terms.hello, self._other
        if theirs is None:
            return b""
        pair = (mine, theirs) if self._terms.expected else (theirs, mine)
        hellos = b"".join(each.packed() for each in pair)
        return proof(self._terms.key, role, hellos, self._certificates)
