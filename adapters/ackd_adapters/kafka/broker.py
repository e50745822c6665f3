"""One connection to a Kafka cluster: what the engine sees of it (`ackd.ports.Broker`)."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ackd.core.ids import TopicPartition
from ackd.errors import BrokerError
from ackd.ports import (
    Capabilities,
    Committed,
    Condition,
    Consumer,
    ConsumerSpec,
    Outgoing,
    PublishResult,
    StartPolicy,
    own_topics,
)
from ackd_adapters.kafka import operator
from ackd_adapters.kafka.admin import AdminQuestions
from ackd_adapters.kafka.config import KafkaOptions, check_spec
from ackd_adapters.kafka.consumer import KafkaConsumer
from ackd_adapters.kafka.health import Conditions
from ackd_adapters.kafka.publish import Publisher

LOG = logging.getLogger("ackd.kafka")

# 4096 is the broker's default `offset.metadata.max.bytes`; the client adds a NUL byte.
COMMIT_METADATA_CHARS = 4095
# The limit also counts the batch header (61 bytes), the record's framing, the key and the headers.
FRAMING_BYTES = 512

CAPABILITIES = Capabilities(
    name="kafka",
    order_within_partition=True,
    explicit_partition=True,
    delayed_publish=False,
    delay_max_ms=0,
    start_policies=frozenset(StartPolicy),
    seek_by_time=True,
    commit_metadata_chars=COMMIT_METADATA_CHARS,
    value_bytes_max=1024 * 1024 - FRAMING_BYTES,
)


class KafkaBroker:
    """A Kafka connection as `ackd.ports.Broker`: one admin client, one producer, and its
    consumers.
    """

    def __init__(self, name: str, options: KafkaOptions) -> None:
        self.name = name
        self.capabilities = Capabilities(
            name=CAPABILITIES.name,
            order_within_partition=CAPABILITIES.order_within_partition,
            explicit_partition=CAPABILITIES.explicit_partition,
            delayed_publish=CAPABILITIES.delayed_publish,
            delay_max_ms=CAPABILITIES.delay_max_ms,
            start_policies=CAPABILITIES.start_policies,
            seek_by_time=CAPABILITIES.seek_by_time,
            commit_metadata_chars=CAPABILITIES.commit_metadata_chars,
            value_bytes_max=options.message_bytes_max - FRAMING_BYTES,
        )
        self._options = options
        self._timeout_s = options.request_timeout_ms / 1000
        self._conditions = Conditions(self._log_condition)
        self._admin = AdminQuestions(options)
        self._publisher = Publisher(options, self._conditions, self._admin)
        self._cluster_id: str | None = None
        self._made = False

    async def start(self) -> None:
        """The engine calls this again after a failure; the clients are made once and reconnect.

        A second set would be fatal: librdkafka crashes when a client is destroyed while a thread
        polls it or a question is pending.
        """
        if not self._made:
            await self._admin.start()
            await self._publisher.start()
            self._made = True
        try:
            self._cluster_id = await self._admin.cluster_id()
        except BrokerError as error:
            # The producer's error callback gets the reason (a wrong password, say).
            reasons = "; ".join(condition.detail for condition in self.conditions())
            if not reasons:
                raise
            raise BrokerError(f"{error.detail} ({reasons})", **error.facts) from error

    async def cluster_id(self) -> str:
        if self._cluster_id is None:
            self._cluster_id = await self._admin.cluster_id()
        return self._cluster_id

    def consumer(self, spec: ConsumerSpec) -> Consumer:
        """Raises `ConfigError` when the spec asks for what Kafka can't do."""
        check_spec(self._options, spec)
        return KafkaConsumer(self._options, spec, self._admin)

    async def publish(self, messages: Sequence[Outgoing]) -> list[PublishResult]:
        return await self._publisher.publish(messages)

    async def partitions(self, topic: str) -> int | None:
        found = await self._admin.topics([topic])
        return found[0].partitions if found else None

    async def ensure_topic(self, topic: str, settings: Mapping[str, str]) -> None:
        """`partitions`, `replication_factor`: the broker's defaults if absent."""
        if await self.partitions(topic) is None:
            await self._admin.create(topic, settings)

    async def group_members(self, group: str) -> list[str]:
        return await operator.group_members(self._admin, group, self._timeout_s)

    async def move_group(self, group: str, positions: Mapping[TopicPartition, Committed]) -> None:
        await operator.move_group(self._admin, group, positions, self._timeout_s)

    async def topic_settings(self, topic: str) -> Mapping[str, str]:
        return await operator.topic_settings(self._admin, topic, self._timeout_s)

    async def take_messages_of(self, topic: str, bytes_max: int) -> None:
        await operator.take_messages_of(self._admin, topic, bytes_max, self._timeout_s)

    def dead_letter_topic(self, group: str) -> str:
        return own_topics.dead_letter_topic(group)

    def retry_topic(self, group: str) -> str:
        return own_topics.retry_topic(group)

    def conditions(self) -> list[Condition]:
        """None is fatal: the next publish makes a new producer, the engine a new consumer."""
        return [replace(each, fatal=False) for each in self._conditions.now()]

    async def close(self) -> None:
        await self._publisher.close()
        self._admin.close()

    def _log_condition(self, condition: Condition) -> None:
        state = "is over" if condition.cleared else "began"
        LOG.warning(
            "broker %s: condition %s %s: %s", self.name, condition.code, state, condition.detail
        )
