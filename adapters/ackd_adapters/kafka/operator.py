"""What operators' commands ask of the cluster: groups seen from outside, and topic settings."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from ackd.core.ids import TopicPartition
from ackd.errors import BrokerError
from ackd.ports import Committed
from ackd_adapters.kafka import errors
from ackd_adapters.kafka.admin import AdminQuestions
from ackd_adapters.kafka.worker import settled

_NO_GROUP = frozenset({KafkaError.GROUP_ID_NOT_FOUND})


async def group_members(admin: AdminQuestions, group: str, timeout_s: float) -> list[str]:
    """Name the group's members: client ids with hosts. Raises BrokerError."""

    async def ask() -> list[str]:
        asked = admin.client.describe_consumer_groups([group], request_timeout=timeout_s)
        try:
            found = await settled(asked[group])
        except KafkaException as error:
            if errors.is_code(error, _NO_GROUP):
                return []
            raise
        return sorted(f"{each.client_id} ({each.host})" for each in found.members)

    return await admin.asked(f"members of group {group}", ask)


async def move_group(
    admin: AdminQuestions,
    group: str,
    positions: Mapping[TopicPartition, Committed],
    timeout_s: float,
) -> None:
    """Commit positions for a group without members; else the broker refuses. Raises BrokerError."""
    wanted = [
        ClientPartition(tp.topic, tp.partition, each.offset, metadata=each.metadata)
        for tp, each in positions.items()
    ]

    async def ask() -> None:
        asked = admin.client.alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group, wanted)], request_timeout=timeout_s
        )
        answer = await settled(next(iter(asked.values())))
        for each in answer.topic_partitions:
            if each.error is not None:
                raise KafkaException(each.error)

    if wanted:
        await admin.asked(f"positions of group {group}", ask)


async def topic_settings(admin: AdminQuestions, topic: str, timeout_s: float) -> dict[str, str]:
    """Read the topic's settings in effect. Raises BrokerError."""
    resource = ConfigResource("topic", topic)

    async def ask() -> dict[str, str]:
        asked = admin.client.describe_configs([resource], request_timeout=timeout_s)
        try:
            found = await settled(asked[resource])
        except KafkaException as error:
            if errors.is_code(error, errors.UNKNOWN_TOPIC):
                return {}
            raise
        if not isinstance(found, dict):
            raise BrokerError(f"settings of {topic}: not told")
        return {name: str(entry.value) for name, entry in found.items()}

    return await admin.asked(f"settings of {topic}", ask)


async def take_messages_of(
    admin: AdminQuestions, topic: str, bytes_max: int, timeout_s: float
) -> None:
    """Set the topic's `max.message.bytes`, and nothing else of it. Raises BrokerError."""
    entry = ConfigEntry(
        "max.message.bytes", str(bytes_max), incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource("topic", topic, incremental_configs=[entry])

    async def ask() -> None:
        asked = admin.client.incremental_alter_configs([resource], request_timeout=timeout_s)
        await settled(asked[resource])

    await admin.asked(f"max.message.bytes of {topic}", ask)
