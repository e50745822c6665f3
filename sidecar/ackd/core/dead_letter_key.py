"""Which record in the store a partition of the dead-letter topic has."""

from __future__ import annotations

from ackd.core.ids import LedgerKey


def dead_key(cluster: str, subscription: str, topic_id: bytes, partition: int) -> LedgerKey:
    """The record of a partition of dead letters. The name is one that no subscription can have."""
    return LedgerKey(cluster, f"{subscription}!dead", topic_id, partition)
