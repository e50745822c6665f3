"""Reads and writes the few protobuf messages of Pulsar's protocol that the client keeps to itself.

By hand: two kinds of fields, and no library that a sidecar on Pulsar would carry for them only.
"""

from __future__ import annotations

from typing import Final, TypeAlias

Fields: TypeAlias = dict[int, "int | bytes"]
VARINT: Final = 0
BYTES: Final = 2
_MORE: Final = 0x80
_MASK: Final = (1 << 64) - 1
_WIDTHS: Final = {1: 8, 5: 4}


def decode(data: bytes) -> Fields:
    """Numbers and texts by their field's number; of a repeated field the last. Raises ValueError,
    IndexError.
    """
    found: Fields = {}
    at, end = 0, len(data)
    while at < end:
        tag, at = varint(data, at)
        kind = tag & 7
        if kind == VARINT:
            found[tag >> 3], at = varint(data, at)
        elif kind == BYTES:
            size, at = varint(data, at)
            if at + size > end:
                raise ValueError("a field is longer than its message")
            found[tag >> 3] = data[at : at + size]
            at += size
        elif kind in _WIDTHS:
            at += _WIDTHS[kind]
        else:
            raise ValueError(f"a field of kind {kind}")
    return found


def encode(fields: Fields) -> bytes:
    """The inverse. A negative number is written as 64 bits, as protobuf does it."""
    found = bytearray()
    for field, value in fields.items():
        if isinstance(value, int):
            found += _varint(field << 3 | VARINT) + _varint(value & _MASK)
        else:
            found += _varint(field << 3 | BYTES) + _varint(len(value)) + value
    return bytes(found)


def number(fields: Fields, field: int, default: int = 0) -> int:
    """The number in a field."""
    found = fields.get(field, default)
    return found if isinstance(found, int) else default


def octets(fields: Fields, field: int) -> bytes:
    """The bytes in a field; none of it where it is absent."""
    found = fields.get(field, b"")
    return found if isinstance(found, bytes) else b""


def varint(data: bytes | bytearray, at: int) -> tuple[int, int]:
    """(the number, where it ends). Raises IndexError where the data ends before it."""
    byte = data[at]
    at += 1
    if byte < _MORE:
        return byte, at
    value, shift = byte & 0x7F, 7
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < _MORE:
            return value, at
        shift += 7


def _varint(value: int) -> bytes:
    found = bytearray()
    while value >= _MORE:
        found.append(value & 0x7F | _MORE)
        value >>= 7
    found.append(value)
    return bytes(found)
