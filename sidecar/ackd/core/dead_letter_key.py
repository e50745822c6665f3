"""The name of the record that the store keeps for a partition of a dead-letter topic."""

from __future__ import annotations

from ackd.core.ids import LedgerKey


def dead_key(cluster: str, subscription: str, topic_id: bytes, partition: int) -> LedgerKey:
    """Name the record of a partition of dead letters. No subscription can have a name with `!`."""
    return LedgerKey(cluster, f"{subscription}!dead", topic_id, partition)
