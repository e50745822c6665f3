"""What the broker reports of partitions: their number, their ledgers, and the offset table.

The table is kept in the properties of the topic that holds the partition. So every sidecar and
every group shares it, and it is deleted with the topic. All calls block.
"""

from __future__ import annotations

import threading
from urllib.parse import quote

from ackd.core.ids import TopicPartition
from ackd.errors import BrokerError
from ackd_adapters.pulsar.connection import Connection
from ackd_adapters.pulsar.names import partition_name
from ackd_adapters.pulsar.numbering import Ledger, Log, Numbering, Position
from ackd_adapters.pulsar.rest import Json, RestError, number, table

PROPERTY = "ackd.offsets"
NOT_FOUND = 404
REFUSED = (401, 403)


class Logs:
    """Partitions of topics. Tables are cached, and read again when they lack something."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._partitions: dict[str, int] = {}
        self._tables: dict[TopicPartition, Numbering] = {}
        self._lock = threading.Lock()

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

    def numbering(self, partition: TopicPartition, ledger: int | None = None) -> Numbering:
        """The table as cached here; read again when it lacks `ledger`."""
        with self._lock:
            known = self._tables.get(partition)
        if known is not None and (ledger is None or known.knows(ledger)):
            return known
        return self.read(partition)[0]

    def read(self, partition: TopicPartition, stride: int | None = None) -> tuple[Numbering, Log]:
        """The table and the log now; writes the table where it has to grow. Raises BrokerError.

        `stride`: of a new table; default by the options.

        Two writers at the same time write the same: rows follow from what can't change any more.
        """
        rest, path = self._connection.rest, self.rest_path(partition)
        log = self.log(partition)
        kept = rest.table(f"{path}/properties").get(PROPERTY)
        if isinstance(kept, str):
            old = Numbering.parse(kept)
            found = old.extended(log)
        else:
            old = None
            found = Numbering.new(log, stride or self._connection.options.batch_messages_max)
        if old is None or found.to_write(old):
            self._write(path, found)
            again = rest.table(f"{path}/properties").get(PROPERTY)
            found = Numbering.parse(again if isinstance(again, str) else "")
        with self._lock:
            self._tables[partition] = found
        return found, log

    def _write(self, path: str, table_now: Numbering) -> None:
        try:
            self._connection.rest.ask("PUT", f"{path}/properties", {PROPERTY: table_now.text()})
        except RestError as error:
            if error.status_code not in REFUSED:
                raise
            raise BrokerError(
                "ackd's role may not write the topic's properties, where the table of offsets is "
                f"kept: make it an admin of the tenant ({error.detail})"
            ) from error

    def look(self, partition: TopicPartition) -> tuple[Numbering, Log]:
        """As `read`, with one question to the broker where the cached table suffices."""
        with self._lock:
            known = self._tables.get(partition)
        if known is not None:
            log = self.log(partition)
            extended = known.extended(log)
            if not extended.to_write(known):
                return known, log
        return self.read(partition)

    def range(self, partition: TopicPartition) -> tuple[int, int]:
        """First and end offset of a partition. Raises BrokerError."""
        found, log = self.look(partition)
        return found.range(log)

    def count(self, topic: str) -> int:
        """The last number of partitions that was seen, 0 for a topic that is not partitioned."""
        return self._partitions.get(topic, 0)

    def offset(self, partition: TopicPartition, position: Position) -> int:
        """The offset of a message. Raises BrokerError."""
        return self.numbering(partition, position.ledger).offset(position)

    def forget(self, topic: str) -> None:
        """Drop what is cached: the topic was made again."""
        with self._lock:
            self._partitions.pop(topic, None)
            self._tables = {at: each for at, each in self._tables.items() if at.topic != topic}


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
