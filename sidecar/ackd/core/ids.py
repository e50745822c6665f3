"""Names of partitions, of the record that a group has for each partition, and of sidecars.

A record belongs to (cluster, subscription, topic identity, partition). The topic's *identity* is in
it and not its name, because a topic that was deleted and made again starts at offset 0 (rule R1).
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

TOPIC_ID_BYTES = 16

INCARNATION_BITS = 48
"""Size of the random number that a record gets when it is made."""
ROLLBACK_EPOCH_BITS = 16
"""Size of the random number that a record gets at each possible rollback."""


class TopicPartition(NamedTuple):
    """A partition as the broker names it. `topic` is the name, `partition` counts from 0."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


class LedgerKey(NamedTuple):
    """The name of a record. `topic_id` has exactly 16 bytes (Kafka: the topic's UUID, KIP-516)."""

    cluster: str
    subscription: str
    topic_id: bytes
    partition: int

    def text(self) -> str:
        """The form in the store and in logs."""
        return f"{self.cluster}:{self.subscription}:{self.topic_id.hex()}:{self.partition}"


@dataclass(frozen=True, slots=True)
class SidecarId:
    """One run of one sidecar: a stable `name` and the `boot` number that the store gave this
    run.
    """

    name: str
    boot: int

    def text(self) -> str:
        """The form in which a record names its owner."""
        return f"{self.name}#{self.boot}"


def topic_id_of(identity: str) -> bytes:
    """Make a 16-byte topic identity for brokers that have no UUID of their own."""
    return blake2b(identity.encode(), digest_size=TOPIC_ID_BYTES).digest()


def message_id(topic: str, partition: int, offset: int) -> str:
    """The public id of a message: `orders/3/2101`."""
    return f"{topic}/{partition}/{offset}"


def message_place(name: str) -> tuple[TopicPartition, int]:
    """The partition and the offset in a public id. Raises ValueError."""
    topic, partition, offset = name.rsplit("/", 2)
    return TopicPartition(topic, int(partition)), int(offset)
