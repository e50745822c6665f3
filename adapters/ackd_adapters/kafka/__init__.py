"""Kafka, by confluent-kafka (librdkafka): classic and KIP-848 groups, SASL, TLS, safe publish.

`adapter` is what the entry point `ackd.adapters` names. ADR 3 has the shape (two
consumers per subscription) and the figures behind it.
"""

from __future__ import annotations

from ackd.ports import Broker
from ackd_adapters.kafka.broker import CAPABILITIES, KafkaBroker
from ackd_adapters.kafka.config import KafkaOptions, check

__all__ = ["KafkaAdapter", "KafkaBroker", "KafkaOptions", "adapter"]


class KafkaAdapter:
    """The adapter as the configuration sees it."""

    options = KafkaOptions
    capabilities = CAPABILITIES

    def check(self, options: KafkaOptions) -> None:
        """Rules between the options, for `ackd check`. Raises `ConfigError`."""
        check(options)

    def open(self, name: str, options: KafkaOptions) -> Broker:
        """Make the connection called `name`; it connects at `start`. Raises `ConfigError`."""
        check(options)
        return KafkaBroker(name, options)


adapter = KafkaAdapter()
