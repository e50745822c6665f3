"""What the broker reports of partitions: their number and their ledgers. All calls block."""

from __future__ import annotations

from urllib.parse import quote

from ackd.core.ids import TopicPartition
from ackd.errors import BrokerError
from ackd_adapters.pulsar.connection import Connection
from ackd_adapters.pulsar.names import partition_name
from ackd_adapters.pulsar.numbering import Ledger, Log
from ackd_adapters.pulsar.rest import Json, RestError, number, table

NOT_FOUND = 404
REFUSED = (401, 403)


class Logs:
    """Partitions of topics."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._partitions: dict[str, int] = {}
        self._refused = ""

    def partitions(self, topic: str) -> int | None:
        """The broker's number of partitions: 0 for a topic that is not partitioned, None for no
        topic.

        Raises BrokerError.
        """
        rest = self._connection.names.rest(topic)
        try:
            found = number(self._connection.rest.table(f"{rest}/partitions").get("partitions"))
            if found <= 0:
                # Partitioned or not, only an existing topic has properties.
                self._connection.rest.ask("GET", f"{rest}/properties")
        except RestError as error:
            if error.status_code != NOT_FOUND:
                raise
            self._partitions.pop(topic, None)
            return None
        self._partitions[topic] = max(found, 0)
        return self._partitions[topic]

    def full_name(self, partition: TopicPartition) -> str:
        """`tenant/namespace/name` of the topic that holds a partition. Raises BrokerError."""
        count = self._partitions.get(partition.topic)
        if count is None:
            count = self.partitions(partition.topic)
        if count is None or not 0 <= partition.partition < max(count, 1):
            raise BrokerError(f"there is no {partition.topic}/{partition.partition}")
        path = self._connection.names.path(partition.topic)
        return partition_name(path, partition.partition, count)

    def partitioned(self, topic: str) -> bool:
        """Whether a topic that was asked for before is partitioned."""
        return self._partitions.get(topic, 0) > 0

    def rest_path(self, partition: TopicPartition) -> str:
        """The partition's path in the admin interface."""
        return "persistent/" + quote(self.full_name(partition))

    def log(self, partition: TopicPartition) -> Log:
        """The present ledgers. Raises BrokerError."""
        return read_log(self._connection.rest.table(f"{self.rest_path(partition)}/internalStats"))

    def write_property(self, partition: TopicPartition, name: str, text: str) -> str:
        """Write a property of the topic that holds a partition; why ackd's role may not, else
        nothing. Who was refused once is not asked again. Raises BrokerError.
        """
        if not self._refused:
            path = f"{self.rest_path(partition)}/properties"
            try:
                self._connection.rest.ask("PUT", path, {name: text})
            except RestError as error:
                if error.status_code not in REFUSED:
                    raise
                self._refused = error.detail
        return self._refused

    def count(self, topic: str) -> int:
        """The last number of partitions that was seen, 0 for a topic that is not partitioned."""
        return self._partitions.get(topic, 0)

    def forget(self, topic: str) -> None:
        """Drop what is cached: the topic was made again."""
        self._partitions.pop(topic, None)


def read_log(stats: object) -> Log:
    """The log, from the broker's internal statistics. Raises BrokerError."""
    found = table(stats) if isinstance(stats, dict) else {}
    ledger, _, entry = str(found.get("lastConfirmedEntry", "")).partition(":")
    listed = found.get("ledgers")
    if not isinstance(listed, list) or not listed or not ledger.isdecimal():
        raise BrokerError("the broker's statistics of ledgers can't be read")
    ledgers = tuple(_ledger(each) for each in listed)
    return Log(ledgers, int(ledger), int(entry))


def _ledger(row: Json) -> Ledger:
    found = table(row)
    return Ledger(number(found.get("ledgerId")), number(found.get("entries")))
