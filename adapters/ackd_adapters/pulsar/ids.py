"""Reads the batch of a message id.

The client tells all of it but the batch's number of messages, which is in the id's serialized form
(protobuf of `MessageIdData` in PulsarApi.proto, field 6).
"""

from __future__ import annotations

from typing import Any

BATCH_SIZE_FIELD = 6


def batch_of(place: Any) -> tuple[int, int]:
    """(index in the batch, messages of the batch); (-1, 1) for a message outside of batches."""
    index = place.batch_index()
    if index < 0:
        return -1, 1
    return index, fields(place.serialize()).get(BATCH_SIZE_FIELD, 1)


def fields(data: bytes) -> dict[int, int]:
    """The varint fields of a protobuf message; stops at the first field of another kind."""
    found: dict[int, int] = {}
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        if tag & 7:
            break
        found[tag >> 3], at = _varint(data, at)
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 -- the bit that says "more"
            return value, at
        shift += 7
