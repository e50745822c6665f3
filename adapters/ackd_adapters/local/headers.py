"""The form of headers in the queue's file: length-prefixed pairs; order and repeats are kept.

Layout: for each header a 16-bit length and the name in UTF-8, then a 32-bit length (-1 = null) and
the value. No header at all is stored as NULL.
"""

from __future__ import annotations

import struct
from typing import Final

from ackd.ports import Headers

_NAME: Final = struct.Struct(">H")
_VALUE: Final = struct.Struct(">i")
NAME_BYTES_MAX: Final = 0xFFFF


def encode(headers: Headers) -> bytes | None:
    """The headers as bytes. Raises ValueError for a name that is too long or not valid text."""
    if not headers:
        return None
    parts: list[bytes] = []
    for name, value in headers:
        raw = name.encode()
        if len(raw) > NAME_BYTES_MAX:
            raise ValueError(f"a header's name has {len(raw)} bytes; the most is {NAME_BYTES_MAX}")
        parts += (_NAME.pack(len(raw)), raw, _VALUE.pack(-1 if value is None else len(value)))
        if value:
            parts.append(value)
    return b"".join(parts)


def decode(raw: bytes | None) -> Headers:
    """Unpack headers that `encode` packed; None = no headers."""
    if not raw:
        return ()
    found: list[tuple[str, bytes | None]] = []
    at = 0
    while at < len(raw):
        (size,) = _NAME.unpack_from(raw, at)
        at += _NAME.size
        name = raw[at : at + size].decode()
        at += size
        (size,) = _VALUE.unpack_from(raw, at)
        at += _VALUE.size
        if size < 0:
            found.append((name, None))
        else:
            found.append((name, raw[at : at + size]))
            at += size
    return tuple(found)
