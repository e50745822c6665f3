"""How ackd writes a key and headers to a Pulsar message, which has a text key and a table of texts.

What fits is written plainly for other clients: a key as the partition key, a header as a property.
What does not fit (bytes that are not UTF-8, repeats, nulls, a significant order) is also stored
whole, in one property of ackd's.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Final

from ackd.ports.events import Headers

KEY: Final = "ackd.key"
HEADERS: Final = "ackd.headers"


def properties(key: bytes | None, headers: Headers) -> dict[str, str]:
    """The properties of a message to publish."""
    plain = {name: text for name, value in headers if (text := _text(value)) is not None}
    if list(plain.items()) != [(name, _text(value)) for name, value in headers] or (
        sorted(plain) != list(plain) or not plain.keys().isdisjoint((KEY, HEADERS))
    ):
        rows = [[name, None if value is None else _pack(value)] for name, value in headers]
        plain[HEADERS] = json.dumps(rows, separators=(",", ":"))
    if key is not None and _text(key or None) is None:
        plain[KEY] = _pack(key)
    return plain


def partition_key(key: bytes | None) -> str | None:
    """The partition key of a message to publish; None where the message has no key that is text."""
    return _text(key) or (None if not key else _pack(key))


def read_key(text: str, found: Mapping[str, str]) -> bytes | None:
    """The key of a received message."""
    if found and (packed := found.get(KEY)) is not None:
        return _unpack(packed)
    return text.encode() if text else None


def read_headers(found: Mapping[str, str]) -> Headers:
    """The headers of a received message."""
    packed = found.get(HEADERS)
    if packed is not None:
        try:
            return tuple(
                (str(name), None if value is None else _unpack(value))
                for name, value in json.loads(packed)
            )
        except (ValueError, TypeError):
            # ackd did not write it after all: then it is a property like any other.
            pass
    return tuple((name, value.encode()) for name, value in found.items() if name != KEY)


def java_hash(key: str) -> int:
    """Java's `String.hashCode`, not negative: what Pulsar's producers choose partitions by."""
    units = key.encode("utf-16-be", "surrogatepass")
    found = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        found = (31 * found + (high << 8 | low)) & 0xFFFFFFFF
    return found & 0x7FFFFFFF


def _text(value: bytes | None) -> str | None:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _pack(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _unpack(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
