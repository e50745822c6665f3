"""Compute a message's deduplication key from a header, a part of its JSON value, or its key."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b

import orjson

from ackd.core.dedup_window import KEY_BYTES
from ackd.ports import Record

Find = Callable[[Record], bytes | None]


def deduplication_key(how: str) -> Find:
    """Return the function that digests a message's deduplication key, None where it has none; `how`
    as in the settings.

    A key of one kind never equals one of another: the number 1 is not the text "1".
    """
    kind, _, name = how.partition(":")
    if kind == "header":
        return lambda record: _header(record, name)
    if kind == "pointer":
        steps = tuple(step.replace("~1", "/").replace("~0", "~") for step in name.split("/")[1:])
        return lambda record: _pointed(record, steps)
    return lambda record: None if record.key is None else _digest(b"k", record.key)


def _header(record: Record, name: str) -> bytes | None:
    """Digest the first header of this name that has a value."""
    for header, value in record.headers:
        if header == name and value is not None:
            return _digest(b"h", value)
    return None


def _pointed(record: Record, steps: tuple[str, ...]) -> bytes | None:
    """Digest what a JSON pointer (RFC 6901) finds: text or a whole number. A value that is not JSON
    has no key.
    """
    try:
        found: object = orjson.loads(record.value or b"")
    except orjson.JSONDecodeError:
        return None
    for step in steps:
        if isinstance(found, dict):
            found = found.get(step)
        elif isinstance(found, list) and step.isascii() and step.isdigit():
            found = found[int(step)] if len(step) < KEY_BYTES and int(step) < len(found) else None
        else:
            return None
    if isinstance(found, str):
        return _digest(b"t", found.encode("utf-8", "surrogatepass"))
    if isinstance(found, int) and not isinstance(found, bool):
        return _digest(b"n", b"%d" % found)
    return None


def _digest(kind: bytes, text: bytes) -> bytes:
    return blake2b(text, digest_size=KEY_BYTES, person=kind).digest()
