"""One connection to a Pulsar cluster: what the engine sees of it (`ackd.ports.Broker`)."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import quote

import pulsar

from ackd.core.ids import TopicPartition
from ackd.errors import BrokerError
from ackd.ports import (
    Capabilities,
    Committed,
    Condition,
    ConsumerSpec,
    DeadOrigin,
    Outgoing,
    PublishResult,
    Record,
    StartPolicy,
    own_topics,
)
from ackd_adapters.pulsar import errors
from ackd_adapters.pulsar.config import PulsarOptions, check_spec
from ackd_adapters.pulsar.connection import Connection
from ackd_adapters.pulsar.consumer import PulsarConsumer
from ackd_adapters.pulsar.dead import origin, written
from ackd_adapters.pulsar.handover import Handover
from ackd_adapters.pulsar.logs import REFUSED, Logs
from ackd_adapters.pulsar.names import SCHEME
from ackd_adapters.pulsar.positions import METADATA_CHARS_MAX
from ackd_adapters.pulsar.publish import Publisher
from ackd_adapters.pulsar.rest import RestError
from ackd_adapters.pulsar.tables import Tables

CONFLICT: Final = 409
CLOSE_S: Final = 5.0

CAPABILITIES: Final = Capabilities(
    name="pulsar",
    order_within_partition=True,
    explicit_partition=True,
    # A reader gets a delayed message at once, so ackd's own outbox delays instead.
    delayed_publish=False,
    delay_max_ms=0,
    start_policies=frozenset(StartPolicy),
    seek_by_time=True,
    commit_metadata_chars=METADATA_CHARS_MAX,
    value_bytes_max=5 * 1024 * 1024 - 32 * 1024,
    reserved=(
        own_topics.RETRY_PREFIX,
        own_topics.DEAD_PREFIX,
        "__",
        "transaction_coordinator_",
        "pulsar/system/",
    ),
)
FRAMING_BYTES: Final = 16 * 1024


class PulsarBroker:
    """A Pulsar connection as `ackd.ports.Broker`."""

    def __init__(self, name: str, options: PulsarOptions) -> None:
        self.name = name
        self.capabilities = dataclasses.replace(
            CAPABILITIES, value_bytes_max=options.message_bytes_max - FRAMING_BYTES
        )
        self._connection = Connection(options)
        self._logs = Logs(self._connection)
        self._tables = Tables(self._connection, self._logs)
        self._publisher = Publisher(self._connection, self._logs, self._tables)
        self._consumers: list[PulsarConsumer] = []
        self._cluster = ""
        self._condition: Condition | None = None

    async def start(self) -> None:
        await asyncio.to_thread(self._connection.open)
        self._cluster = await asyncio.to_thread(self._find_cluster)
        self._publisher.start()

    async def cluster_id(self) -> str:
        """The instance's cluster names: Pulsar has no other id for them."""
        if not self._cluster:
            self._cluster = await asyncio.to_thread(self._find_cluster)
        return self._cluster

    def consumer(self, spec: ConsumerSpec) -> PulsarConsumer:
        """See the port. Raises `ConfigError`."""
        check_spec(spec)
        made = PulsarConsumer(self._connection, self._logs, spec)
        self._consumers.append(made)
        return made

    async def publish(self, messages: Sequence[Outgoing]) -> list[PublishResult]:
        return await self._publisher.publish(messages)

    async def partitions(self, topic: str) -> int | None:
        """A topic that is not partitioned counts as one partition."""
        found = await asyncio.to_thread(self._logs.partitions, topic)
        return None if found is None else max(found, 1)

    async def ensure_topic(self, topic: str, settings: Mapping[str, str]) -> None:
        """Retention is the namespace's business. Only ackd writes to this topic, so its offsets
        leave no room for batches.
        """
        await asyncio.to_thread(self._ensure_topic, topic, settings)

    def dead_letter_topic(self, group: str) -> str:
        return own_topics.dead_letter_topic(group)

    async def dead_origins(self, records: Sequence[Record]) -> list[DeadOrigin | None]:
        return await asyncio.to_thread(self._dead_origins, records)

    def _dead_origins(self, records: Sequence[Record]) -> list[DeadOrigin | None]:
        names = self._connection.names
        headers = [written(each, names) for each in records]
        return [
            None if each is None else origin(each, self._logs, self._tables, names)
            for each in headers
        ]

    def retry_topic(self, group: str) -> str:
        return own_topics.retry_topic(group)

    async def group_members(self, group: str) -> list[str]:
        """The members of the topics of this connection's consumers of the group."""
        return await asyncio.to_thread(self._handover(group).members, self._partitions_of(group))

    async def move_group(self, group: str, positions: Mapping[TopicPartition, Committed]) -> None:
        await asyncio.to_thread(self._handover(group).take, positions)

    async def acks_above(
        self, group: str, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, list[tuple[int, int]]]:
        handover = self._handover(group)
        return await asyncio.to_thread(lambda: {at: handover.finished(at) for at in partitions})

    async def give_back(
        self,
        group: str,
        positions: Mapping[TopicPartition, Committed],
        finished: Mapping[TopicPartition, Sequence[tuple[int, int]]],
    ) -> None:
        await asyncio.to_thread(self._handover(group).give, positions, finished)

    def conditions(self) -> list[Condition]:
        return [] if self._condition is None else [self._condition]

    async def close(self) -> None:
        for consumer in self._consumers:
            await consumer.close()
        self._consumers.clear()
        await self._publisher.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await asyncio.to_thread(self._connection.close)

    def _make_by_use(self, topic: str, why: str) -> None:
        """Brokers make a topic when it is used for the first time, unless they are told not to."""
        path = SCHEME + self._connection.names.path(topic)
        try:
            self._connection.client.create_producer(path).close()
        except pulsar.PulsarException as error:
            raise BrokerError(
                f"ackd's role may not make the topic {path}, and the broker does not make it by "
                f"itself ({errors.code_of(error)}): make it, or grant the role more ({why})"
            ) from error

    def _handover(self, group: str) -> Handover:
        return Handover(self._connection, self._logs, group)

    def _partitions_of(self, group: str) -> list[TopicPartition]:
        """Of what was looked up by consumers of the group."""
        topics = {topic for each in self._consumers for topic in each.topics_of(group)}
        return [
            TopicPartition(topic, number)
            for topic in sorted(topics)
            for number in range(max(self._logs.count(topic), 1))
        ]

    def _find_cluster(self) -> str:
        found = self._connection.rest.ask("GET", "clusters")
        if not isinstance(found, list) or not found:
            raise BrokerError("the broker does not tell the cluster's name")
        return ",".join(sorted(str(each) for each in found))

    def _ensure_topic(self, topic: str, settings: Mapping[str, str]) -> None:
        rest = self._connection.rest
        path = "persistent/" + quote(self._connection.names.path(topic))
        if self._logs.partitions(topic) is not None:
            return
        try:
            count = int(settings.get("partitions", "1"))
        except ValueError:
            raise BrokerError(f"partitions of {topic}: no number") from None
        try:
            rest.ask("PUT", f"{path}/partitions", count)
        except RestError as error:
            if error.status_code in REFUSED:
                self._make_by_use(topic, error.detail)
            elif error.status_code != CONFLICT:
                raise
        for number in range(max(self._logs.partitions(topic) or 0, 1)):
            self._tables.read(TopicPartition(topic, number))
