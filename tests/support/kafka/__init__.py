"""A real Kafka from Maven's jars: `Kafka(KafkaOptions(...))`."""

from tests.support.kafka.broker import Kafka, KafkaNode
from tests.support.kafka.config import (
    PLAIN_PASSWORD,
    SCRAM_PASSWORD,
    TLS_USER,
    USER,
    KafkaOptions,
)
from tests.support.kafka.install import install, missing

__all__ = [
    "PLAIN_PASSWORD",
    "SCRAM_PASSWORD",
    "TLS_USER",
    "USER",
    "Kafka",
    "KafkaNode",
    "KafkaOptions",
    "install",
    "missing",
]
