"""The broker contract on a real Kafka, with both kinds of groups."""

import asyncio

import pytest
from confluent_kafka import TopicPartition as ClientPartition

from ackd.core.ids import TopicPartition
from ackd_testing import (
    ConnectionContract,
    FetchContract,
    GroupContract,
    Lab,
    ProgressContract,
    PublishContract,
)
from ackd_torture.ports import free_port
from tests.support.kafka import Kafka
from tests.support.wait import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(240)]

SMALL_BYTES = 1024 * 1024
SHORT_SESSION = {"session.timeout.ms": "6000", "heartbeat.interval.ms": "300"}
BATCH_BYTES = 500 * 10_000
"""One call of the client may bring so much beyond the bound."""


class KafkaLab(Lab):
    """The Kafka of the whole run."""

    adapter = "kafka"
    small_buffer = (
        {"fetch_records_max": 1000, "fetch_bytes_max": SMALL_BYTES},
        SMALL_BYTES + BATCH_BYTES,
    )

    def __init__(self, kafka: Kafka, protocol: str) -> None:
        self._kafka = kafka
        self.options = {
            "bootstrap_servers": kafka.bootstrap,
            "group_protocol": protocol,
            "topics_refresh_ms": 500,
            # With KIP-848 these are the broker's, and as short in the tests' one.
            "properties": SHORT_SESSION if protocol == "classic" else {},
        }
        self.unreachable = {"bootstrap_servers": f"127.0.0.1:{free_port()}"}

    async def create_topic(self, topic: str, partitions: int) -> None:
        """By the test's own client; a deleted name is free only after a moment."""

        def create() -> bool:
            self._kafka.create_topic(topic, partitions=partitions)
            return True

        await asyncio.to_thread(
            wait_until, create, f"{topic} is made", timeout_s=60, ignoring=(Exception,)
        )

    async def delete_topic(self, topic: str) -> None:
        """By the test's own client."""
        await asyncio.to_thread(self._kafka.delete_topics, [topic])

    async def truncate(self, partition: TopicPartition, before: int) -> None:
        """By the request that retention's result looks like."""

        def cut() -> None:
            wanted = ClientPartition(partition.topic, partition.partition, before)
            asked = self._kafka.admin().delete_records([wanted])
            next(iter(asked.values())).result(10)

        await asyncio.to_thread(cut)


@pytest.fixture(params=["classic", "consumer"])
def lab(kafka: Kafka, request: pytest.FixtureRequest) -> Lab:
    """The shared Kafka; what depends on the group is run with both protocols."""
    return KafkaLab(kafka, request.param)


@pytest.fixture
def one_lab(kafka: Kafka) -> Lab:
    """The shared Kafka with the default kind of group."""
    return KafkaLab(kafka, "classic")


class TestGroup(GroupContract):
    """See the contract."""


class TestProgress(ProgressContract):
    """See the contract."""


class Once:
    """What has nothing to do with groups is run once."""

    @pytest.fixture
    def lab(self, one_lab: Lab) -> Lab:
        """In place of the one with two protocols."""
        return one_lab


class TestConnection(Once, ConnectionContract):
    """See the contract."""


class TestFetch(Once, FetchContract):
    """See the contract."""


class TestPublish(Once, PublishContract):
    """See the contract."""
