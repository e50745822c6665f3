"""Lease tokens: one form for each, and nothing that was not signed is opened."""

import contextlib
from collections.abc import Iterator

from ackd.core.lease_token import _BODY, BadTokenError, LeaseKeys, Token, UnknownKeyError

_KEY = b"a key of one store"
_SIGNED = 1


def _keys() -> LeaseKeys:
    return LeaseKeys({7: _KEY}, 7)  # a fresh one has issued nothing, and so checks each MAC


def run(data: bytes) -> None:
    """A token of any text; or one that is signed here, and then with one bit wrong."""
    if data[:1] == bytes((_SIGNED,)) and len(data) >= 3 + _BODY.size - 1:
        _signed(data[3 : 3 + _BODY.size - 1], int.from_bytes(data[1:3], "big"))
    else:
        _any(data.decode("utf-8", "surrogateescape"))


def _any(text: str) -> None:
    with contextlib.suppress(BadTokenError, UnknownKeyError):
        token = _keys().open(text)
        raise AssertionError(f"opened without the key: {token}")


def _signed(fields: bytes, wrong: int) -> None:
    _, *content = _BODY.unpack(b"\x07" + fields)
    whole = Token(*content)
    signer = _keys().signer("any", whole.topic_id, whole.partition)
    signer._head = b"\x07" + fields[: len(signer._head) - 1]
    text = signer.token(whole.offset, whole.fence, whole.rollback_epoch, whole.attempt)
    assert _keys().open(text) == whole
    place = wrong % len(text)
    changed = text[:place] + chr(ord(text[place]) ^ (1 << wrong % 7)) + text[place + 1 :]
    _any(changed)
    _any(text[:place])


def seeds() -> Iterator[bytes]:
    """A signed one, a good text of another key, and what is none."""
    yield bytes((_SIGNED, 0, 9)) + bytes(range(_BODY.size))
    foreign = LeaseKeys({7: b"the key of another"}, 7).signer("orders", bytes(16), 3)
    text = foreign.token(2101, 5, 1, 2)
    yield text.encode()
    yield LeaseKeys({9: _KEY}, 9).signer("orders", bytes(16), 3).token(2101, 5, 1, 2).encode()
    yield text[:-1].encode() + b"="
    yield b"v1.\xff"
