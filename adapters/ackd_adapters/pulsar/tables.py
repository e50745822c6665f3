"""Where a partition's table of offsets is kept, so that all sidecars of a group compute the same.

In the properties of the topic, where ackd's role may write those (an admin of the tenant): so every
group shares it, and it is deleted with the topic. Else in the properties of the group's own
subscription, which a role may write that may consume. A group that has none there takes over the
table of the topic, or of another group. All calls block.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from urllib.parse import quote

from ackd.core.ids import TopicPartition
from ackd.errors import BrokerError
from ackd_adapters.pulsar.connection import Connection
from ackd_adapters.pulsar.logs import NOT_FOUND, Logs
from ackd_adapters.pulsar.names import is_own
from ackd_adapters.pulsar.numbering import Log, Numbering, Position
from ackd_adapters.pulsar.rest import Json, RestError, table

PROPERTY = "ackd.offsets"
CONFLICT = 409


class GroupProperties:
    """Properties of a group's subscription on each partition."""

    def __init__(self, connection: Connection, logs: Logs, group: str) -> None:
        self._connection = connection
        self._logs = logs
        self._lock = threading.Lock()
        self.group = group
        self._quoted = quote(group, safe="")

    def path(self, partition: TopicPartition) -> str:
        """The subscription in the admin interface. Raises BrokerError."""
        return f"{self._logs.rest_path(partition)}/subscription/{self._quoted}"

    def read(self, partition: TopicPartition) -> Mapping[str, Json] | None:
        """All of them; None when there is no subscription. Raises BrokerError."""
        try:
            return self._connection.rest.table(f"{self.path(partition)}/properties")
        except RestError as error:
            if error.status_code != NOT_FOUND:
                raise
            return None

    def create(self, partition: TopicPartition, properties: Mapping[str, str]) -> bool:
        """Make the subscription from the first message on; False when it exists. Raises
        BrokerError.
        """
        body: Json = {
            "ledgerId": -1,
            "entryId": -1,
            "partitionIndex": -1,
            "properties": dict(properties),
        }
        try:
            self._connection.rest.ask("PUT", self.path(partition), body)
        except RestError as error:
            if error.status_code != CONFLICT:
                raise
            return False
        return True

    def write(self, partition: TopicPartition, name: str, text: str | None) -> None:
        """Write one (None: take it away), and leave the others as they are: the broker stores all
        of them at once. Durable when it returns. Raises BrokerError.
        """
        with self._lock:
            found: dict[str, Json] = dict(self.read(partition) or {})
            found.pop(name, None)
            if text is not None:
                found[name] = text
            self._connection.rest.ask("PUT", f"{self.path(partition)}/properties", found)


class Tables:
    """The tables of partitions, as one group sees them; cached, and read again when they lack
    something.

    `properties` of the group, None for whoever has no group and keeps nothing. `joins`: whether the
    group may be given a subscription on any topic; else on ackd's own only.
    """

    def __init__(
        self,
        connection: Connection,
        logs: Logs,
        properties: GroupProperties | None = None,
        *,
        joins: bool = False,
    ) -> None:
        self._connection = connection
        self._logs = logs
        self._properties = properties
        self._joins = joins
        self._tables: dict[TopicPartition, Numbering] = {}
        self._topics_only: set[TopicPartition] = set()
        self._lock = threading.Lock()

    def numbering(
        self, partition: TopicPartition, ledger: int | None = None, *, gives: bool = False
    ) -> Numbering:
        """The table as cached here; read again, as by `read`, when it lacks `ledger`. Raises
        BrokerError.
        """
        with self._lock:
            known = self._tables.get(partition)
        if known is not None and (ledger is None or known.knows(ledger)):
            return known
        return self.read(partition, gives=gives)[0]

    def read(self, partition: TopicPartition, *, gives: bool = False) -> tuple[Numbering, Log]:
        """The table and the log now; writes the table where it has to grow. Raises BrokerError.

        `gives`: numbers are given to messages by it, so it must be kept, or the call fails.

        Two writers at the same time write the same: rows follow from what can't change any more.
        """
        log = self._logs.log(partition)
        shared = self._shared(partition)
        own = None if partition in self._topics_only else self._own(partition)
        if shared is not None and own is None:
            # Who may write the topic's properties never needs the group's.
            self._topics_only.add(partition)
        kept = _joined(own, shared)
        if kept is None:
            kept = self._of_others(partition)
        room = 1 if is_own(partition.topic) else self._connection.options.batch_messages_max
        found = Numbering.new(log, room) if kept is None else kept.extended(log, room)
        if kept is not None and room != kept.strides[-1] and not gives:
            # Only who reads a partition gives new ledgers another room: else two could differ.
            return found, log
        if shared is None or found.to_write(shared):
            found = self._keep(partition, found, own, gives=gives)
        with self._lock:
            self._tables[partition] = found
        return found, log

    def look(self, partition: TopicPartition) -> tuple[Numbering, Log]:
        """As `read`, with one question to the broker where the cached table suffices."""
        with self._lock:
            known = self._tables.get(partition)
        if known is not None:
            log = self._logs.log(partition)
            extended = known.extended(log)
            if not extended.to_write(known):
                return known, log
        return self.read(partition)

    def range(self, partition: TopicPartition) -> tuple[int, int]:
        """First and end offset of a partition. Raises BrokerError."""
        found, log = self.look(partition)
        return found.range(log)

    def offset(self, partition: TopicPartition, position: Position) -> int:
        """The offset of a message. Raises BrokerError."""
        return self.numbering(partition, position.ledger).offset(position)

    def forget(self, topic: str) -> None:
        """Drop what is cached: the topic was made again."""
        with self._lock:
            self._tables = {at: each for at, each in self._tables.items() if at.topic != topic}
            self._topics_only = {at for at in self._topics_only if at.topic != topic}

    def _own(self, partition: TopicPartition) -> Numbering | None:
        if self._properties is None:
            return None
        return _parsed(self._properties.read(partition))

    def _shared(self, partition: TopicPartition) -> Numbering | None:
        path = self._logs.rest_path(partition)
        return _parsed(self._connection.rest.table(f"{path}/properties"))

    def _of_others(self, partition: TopicPartition) -> Numbering | None:
        """The table of any group, so that an id means one message to all of them."""
        stats = self._connection.rest.table(f"{self._logs.rest_path(partition)}/stats")
        groups = table(stats.get("subscriptions"))
        for name in sorted(groups):
            found = _parsed(table(table(groups[name]).get("subscriptionProperties")))
            if found is not None:
                return found
        return None

    def _keep(
        self, partition: TopicPartition, found: Numbering, own: Numbering | None, *, gives: bool
    ) -> Numbering:
        """Write the table down, where ackd's role may; what is kept then."""
        refused = self._logs.write_property(partition, PROPERTY, found.text())
        if not refused:
            return self._shared(partition) or found
        properties = self._properties
        if properties is None or not (self._joins or is_own(partition.topic)):
            if gives and own is None:
                raise BrokerError(
                    "ackd's role may not write the topic's properties, where the table of offsets "
                    f"is kept of who is in no group: make it an admin of the tenant ({refused})"
                )
            return found
        if own is None or found.to_write(own):
            if not properties.create(partition, {PROPERTY: found.text()}):
                properties.write(partition, PROPERTY, found.text())
            return self._own(partition) or found
        return found


def _parsed(found: Mapping[str, Json] | None) -> Numbering | None:
    kept = None if found is None else found.get(PROPERTY)
    return Numbering.parse(kept) if isinstance(kept, str) else None


def _joined(own: Numbering | None, shared: Numbering | None) -> Numbering | None:
    """What the group has goes first, since its records are made with it."""
    if own is None or shared is None:
        return own or shared
    return own.united(shared)
