"""Lease tokens: `v1.` + base64url(content + MAC). Opaque to clients, settled by any sidecar.

Content: key id, ledger (subscription hash, topic identity, partition), offset, fencing number,
rollback epoch, attempt. The deadline is not in it, so an extend never changes the string. Because
of the MAC (keyed blake2b, 12 bytes, RFC 7693) a truncated or forged token is an error and never
acks the wrong message.
"""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64
from collections.abc import Mapping
from hashlib import blake2b
from hmac import compare_digest
from struct import Struct
from typing import NamedTuple

PREFIX = "v1."
MAC_BYTES = 12
KEY_BYTES_MIN = 16
_HEAD = Struct(">B4s16sI")
_TAIL = Struct(">QQHH")
_BODY = Struct(">B4s16sIQQHH")
_TOTAL = _BODY.size + MAC_BYTES
# 57 bytes: a multiple of three, so base64 needs no padding and a token has one form only.
TOKEN_CHARS = len(PREFIX) + _TOTAL * 4 // 3
_TO_URL = bytes.maketrans(b"+/", b"-_")
_FROM_URL = bytes.maketrans(b"-_+/=", b"+/!!!")
"""What no token has, padding among it, becomes what no base64 has."""


ISSUED_MAX = 4096
"""`Issued` holds at most twice this many tokens, which need no check of their MAC: most leases are
settled soon, and by the sidecar that granted them.
"""


class Token(NamedTuple):
    """The content of a token."""

    subscription: bytes
    topic_id: bytes
    partition: int
    offset: int
    fence: int
    rollback_epoch: int
    attempt: int


class BadTokenError(ValueError):
    """Not a token, or its MAC does not fit."""


class UnknownKeyError(ValueError):
    """This sidecar does not have the MAC key: the token is too old, and its lease is lost (R27)."""


def subscription_hash(name: str) -> bytes:
    """Shorten the name of a subscription to the four bytes that a token has for it."""
    return blake2b(name.encode(), digest_size=4).digest()


class Issued:
    """The content of the tokens that this sidecar signed last.

    A text that is found here was signed here, which proves as much as its MAC. (The lookup
    leaks nothing by its time: a dictionary compares whole texts, and only those with the same
    randomized 64-bit hash.)
    """

    __slots__ = ("_before", "_now")

    def __init__(self) -> None:
        self._now: dict[str, Token] = {}
        self._before: dict[str, Token] = {}

    def add(self, text: str, token: Token) -> None:
        """Remember a token. Beyond the bound, forget the older half."""
        self._now[text] = token
        if len(self._now) >= ISSUED_MAX:
            self._before, self._now = self._now, {}

    def get(self, text: str) -> Token | None:
        """The content of a token, None if it is forgotten."""
        return self._now.get(text) or self._before.get(text)


class LeaseKeys:
    """MAC keys by id (0-255); `current` signs, all of them verify (two generations, R27).

    `shared`: the store keeps the key, and all sidecars of that store sign with it.
    """

    def __init__(self, keys: Mapping[int, bytes], current: int, *, shared: bool = False) -> None:
        for key in keys.values():
            if len(key) < KEY_BYTES_MIN:
                message = f"a lease key needs at least {KEY_BYTES_MIN} bytes"
                raise ValueError(message)
        self.current = current
        self.key = keys[current]
        self.shared = shared
        self._states = {number: _state(key) for number, key in keys.items()}
        self._issued = Issued()

    def adopt(self, number: int, key: bytes) -> None:
        """Sign with another key from now on. Tokens of the previous key still verify."""
        self._states = {self.current: self._states[self.current], number: _state(key)}
        self.current, self.key = number, key
        self._issued = Issued()  # tokens of a dropped key must not be found

    def signer(self, subscription: str, topic_id: bytes, partition: int) -> Signer:
        """Make the signer of one partition. It packs the part that all its tokens share once."""
        whose = subscription_hash(subscription), topic_id, partition
        return Signer(self.current, whose, self._states[self.current], self._issued)

    def open(self, token: str) -> Token:
        """Read a token. Raises BadTokenError, UnknownKeyError."""
        issued = self._issued.get(token)
        if issued is not None:
            return issued
        if len(token) != TOKEN_CHARS or not token.startswith(PREFIX):
            raise BadTokenError(token[:16])
        try:
            raw = a2b_base64(token[3:].encode("ascii").translate(_FROM_URL), strict_mode=True)
        except ValueError as error:
            raise BadTokenError(token[:16]) from error
        body, mac = raw[:-MAC_BYTES], raw[-MAC_BYTES:]
        fields = _BODY.unpack(body)
        state = self._states.get(fields[0])
        if state is None:
            raise UnknownKeyError(fields[0])
        state = state.copy()
        state.update(body)
        if not compare_digest(state.digest(), mac):
            raise BadTokenError(token[:16])
        return tuple.__new__(Token, fields[1:])


def _state(key: bytes) -> blake2b:
    return blake2b(key=key[:64], digest_size=MAC_BYTES)


class Signer:
    """Makes the tokens of one partition; about 2 us each."""

    __slots__ = ("_head", "_issued", "_state", "_whose")

    def __init__(
        self, number: int, whose: tuple[bytes, bytes, int], state: blake2b, issued: Issued
    ) -> None:
        self._head = _HEAD.pack(number, *whose)
        self._whose = whose
        self._state = state
        self._issued = issued

    def token(self, offset: int, fence: int, rollback_epoch: int, attempt: int) -> str:
        """The token of one lease."""
        body = self._head + _TAIL.pack(offset, fence, rollback_epoch, attempt)
        state = self._state.copy()
        state.update(body)
        raw = b2a_base64(body + state.digest(), newline=False).translate(_TO_URL)
        text = PREFIX + raw.decode("ascii")
        signed = (*self._whose, offset, fence, rollback_epoch, attempt)
        self._issued.add(text, tuple.__new__(Token, signed))
        return text
