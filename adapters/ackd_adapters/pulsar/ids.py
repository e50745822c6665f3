"""Reads what the client does not tell of a message id: how many messages its batch has.

It is in the id's serialized form (protobuf of `MessageIdData` in PulsarApi.proto, field 6).
"""

from __future__ import annotations

from typing import Any

from ackd_adapters.pulsar.protobuf import decode, number

BATCH_SIZE_FIELD = 6


def batch_size(place: Any) -> int:
    """Messages of the batch; 1 for a message outside of batches."""
    return number(decode(place.serialize()), BATCH_SIZE_FIELD, 1)
