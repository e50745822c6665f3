"""Reads the batch of a message id.

The client tells all of it but the batch's number of messages, which is in the id's serialized form
(protobuf of `MessageIdData` in PulsarApi.proto, field 6).
"""

from __future__ import annotations

from typing import Any

from ackd_adapters.pulsar.protobuf import decode, number

BATCH_SIZE_FIELD = 6


def batch_of(place: Any) -> tuple[int, int]:
    """(index in the batch, messages of the batch); (-1, 1) for a message outside of batches."""
    index = place.batch_index()
    if index < 0:
        return -1, 1
    return index, number(decode(place.serialize()), BATCH_SIZE_FIELD, 1)
